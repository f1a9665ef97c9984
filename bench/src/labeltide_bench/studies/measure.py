"""Metrics of a fitted run with drawn noise: errors on clean labels and distance of Q(t)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from labeltide.estimators import NoisyLabelClassifier
from labeltide.noise.fixed import FixedNoise
from labeltide.noise.shapes import average_rate
from labeltide_bench.evaluation import (
    absolute_errors,
    balanced_error,
    error_over_time,
    error_rate,
    frobenius_errors,
)
from labeltide_bench.studies.loading import Split

# Predicted disagreement with another annotator, of recorded labels and methods that cross-fit (`recorded.py`).
DISAGREEMENT = ("expert_frobenius", "expert_pairs_frobenius", "contested", "contested_observed")
METRICS = ("test_error", "train_error", "balanced_test_error", "frobenius", "absolute", "wrong_labels", *DISAGREEMENT)


class RecordedLabels(NamedTuple):
    """The recorded labels of a run, and the noise they were drawn from."""

    noise: FixedNoise | None  # None where real annotators gave the labels
    recorded: np.ndarray  # (n, steps)


class Predicted(NamedTuple):
    """Predicted labels of a fitted run, (n, steps) each."""

    test: np.ndarray
    train: np.ndarray


def measure(
    estimator: NoisyLabelClassifier, draw: RecordedLabels, split: Split, predicted: Predicted
) -> dict[str, Any]:
    """Errors on clean labels, distances of Q(t), and both Q(t)."""
    assert draw.noise is not None
    clock = estimator.clock_grid_
    true = draw.noise.at(clock)
    test_codes, train_codes = split.test.labels[..., 0], split.train.labels[..., 0]
    frobenius, absolute = (f(true, estimator.noise_matrices_) for f in (frobenius_errors, absolute_errors))
    return {
        "rate": round(float(average_rate(true)), 5),
        "metrics": {
            "test_error": error_rate(predicted.test, test_codes),
            "train_error": error_rate(predicted.train, train_codes),
            "balanced_test_error": balanced_error(predicted.test, test_codes),
            "frobenius": float(frobenius.mean()),
            "absolute": float(absolute.mean()),
            "wrong_labels": error_rate(draw.recorded, train_codes),
        },
        "over_time": {
            "test_error": np.round(error_over_time(predicted.test, test_codes), 4),
            "frobenius": np.round(frobenius, 4),
            "absolute": np.round(absolute, 4),
        },
        "clock": np.round(clock, 4),
        "true_noise": np.round(true, 4),
        "noise": np.round(estimator.noise_matrices_, 4),
    }
