"""Metrics of a fitted run with drawn noise: errors on clean labels and distance of Q(t)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from labeltide.data.sequences import Sequences
from labeltide.estimators import NoisyLabelClassifier, TideClassifier
from labeltide.inference.audit import LabelAudit, LabelCodes, audit_labels
from labeltide.noise.functions import FixedNoise
from labeltide_bench.evaluation import (
    absolute_errors,
    average_rate,
    balanced_error,
    error_over_time,
    error_rate,
    frobenius_errors,
)
from labeltide_bench.studies.loading import Split

# Predicted disagreement with another annotator, of recorded labels and methods that cross-fit (`recorded.py`).
DISAGREEMENT = ("expert_frobenius", "expert_pairs_frobenius", "contested", "contested_observed")
# What an audit of the training labels says, of methods that cross-fit (`measure_audit`).
AUDITED = ("left", "left_flagged", "left_corrected", "stated", "false_alarms", "recall", "bursts", "power")
METRICS = (
    *("test_error", "train_error", "balanced_test_error", "frobenius", "absolute", "wrong_labels"),
    "test_error_rounded",
    *AUDITED,
    *DISAGREEMENT,
)


class RecordedLabels(NamedTuple):
    """The recorded labels of a run, and the noise they were drawn from."""

    noise: FixedNoise | None  # None where real annotators gave the labels
    recorded: np.ndarray  # (n, steps)


class PredictedLabels(NamedTuple):
    """Predicted labels of a fitted run, (n, steps) each."""

    test: np.ndarray
    train: np.ndarray
    test_rounded: np.ndarray  # by the paper's code: the arg max of rounded probabilities, class 0 where all are 0


def measure(
    estimator: NoisyLabelClassifier,
    draw: RecordedLabels,
    split: Split,
    predicted: PredictedLabels,
    *,
    as_code: bool = False,
) -> dict[str, Any]:
    """Errors on clean labels, distances of Q(t), and both Q(t).

    A fit that stopped because its gradient is not finite keeps its last sound parameters. The paper's code goes on with
    NaN, so `as_code` such a fit has no Q and predicts the first class everywhere.
    """
    assert draw.noise is not None
    clock, matrices = estimator.clock_grid_, estimator.noise_matrices_
    if as_code and estimator.history_.restarts.max() > estimator.max_restarts:
        matrices, predicted = np.full_like(matrices, np.nan), PredictedLabels(*map(np.zeros_like, predicted))
    true = draw.noise.at(clock)
    test_codes, train_codes = split.test.labels[..., 0], split.train.labels[..., 0]
    frobenius, absolute = (f(true, matrices) for f in (frobenius_errors, absolute_errors))
    return {
        "rate": round(float(average_rate(true)), 5),
        "metrics": {
            "test_error": error_rate(predicted.test, test_codes),
            "train_error": error_rate(predicted.train, train_codes),
            "balanced_test_error": balanced_error(predicted.test, test_codes),
            "frobenius": float(frobenius.mean()),
            "absolute": float(absolute.mean()),
            "wrong_labels": error_rate(draw.recorded, train_codes),
            "test_error_rounded": error_rate(predicted.test_rounded, test_codes),
            **measure_audit(estimator, draw, split.train),
        },
        "over_time": {
            "test_error": np.round(error_over_time(predicted.test, test_codes), 4),
            "frobenius": np.round(frobenius, 4),
            "absolute": np.round(absolute, 4),
        },
        "clock": np.round(clock, 4),
        "true_noise": np.round(true, 4),
        "noise": np.round(matrices, 4),
    }


def measure_audit(estimator: NoisyLabelClassifier, draw: RecordedLabels, train: Sequences) -> dict[str, float]:
    """What an audit of the training labels finds, compared with the clean labels; nothing for methods without a chain.

    `left`, `left_flagged` and `left_corrected` are the shares of wrong labels that are left if every suggestion is
    taken, if flagged labels are replaced, and in `corrected_labels`. `false_alarms` is the share of right labels that
    are flagged, `recall` that of wrong ones.
    """
    if not isinstance(estimator, TideClassifier) or estimator.fold_model_ is None:
        return {}
    clean, recorded = train.labels[..., 0], draw.recorded
    audit = _audit_training(estimator, recorded.astype(np.int8)[..., None])
    there = clean >= 0
    flagged, suggested = audit.is_issue, audit.suggested
    wrong = recorded != clean
    shares = {
        "left": (suggested != clean)[there].mean(),
        "left_flagged": (np.where(flagged, suggested, recorded) != clean)[there].mean(),
        "left_corrected": (estimator.classes_[audit.corrected()] != clean)[there].mean(),
        "stated": audit.share_wrong,
        "false_alarms": flagged[there & ~wrong].mean(),
        "recall": flagged[there & wrong].mean() if wrong[there].any() else np.nan,
        "bursts": estimator.chain_.bursts,
        "power": estimator.chain_.power,
    }
    return {name: round(float(value), 6) for name, value in shares.items() if np.isfinite(value)}


def _audit_training(estimator: TideClassifier, labels: np.ndarray) -> LabelAudit:
    """The audit of the training labels from the evidence that the fit has kept, whatever networks gave it."""
    data = estimator.training_.data
    assert data.evidence is not None
    mask, evidence = data.mask.numpy(), data.evidence[0].numpy()
    clock = estimator.training_.grid[data.grid_index().numpy()]
    chain, noise, classes = estimator.chain_, estimator.noise_, estimator.classes_
    return audit_labels(LabelCodes(labels, mask, clock), evidence, chain, noise, classes)
