"""Error rates of predicted labels. Missing labels and padding (-1) are not counted."""

from __future__ import annotations

import numpy as np


def error_rate(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Share of the labels that are predicted wrongly.

    Parameters
    ----------
    predicted, labels : arrays of one shape
        Codes; -1 in `labels` where there is none.
    """
    counted = labels >= 0
    return float(np.mean(predicted[counted] != labels[counted]))


def balanced_error(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Balanced error: the mean over classes of the error rate within each class."""
    classes = np.unique(labels[labels >= 0])
    return float(np.mean([np.mean(predicted[labels == name] != name) for name in classes]))


def error_over_time(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Error rate at each step, of shape (steps,), from arrays of shape (n, steps); NaN where no label is recorded."""
    counted = labels >= 0
    counts = counted.sum(0)
    wrong = ((predicted != labels) & counted).sum(0)
    return np.where(counts > 0, wrong / np.maximum(counts, 1), np.nan)
