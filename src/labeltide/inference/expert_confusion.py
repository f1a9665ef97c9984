r"""Confusion matrix of recorded labels with the labels of another expert, in bins of the clock.

.. math:: D_b[i, j] = \frac{\sum_{t \in b} p_t(i)\, [j \text{ recorded at } t]}{\sum_{t \in b} p_t(i)}

with :math:`p_t` the predicted label of another expert (`contested.py`) and t the recorded labels of bin b. Q(t) has the
true label in the place of the other expert's. D therefore also holds the other expert's errors, and steps on which
experts differ although neither errs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def expert_confusion(another: np.ndarray, labels: np.ndarray, clock: np.ndarray, edges: ArrayLike) -> np.ndarray:
    """Expected shares of recorded labels among the steps that another expert labels i; NaN where no step is expected.

    Parameters
    ----------
    another : array of shape (n, steps, classes)
        Probability of each label of another expert.
    labels : int array of shape (n, steps, annotators), -1 where nothing was recorded
    clock : array of shape (n, steps)
    edges : increasing numbers, the inner edges of the bins
        A moment on an edge belongs to the later bin. Without edges there is one bin; between equal edges one is empty.

    Returns
    -------
    array of shape (bins, classes, classes, annotators): bin, label of the other expert, recorded label
    """
    bins = np.digitize(clock, inner := check_edges(edges))
    each = [_expected_counts(another, recorded, bins, len(inner) + 1) for recorded in np.moveaxis(labels, 2, 0)]
    counts = np.stack(each, -1)
    totals = counts.sum(2, keepdims=True)
    return np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)


def check_edges(edges: ArrayLike) -> np.ndarray:
    """Inner edges of bins as an array, or an error that says what is wrong with them."""
    inner = np.asarray(edges, dtype=float)
    if inner.ndim != 1 or not np.isfinite(inner).all() or (np.diff(inner) < 0).any():
        raise ValueError(f"edges must be increasing numbers, the inner edges of bins of the clock. Got {edges!r}.")
    return inner


def _expected_counts(another: np.ndarray, labels: np.ndarray, bins: np.ndarray, n_bins: int) -> np.ndarray:
    """Expected steps of each bin, label of the other expert and label of one annotator: (bins, classes, classes)."""
    there, n_classes = labels >= 0, another.shape[-1]
    place = bins[there] * n_classes + labels[there]
    counts = [np.bincount(place, another[there, code], n_bins * n_classes) for code in range(n_classes)]
    return np.stack(counts).reshape(n_classes, n_bins, n_classes).swapaxes(0, 1)
