r"""Tests of a difference between two audits: of the share of wrong labels, and of a curve over the clock.

With enough people the difference of two shares has a cluster-robust variance (Liang and Zeger 1986) and quantiles of
Student's t. What a person adds to the two shares is subtracted first, so people who are in both audits are paired.
People say nothing about errors that a fit makes for all of them alike. These are added from the intervals of the two
shares; labels that are the same in both audits make them correlated.

With few people the interval of the difference comes from the two intervals by MOVER, the method of variance estimates
recovery (Newcombe 1998; Zou and Donner 2008), which needs neither symmetric intervals nor a variance.

A curve is tested at its most striking moment, by MOVER. The p-value of that moment is corrected for the many moments at
which one could have looked by Šidák's formula (1967), with the effective number of moments that the simultaneous bands
imply, at most as many as are compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

Z = float(ndtri(0.975))
MOST_CORRELATION = 0.95  # by hand: of two fits to the same labels (docs/decisions/020-review.md)
People = dict[str, tuple[float, int]]  # expected number of wrong labels and number of labels of each person


class Share(NamedTuple):
    """An estimated share with its 95 % interval; arrays where it is a curve."""

    value: float | np.ndarray
    lower: float | np.ndarray
    upper: float | np.ndarray


@dataclass(frozen=True)
class Difference:
    """Now minus then, with a 95 % interval and the p-value of no difference; NaN where it cannot be told."""

    value: float
    lower: float
    upper: float
    p_value: float


def independent_difference(old: Share, new: Share) -> Difference:
    """The difference of two independent shares by MOVER, with a z-test."""
    value = float(new.value - old.value)
    down, up = (float(half) for half in _half_widths(old, new))
    if not math.isfinite(value + down + up) or (down + up == 0 and value):
        return Difference(value, math.nan, math.nan, math.nan)
    side = down if value > 0 else up
    p_value = 1.0 if value == 0 else 0.0 if side == 0 else _two_sided(Z * abs(value) / side)
    return Difference(value, max(-1.0, value - down), min(1.0, value + up), p_value)


def people_difference(old: Share, new: Share, people: tuple[People, People], same_labels: float) -> Difference:
    """The difference of two shares with people as the unit; those who are in both audits are paired.

    Parameters
    ----------
    people : of the old and of the new audit, at least two in each
    same_labels : share of the labels that are in both audits and recorded alike
    """
    value = float(new.value - old.value)
    errors = [float(np.subtract(share.upper, share.lower)) / (2 * Z) for share in (old, new)]
    correlation = min(same_labels, MOST_CORRELATION)
    variance = errors[0] ** 2 + errors[1] ** 2 - 2 * correlation * errors[0] * errors[1] + _people_variance(*people)
    if not math.isfinite(value + variance) or variance <= 0:
        return Difference(value, math.nan, math.nan, math.nan)
    freedom = min(map(len, people)) - 1
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(variance)
    p_value = 2 * float(stdtr(freedom, -abs(value) / math.sqrt(variance)))
    return Difference(value, max(-1.0, value - half), min(1.0, value + half), p_value)


def _people_variance(old: People, new: People) -> float:
    """Cluster-robust variance of the difference of two shares."""
    names = sorted(old.keys() | new.keys())
    moved = _influence(new, names) - _influence(old, names)  # (people,)
    return float((moved**2).sum()) * len(names) / (len(names) - 1)


def _influence(people: People, names: list[str]) -> np.ndarray:
    """What each person adds to the deviation of the share from its expectation: shape (people,)."""
    wrong, labels = (sum(each[place] for each in people.values()) for place in (0, 1))
    each_one = [people.get(name, (0.0, 0)) for name in names]
    return np.array([(own_wrong - wrong / labels * own_labels) / labels for own_wrong, own_labels in each_one])


@dataclass(frozen=True)
class CurveDifference:
    """Two curves at the moment at which they differ most surely; the p-value is corrected for the choice of it."""

    at: float
    then: float
    now: float
    difference: Difference  # at that moment, with the limits and the p-value of the whole curve


def curve_difference(points: np.ndarray, old: Share, new: Share, critical: float) -> CurveDifference | None:
    """Compare two curves on the same points; None where no moment has both.

    Parameters
    ----------
    critical : half-width of a simultaneous 95 % band in standard errors, at least that of a single moment
    """
    value = np.asarray(new.value) - np.asarray(old.value)
    down, up = (np.asarray(half) for half in _half_widths(old, new))
    side = np.where(value > 0, down, up)
    known = np.isfinite(value + down + up) & (side > 0)
    if not known.any():
        return None
    z = np.where(known, Z * np.abs(value) / np.where(known, side, 1), -1)
    place = int(z.argmax())
    looks = min(effective_moments(critical), float(known.sum()))
    p_value = -math.expm1(looks * math.log1p(-min(_two_sided(float(z[place])), 1 - 1e-12)))
    wide = float(ndtri((1 + 0.95 ** (1 / looks)) / 2)) / Z
    limits = float(value[place] - wide * down[place]), float(value[place] + wide * up[place])
    difference = Difference(float(value[place]), max(-1.0, limits[0]), min(1.0, limits[1]), float(p_value))
    then, now = (float(np.asarray(curve.value)[place]) for curve in (old, new))
    return CurveDifference(float(points[place]), then, now, difference)


def effective_moments(critical: float) -> float:
    """The number of independent looks for which Šidák's correction gives this critical value at 5 %."""
    alone = _two_sided(min(max(critical, Z), 6.0))
    return max(1.0, math.log(0.95) / math.log1p(-alone))


def holm(p_values: list[float]) -> list[float]:
    """P-values corrected for their number (Holm 1979); NaN stays and does not count."""
    known = [place for place, p in enumerate(p_values) if math.isfinite(p)]
    corrected, highest = list(p_values), 0.0
    for rank, place in enumerate(sorted(known, key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(known) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def _half_widths(old: Share, new: Share) -> tuple[np.ndarray, np.ndarray]:
    """How far the interval of the difference reaches below and above it."""
    down = np.hypot(np.subtract(new.value, new.lower), np.subtract(old.upper, old.value))
    up = np.hypot(np.subtract(new.upper, new.value), np.subtract(old.value, old.lower))
    return down, up


def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))
