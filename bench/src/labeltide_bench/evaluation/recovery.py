"""Distance of an estimated noise matrix Q(t) from the true one, at each moment of the clock."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def frobenius_errors(true: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    r""":math:`\|Q_t - \hat Q_t\|_F`, the approximation error of the paper before averaging over time.

    Parameters
    ----------
    true, estimated : arrays of shape (points, classes, classes)
    """
    return np.linalg.norm(np.asarray(true) - np.asarray(estimated), axis=(-2, -1))


def absolute_errors(true: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    """Mean absolute error of the entries of Q at each moment."""
    return np.abs(np.asarray(true) - np.asarray(estimated)).mean((-2, -1))


def average_rate(noise_matrices: ArrayLike) -> float:
    r"""The share of wrong labels when all classes and moments weigh the same: the mean of :math:`1 - Q_{ii}`."""
    diagonal = np.diagonal(np.asarray(noise_matrices, dtype=np.float64), axis1=-2, axis2=-1)
    return float(1 - diagonal.mean())
