"""Q(t) with bands: how well the noise is known at each moment of the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from labeltide.chain.data import TrainingEvidence
from labeltide.inference.bootstrap import REPLICATES, Replicates, draw

LEVEL = 0.95
NORMAL = 1.959964  # half width of a 95 % interval, in standard deviations
HIDDEN = 0.5  # the share of the gap between rough and chosen estimate that counts as hidden by smoothing
# In probabilities, from `benchmarks/inference.py`. Three wrong labels in a thousand are not told from none, nor is the
# chain, which simplifies, closer to the truth than that. Somewhere along a curve its sharpest turn is smoothed away,
# most where hardly a label is wrong; a moment on its own rarely meets that turn.
RESOLUTION = 0.003
SHARPEST_TURN = 0.01
LITTLE = 1e-6  # the weight of the others' labels among an annotator's own
FLOOR = 1e-4  # probabilities are kept this far from 0 and 1 before their logit is taken


class Change(NamedTuple):
    """How much an error rate changes over the clock: largest minus smallest, with a 95 % interval."""

    value: float
    lower: float
    upper: float
    worst_at: float
    best_at: float
    worst_rate: float
    best_rate: float


@dataclass(frozen=True)
class NoiseEstimate:
    """The noise over the clock, with 95 % bands.

    Pointwise bands hold at each moment on its own, simultaneous ones for the whole curve of an entry at once. It is
    that of one annotator, or the common one: the mean over annotators, weighed by how many labels they gave.

    Attributes
    ----------
    clock : array of shape (points,)
    mean, lower, upper, simultaneous_lower, simultaneous_upper : arrays of shape (points, classes, classes)
        Q, the probability of each recorded label given the true one.
    class_rate, and the same four bands of it : arrays of shape (points, classes)
        How often a label of each true class is recorded wrong.
    rate, and the same four bands of it : arrays of shape (points,)
        How often a recorded label is wrong.
    total, total_lower, total_upper : float
        The share of all recorded labels that are wrong.
    labels : array of shape (points, classes)
        The expected number of recorded labels of each true class, averaged over neighbouring moments.
    change, class_change : Change, and one for each class
        How much the error rates change over the clock.
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


class Band(NamedTuple):
    """Lower and upper ends, at each moment and for whole curves."""

    lower: np.ndarray
    upper: np.ndarray
    simultaneous_lower: np.ndarray
    simultaneous_upper: np.ndarray


class Estimates(NamedTuple):
    """The noise of all annotators together, and of each."""

    common: NoiseEstimate
    own: tuple[NoiseEstimate, ...]  # one for each annotator; with one annotator the common one


def estimate_noise(
    training: TrainingEvidence, families: Mapping[str, float], *, n_replicates: int = REPLICATES, seed: int = 0
) -> NoiseEstimate:
    """The common part of `estimate_annotators`."""
    return estimate_annotators(training, families, n_replicates=n_replicates, seed=seed).common


def estimate_annotators(
    training: TrainingEvidence, families: Mapping[str, float], *, n_replicates: int = REPLICATES, seed: int = 0
) -> Estimates:
    """Q with bands from a bootstrap over sequences, on the logit scale so that they stay between 0 and 1.

    The networks' evidence is held fixed. Replicates are smoothed less than the estimate itself, and annotators lean
    less on each other; where the two part, the band is widened by half the gap: that much the smoothing may hide.
    Simultaneous bands are wider by a hundredth in probability, for the one turn of a curve that smoothing hides most.
    """
    own = training.parameters.matrices[0].double().numpy()  # (annotators or 1, points, classes, classes)
    found = draw(training, families, n_replicates, seed)
    common = estimate(training.grid, own, found, training.weights())
    if len(own) == 1:
        return Estimates(common, (common,))
    everyone = LITTLE * found.totals.sum(1, keepdims=True)  # where an annotator gave no labels, classes of the others'
    each = []
    for annotator in range(len(own)):
        part = slice(annotator, annotator + 1)
        drawn = Replicates(found.matrices[:, part], found.totals[:, part] + everyone)
        each.append(estimate(training.grid, own[part], drawn, np.ones(1)))
    return Estimates(common, tuple(each))


def estimate(grid: np.ndarray, own: np.ndarray, found: Replicates, weights: np.ndarray) -> NoiseEstimate:
    """Bands around the mean of some annotators' Q; error rates count every annotator's labels under their own Q."""
    mean = (weights[:, None, None, None] * own).sum(0)
    matrices = (weights[:, None, None, None] * found.matrices).sum(1)
    band = make_band(mean, matrices)
    class_rate, class_rates = _class_rates(mean), _class_rates(matrices)
    totals = _side_by_side(found.totals)  # (1 + replicates, points, annotators * classes)
    wrong, wrongs = _side_by_side(_class_rates(own)[None])[0], _side_by_side(_class_rates(found.matrices))
    shares = totals / totals.sum(-1, keepdims=True).clip(1e-12)
    rate, rates = (shares[0] * wrong).sum(-1), (shares * wrongs).sum(-1)
    rate_band = make_band(rate, rates)
    return NoiseEstimate(
        grid,
        mean,
        *band,
        class_rate,
        *_wrong(band),
        rate,
        *rate_band,
        *share_wrong(own, found),
        found.totals[0].sum(0),
        find_change(grid, rate, rates),
        tuple(find_change(grid, class_rate[:, i], class_rates[..., i]) for i in range(class_rate.shape[1])),
    )


def share_wrong(own: np.ndarray, found: Replicates) -> tuple[float, float, float]:
    """The share of all recorded labels that are wrong, with a 95 % interval."""
    totals = _side_by_side(found.totals)  # (1 + replicates, points, annotators * classes)
    wrong, wrongs = _side_by_side(_class_rates(own)[None])[0], _side_by_side(_class_rates(found.matrices))
    total = _total(wrong, totals[0])
    lower, upper = make_band(total, _total(wrongs, totals))[:2]
    return float(total), float(lower), float(upper)


def make_band(mean: np.ndarray, replicates: np.ndarray) -> Band:
    """Bands around a curve (points, ...) from (1 + replicates, points, ...), of which the first used all rows."""
    centre, drawn = logit(mean), logit(replicates)
    rough, drawn = drawn[0], drawn[1:]
    deviation = drawn - drawn.mean(0)
    variance = deviation.var(0, ddof=1).clip(1e-12)
    farthest = np.abs(deviation / np.sqrt(variance))
    reach = np.maximum(np.quantile(farthest.max(1) if centre.ndim else farthest, LEVEL, axis=0), NORMAL)
    spread = np.sqrt(variance + (HIDDEN * (rough - centre)) ** 2)
    return Band(
        *_ends(mean, NORMAL * spread, NORMAL * RESOLUTION),
        *_ends(mean, reach * spread, reach * np.hypot(RESOLUTION, SHARPEST_TURN)),
    )


def _ends(mean: np.ndarray, half: np.ndarray, more: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """From half a width in logits, and more of it in probabilities, to both ends."""
    below, above = mean - expit(logit(mean) - half), expit(logit(mean) + half) - mean
    return np.clip(mean - np.hypot(below, more), 0, 1), np.clip(mean + np.hypot(above, more), 0, 1)


def find_change(grid: np.ndarray, rate: np.ndarray, rates: np.ndarray) -> Change:
    """The range of a curve (points,), with an interval from replicates (1 + replicates, points).

    Chance widens the range of a curve; replicates laid over the curve show by how much, and the lower end takes
    this off. The upper end is at least that of the difference between the two moments.
    """
    worst, best = int(rate.argmax()), int(rate.argmin())
    value = float(rate[worst] - rate[best])
    deviation = rates[1:] - rates[1:].mean(0)
    low, high = np.quantile(np.ptp(rate + deviation, axis=1) - value, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    spread = float((deviation[:, worst] - deviation[:, best]).std(ddof=1))
    lower, upper = min(value - high, value), max(value - low, value + NORMAL * spread)
    place = (float(grid[worst]), float(grid[best]), float(rate[worst]), float(rate[best]))
    return Change(value, max(float(lower), 0.0), min(float(upper), 1.0), *place)


def logit(values: np.ndarray) -> np.ndarray:
    """Log-odds, finite."""
    kept = np.clip(values, FLOOR, 1 - FLOOR)
    return np.log(kept / (1 - kept))


def _class_rates(matrices: np.ndarray) -> np.ndarray:
    return 1 - np.diagonal(matrices, axis1=-2, axis2=-1)


def _wrong(band: Band) -> Band:
    """Bands of 1 - Q_ii: those of Q_ii turned over."""
    lower, upper, simultaneous_lower, simultaneous_upper = (_class_rates(end) for end in band)
    return Band(upper, lower, simultaneous_upper, simultaneous_lower)


def _total(class_rate: np.ndarray, totals: np.ndarray) -> np.ndarray:
    return np.asarray((class_rate * totals).sum((-2, -1)) / totals.sum((-2, -1)).clip(1e-12))


def _side_by_side(values: np.ndarray) -> np.ndarray:
    """The classes of all annotators on one axis: (..., annotators, points, classes) → (..., points, both)."""
    moved = np.moveaxis(values, -3, -2)
    return np.ascontiguousarray(moved).reshape(*moved.shape[:-2], -1)
