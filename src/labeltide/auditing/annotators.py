"""The noise of each annotator over the clock, in the form of audit.json; with several clocks, of nobody alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeltide.auditing.table import AuditTable
from labeltide.estimators import TideClassifier
from labeltide.inference.bands import Change, NoiseEstimate


def annotator_estimates(table: AuditTable, estimator: TideClassifier) -> list[tuple[str, int, NoiseEstimate]]:
    """The name, the number of labels and the noise of each annotator who gave any; none where all share one Q.

    With several clocks there are none either: Q along each clock is known of all annotators together.
    """
    names = table.annotator_names or ()
    own = estimator.annotator_estimates_ if len(table.clocks) == 1 else ()
    if len(names) < 2 or len(own) != len(names):
        return []
    counts = (table.fit_labels >= 0).sum((0, 1)).tolist()
    return [(name, count, found) for name, count, found in zip(names, counts, own, strict=True) if count]


def describe_curve(estimate: NoiseEstimate, kept: np.ndarray, n_labels: int, annotator: str | None) -> dict[str, Any]:
    """One of the curves of the part `noise`, at some moments; without an annotator that of all together."""
    curve: dict[str, Any] = {"annotator": annotator, "labels": n_labels}
    for name in ("rate", "rate_lower", "rate_upper", "mean", "lower", "upper"):
        curve[name] = getattr(estimate, name)[kept]
    for end in ("", "_lower", "_upper", "_simultaneous_lower", "_simultaneous_upper"):
        curve[f"class_rate{end}"] = getattr(estimate, f"class_rate{end}")[kept].T
    return curve


def annotator_changes(table: AuditTable, estimator: TideClassifier) -> list[dict[str, Any]]:
    """Whether and how much the noise of each annotator changes over the clock, who gave any labels."""
    named = {name for name, _, _ in annotator_estimates(table, estimator)}
    tests = zip(table.annotator_names or (), estimator.temporality_.per_annotator, strict=bool(named))
    return [
        {"annotator": name, "p_value": test.p_value, **describe_change(test.change)}
        for name, test in tests
        if name in named
    ]


def describe_change(change: Change) -> dict[str, float]:
    """How much an error rate changes, and when it is highest and lowest."""
    found = {"change": change.value, "change_lower": change.lower, "change_upper": change.upper}
    return found | {name: getattr(change, name) for name in ("worst_at", "best_at", "worst_rate", "best_rate")}
