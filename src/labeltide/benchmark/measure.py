"""What is measured of one fitted run."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeltide.benchmark.datasets import Split
from labeltide.estimators import NoisyLabelClassifier
from labeltide.evaluation import (
    absolute_errors,
    balanced_error,
    error_over_time,
    error_rate,
    frobenius_errors,
)
from labeltide.noise.fixed import FixedNoise
from labeltide.noise.shapes import average_rate


def measure(estimator: NoisyLabelClassifier, noise: FixedNoise, recorded: np.ndarray, split: Split) -> dict[str, Any]:
    """Errors on clean labels and of Q, and Q itself, in plain numbers."""
    clock = estimator.clock_grid_
    true = noise.at(clock)
    test, train = split.test, split.train
    test_codes, train_codes = test.labels[..., 0], train.labels[..., 0]
    predicted = estimator.predict_proba(test.features, test.lengths).argmax(-1)
    fitted = estimator.predict_proba(train.features, train.lengths).argmax(-1)
    frobenius, absolute = (f(true, estimator.noise_matrices_) for f in (frobenius_errors, absolute_errors))
    return {
        "rate": round(float(average_rate(true)), 5),
        "metrics": {
            "test_error": error_rate(predicted, test_codes),
            "train_error": error_rate(fitted, train_codes),
            "balanced_test_error": balanced_error(predicted, test_codes),
            "frobenius": float(frobenius.mean()),
            "absolute": float(absolute.mean()),
            "wrong_labels": error_rate(recorded, train_codes),
        },
        "over_time": {
            "test_error": _plain(error_over_time(predicted, test_codes)),
            "frobenius": _plain(frobenius),
            "absolute": _plain(absolute),
        },
        "clock": _plain(clock),
        "true_noise": _plain(true),
        "noise": _plain(estimator.noise_matrices_),
    }


def _plain(values: np.ndarray) -> Any:
    """Lists of numbers with four decimals; None where there is none."""
    rounded = np.round(np.asarray(values, dtype=float), 4).astype(object)
    rounded[rounded != rounded] = None
    return rounded.tolist()
