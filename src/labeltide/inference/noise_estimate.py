"""Estimated noise over the clock, as a result that shows itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labeltide.inference.displays import NoiseDisplay


def interval_around(share: float, estimate: float, lower: float, upper: float) -> tuple[float, float]:
    """The interval of one estimate moved to another estimate of the same share, which it then holds.

    The share that is stated is the mean over all labels under the averaged Q. The interval belongs to the maximum of a
    likelihood, sometimes of some of the windows. The upper end keeps its distance. The lower end does, or keeps its
    ratio where that is smaller, so that it is zero if and only if it was.
    """
    below = max(estimate - lower, 0.0) * min(1.0, share / max(estimate, 1e-12))
    return (max(share - below, 0.0) if lower > 0 else 0.0), min(share + max(upper - estimate, 0.0), 1.0)


class Change(NamedTuple):
    """How much an error rate changes over the clock: largest minus smallest, with a 95 % interval."""

    value: float
    lower: float
    upper: float
    worst_at: float
    best_at: float
    worst_rate: float
    best_rate: float


@dataclass(frozen=True, repr=False)
class NoiseEstimate(NoiseDisplay):
    """Q over the clock with 95 % confidence bands.

    Pointwise bands cover the truth at each moment, simultaneous bands the whole curve of an entry. The estimate is that
    of one annotator, or the common one: the mean over annotators, weighted by their numbers of labels.

    Attributes
    ----------
    clock : array of shape (points,)
    mean, lower, upper, simultaneous_lower, simultaneous_upper : arrays of shape (points, classes, classes)
        Q, the probability of each recorded label given the true one.
    class_rate, and the same four bands of it : arrays of shape (points, classes)
        Error rate of each true class: P(recorded wrong | true class).
    rate, and the same four bands of it : arrays of shape (points,)
        Error rate: P(recorded label is wrong).
    total, total_lower, total_upper, total_p : float
        The share of all recorded labels that are wrong: profile likelihood interval and test (annotators: bootstrap).
    false_alarms : array, optional
        Expected shares of false alarms among flags, Q and k not taken as known (`averaged_quality.py`).
    labels : array of shape (points, classes)
        The expected number of recorded labels of each true class, averaged over neighbouring moments.
    change, class_change : Change, and one for each class
        How much the error rates change over the clock.

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.TideClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> estimate = clf.noise_estimate_
    >>> estimate.mean.shape
    (10, 2, 2)
    >>> bool((estimate.lower <= estimate.mean).all())
    True
    """

    clock: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    simultaneous_lower: np.ndarray
    simultaneous_upper: np.ndarray
    class_rate: np.ndarray
    class_rate_lower: np.ndarray
    class_rate_upper: np.ndarray
    class_rate_simultaneous_lower: np.ndarray
    class_rate_simultaneous_upper: np.ndarray
    rate: np.ndarray
    rate_lower: np.ndarray
    rate_upper: np.ndarray
    rate_simultaneous_lower: np.ndarray
    rate_simultaneous_upper: np.ndarray
    total: float
    total_lower: float
    total_upper: float
    labels: np.ndarray
    change: Change
    class_change: tuple[Change, ...]
    total_p: float = np.nan
    false_alarms: np.ndarray | None = None
