"""How far annotators agree, beyond chance, overall and over the clock."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from labeltide.auditing.table import AuditTable

PARTS = 24  # of the clock
FEWEST = 20  # steps in a part, for a kappa of its own


def describe_agreement(table: AuditTable) -> dict[str, Any] | None:
    """Cohen's kappa of every pair, and Fleiss' of all; None where no step has two labels."""
    labels = table.from_steps(table.labels)  # (steps, annotators)
    several = (labels >= 0).sum(1) > 1
    if not table.annotator_names or not several.any():
        return None
    labels, clock = labels[several], table.from_steps(table.clock)[several]
    names, n_classes = table.annotator_names, len(table.class_names)
    cohen = []
    for a, b in combinations(range(len(names)), 2):
        both = (labels[:, a] >= 0) & (labels[:, b] >= 0)
        if both.any():
            kappa = cohen_kappa(labels[both, a], labels[both, b], n_classes)
            cohen.append({"a": names[a], "b": names[b], "kappa": kappa, "steps": int(both.sum())})
    edges = np.linspace(clock.min(), clock.max(), PARTS + 1)
    part = np.clip(np.searchsorted(edges, clock, side="right") - 1, 0, PARTS - 1)
    shown = [place for place in range(PARTS) if (part == place).sum() >= FEWEST]
    return {
        "cohen": cohen,
        "fleiss": fleiss_kappa(labels, n_classes),
        "clock": [float((edges[place] + edges[place + 1]) / 2) for place in shown],
        "fleiss_over_clock": [fleiss_kappa(labels[part == place], n_classes) for place in shown],
    }


def cohen_kappa(a: np.ndarray, b: np.ndarray, n_classes: int) -> float | None:
    """Agreement of two annotators on the same steps, beyond chance; None where both always say the same one thing."""
    joint = np.bincount(a.astype(np.int64) * n_classes + b, minlength=n_classes**2).reshape(n_classes, n_classes)
    share = joint / joint.sum()
    return _beyond_chance(float(np.trace(share)), float(share.sum(1) @ share.sum(0)))


def fleiss_kappa(labels: np.ndarray, n_classes: int) -> float | None:
    """Agreement of all annotators (steps, annotators), -1 for gaps; every step has at least two labels."""
    counts = np.stack([(labels == code).sum(1) for code in range(n_classes)], axis=1)  # (steps, classes)
    n = counts.sum(1)
    agreeing = (counts * (counts - 1)).sum(1) / (n * (n - 1))
    share = counts.sum(0) / counts.sum()
    return _beyond_chance(float(agreeing.mean()), float((share**2).sum()))


def _beyond_chance(observed: float, by_chance: float) -> float | None:
    return (observed - by_chance) / (1 - by_chance) if by_chance < 1 - 1e-12 else None
