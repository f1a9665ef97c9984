"""How often predictions miss, step by step; gaps and padding (-1) never count."""

from __future__ import annotations

import numpy as np


def error_rate(predicted: np.ndarray, labels: np.ndarray) -> float:
    """The share of labels that the prediction misses.

    Parameters
    ----------
    predicted, labels : arrays of one shape
        Codes; -1 in `labels` where there is none.
    """
    counted = labels >= 0
    return float(np.mean(predicted[counted] != labels[counted]))


def balanced_error(predicted: np.ndarray, labels: np.ndarray) -> float:
    """The error rate within each class, averaged over the classes that occur: rare ones weigh as much."""
    classes = np.unique(labels[labels >= 0])
    return float(np.mean([np.mean(predicted[labels == name] != name) for name in classes]))


def error_over_time(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The error rate at each step, of shape (steps,), from arrays of shape (n, steps); NaN where nothing counts."""
    counted = labels >= 0
    counts = counted.sum(0)
    wrong = ((predicted != labels) & counted).sum(0)
    return np.where(counts > 0, wrong / np.maximum(counts, 1), np.nan)
