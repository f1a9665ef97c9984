"""What is known of annotators, in the form of audit.json: noise functions, tests of change, and agreement.

Agreement is corrected for chance: kappa of pairs (Cohen 1960) and of all annotators (Fleiss 1971), the latter also over
the first clock.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from labeltide.auditing.audit_input import AuditInput
from labeltide.estimators import TideClassifier
from labeltide.inference.agreement import cohen_kappas, count_votes, fleiss_kappa, observed_agreement
from labeltide.inference.noise_estimate import Change, NoiseEstimate
from labeltide.inference.temporality import PartTemporality

PARTS = 24  # of the clock
FEWEST = 20  # steps in a part, for a kappa of its own


def annotator_estimates(table: AuditInput, estimator: TideClassifier) -> list[tuple[str, int, NoiseEstimate]]:
    """Name, number of labels and noise estimate of each annotator with labels; empty where all share one Q.

    Also empty with several clocks: Q along each clock is estimated for all annotators together.
    """
    names = table.annotator_names or ()
    estimates = estimator.annotator_estimates_ if len(table.clocks) == 1 else ()
    if len(names) < 2 or len(estimates) != len(names):
        return []
    counts = (table.fit_labels >= 0).sum((0, 1)).tolist()
    return [(name, count, estimate) for name, count, estimate in zip(names, counts, estimates, strict=True) if count]


def describe_curve(estimate: NoiseEstimate, kept: np.ndarray, n_labels: int, annotator: str | None) -> dict[str, Any]:
    """A curve of the part `noise`, at some grid points; annotator None stands for all together."""
    curve: dict[str, Any] = {"annotator": annotator, "labels": n_labels}
    for name in ("rate", "rate_lower", "rate_upper", "mean", "lower", "upper"):
        curve[name] = getattr(estimate, name)[kept]
    for end in ("", "_lower", "_upper", "_simultaneous_lower", "_simultaneous_upper"):
        curve[f"class_rate{end}"] = getattr(estimate, f"class_rate{end}")[kept].T
    return curve


def annotator_changes(table: AuditInput, estimator: TideClassifier) -> list[dict[str, Any]]:
    """The test of a constant error rate and the size of the change, for each annotator with labels."""
    named = {name for name, _, _ in annotator_estimates(table, estimator)}
    tests = zip(table.annotator_names or (), estimator.temporality_.per_annotator, strict=bool(named))
    return [
        {"annotator": name, **describe_test(test), **describe_change(test.change)}
        for name, test in tests
        if name in named
    ]


def describe_test(test: PartTemporality) -> dict[str, Any]:
    """The p-value of a test of change, its reference distribution and the units behind it."""
    return {"p_value": test.p_value, "method": test.method, "n_units": test.n_units}


def describe_change(change: Change) -> dict[str, float]:
    """How much an error rate changes, and when it is highest and lowest."""
    interval = {"change": change.value, "change_lower": change.lower, "change_upper": change.upper}
    return interval | {name: getattr(change, name) for name in ("worst_at", "best_at", "worst_rate", "best_rate")}


def describe_agreement(table: AuditInput) -> dict[str, Any] | None:
    """Kappas of pairs, of all annotators, and over the clock; None where no step has two labels."""
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
        "observed": observed_agreement(votes),
        "largest_class": table.class_names[int(votes.sum(0).argmax())],
        "largest_share": float(votes.sum(0).max() / votes.sum()),
        "clock": [float((edges[place] + edges[place + 1]) / 2) for place in shown],
        "fleiss_over_clock": [fleiss_kappa(votes[part == place]) for place in shown],
    }
