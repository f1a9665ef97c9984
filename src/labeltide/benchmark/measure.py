"""What is measured of one fitted run."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeltide.benchmark.loading import Split
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
    """Errors on clean labels and of Q, and Q itself; a record turns what is not finite into null."""
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
            "test_error": np.round(error_over_time(predicted, test_codes), 4),
            "frobenius": np.round(frobenius, 4),
            "absolute": np.round(absolute, 4),
        },
        "clock": np.round(clock, 4),
        "true_noise": np.round(true, 4),
        "noise": np.round(estimator.noise_matrices_, 4),
    }
