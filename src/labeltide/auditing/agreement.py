"""How far annotators agree, beyond chance, overall and over the clock, of several the first."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from labeltide.auditing.table import AuditTable
from labeltide.inference.agreement import cohen_kappas, count_votes, fleiss_kappa

PARTS = 24  # of the clock
FEWEST = 20  # steps in a part, for a kappa of its own


def describe_agreement(table: AuditTable) -> dict[str, Any] | None:
    """Cohen's kappa of every pair, and Fleiss' of all; None where no step has two labels."""
    labels = table.from_steps(table.labels)  # (steps, annotators)
    several = (labels >= 0).sum(1) > 1
    if not table.annotator_names or not several.any():
        return None
    labels, clock = labels[several], table.from_steps(table.each_clock[0])[several]
    names, n_classes = table.annotator_names, len(table.class_names)
    kappas = cohen_kappas(labels, n_classes)
    together = (labels >= 0).astype(np.int64)
    steps = together.T @ together  # (annotators, annotators), labelled by both
    pairs = [(a, b) for a, b in combinations(range(len(names)), 2) if steps[a, b]]
    edges = np.linspace(clock.min(), clock.max(), PARTS + 1)
    part = np.clip(np.searchsorted(edges, clock, side="right") - 1, 0, PARTS - 1)
    shown = [place for place in range(PARTS) if (part == place).sum() >= FEWEST]
    votes = count_votes(labels, n_classes)
    return {
        "cohen": [{"a": names[a], "b": names[b], "kappa": kappas[a, b], "steps": int(steps[a, b])} for a, b in pairs],
        "fleiss": fleiss_kappa(votes),
        "clock": [float((edges[place] + edges[place + 1]) / 2) for place in shown],
        "fleiss_over_clock": [fleiss_kappa(votes[part == place]) for place in shown],
    }
