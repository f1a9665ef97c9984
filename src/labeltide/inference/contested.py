"""Contested labels: the probability that another annotator would record another label."""

from __future__ import annotations

import numpy as np


def differs_probability(another: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probability that another annotator records another label than each recorded one; NaN where there is none.

    Parameters
    ----------
    another : array of shape (n, steps, classes)
    labels : array of shape (n, steps, annotators), -1 where nothing was recorded
    """
    codes = labels.clip(0).astype(np.intp)
    return np.where(labels >= 0, 1 - np.take_along_axis(another, codes, -1), np.nan)
