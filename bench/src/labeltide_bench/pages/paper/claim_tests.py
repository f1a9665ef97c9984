"""The tests behind the table of claims: paired by draw within a cell, then over the cells of a study.

Cells of one data set share their data, so they are not independent, and p-values are smaller than they should be. The
verdicts therefore also ask for the direction of every data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, rankdata, ttest_1samp

from labeltide_bench.pages.cells import Cell
from labeltide_bench.pages.cost import method_in, paired

SIGNIFICANCE = 0.05
HOLDS, PARTLY, FAILS, UNTESTED = "holds", "holds partly", "does not hold here", "not tested"


class Effect(NamedTuple):
    """The effect in one cell or group of cells; positive where the claim says so."""

    group: str  # the data set, by which directions are counted
    value: float
    draws: int


class Support(NamedTuple):
    """How many data sets, or shapes, go the claimed way."""

    in_favour: int
    groups: int
    unit: str = "data sets"

    @property
    def is_full(self) -> bool:
        return self.in_favour == self.groups

    def __str__(self) -> str:
        return f"{self.in_favour} of {self.groups} {self.unit}"


Grouping = Callable[[Cell], str]


def by_dataset(cell: Cell) -> str:
    return cell.name


def by_shape(cell: Cell) -> str:
    return cell.shape


def gains(
    cells: Iterable[Cell],
    method: str,
    other: str,
    metric: str = "test_error",
    group: Grouping = by_dataset,
) -> list[Effect]:
    """By how much a method's error lies below another's in each cell, the mean over the draws that both have."""
    found = []
    for cell in cells:
        difference = paired(cell, method_in(cell, other), method_in(cell, method), metric)
        if difference.n:
            found.append(Effect(group(cell), difference.mean, difference.n))
    return found


def sign_test(values: Iterable[float]) -> float:
    """One-sided p-value of the sign test that positive values are no more frequent than negative ones."""
    kept = [value for value in values if value != 0 and math.isfinite(value)]
    return float(binomtest(sum(value > 0 for value in kept), len(kept), alternative="greater").pvalue) if kept else 1.0


def cost_test(costs: Sequence[float], margin: float) -> float:
    """One-sided p-value of the t-test that the mean cost over cells is at least the margin (non-inferiority)."""
    values = np.asarray(costs, dtype=float)
    if len(values) < 2:
        return 1.0
    if np.ptp(values) == 0:
        return 0.0 if values[0] < margin else 1.0
    return float(ttest_1samp(values, margin, alternative="less").pvalue)


def means_by_group(effects: Iterable[Effect]) -> dict[str, float]:
    """Mean effect of each data set, in the order in which they come."""
    grouped: dict[str, list[float]] = {}
    for effect in effects:
        grouped.setdefault(effect.group, []).append(effect.value)
    return {group: float(np.mean(values)) for group, values in grouped.items()}


def count_support(directions: Iterable[tuple[str, bool]], unit: str = "data sets") -> Support:
    """In how many groups every comparison goes the claimed way."""
    grouped: dict[str, bool] = {}
    for group, is_claimed in directions:
        grouped[group] = grouped.get(group, True) and is_claimed
    return Support(sum(grouped.values()), len(grouped), unit)


def judge(p_value: float, support: Support) -> str:
    """The verdict: significant and in every data set; significant but not in every one; not significant."""
    if not (support.groups and p_value < SIGNIFICANCE):
        return FAILS
    return HOLDS if support.is_full else PARTLY


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Least-squares slope; NaN with fewer than three distinct places."""
    return float(np.polyfit(x, y, 1)[0]) if len(set(x)) > 2 else math.nan


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation; NaN where one of both is constant or fewer than three values are there."""
    return _correlation(rankdata(x), rankdata(y)) if len(x) > 2 else math.nan


def partial_rank_correlation(x: Sequence[float], y: Sequence[float], given: Sequence[float]) -> float:
    """Spearman's rank correlation of x and y after both are regressed on the ranks of a third variable."""
    if len(x) < 4:
        return math.nan
    ranks = [rankdata(values) for values in (x, y, given)]
    design = np.stack([np.ones(len(x)), ranks[2]], axis=1)
    rest = [values - design @ np.linalg.lstsq(design, values, rcond=None)[0] for values in ranks[:2]]
    return _correlation(*rest)


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    if np.std(x) < 1e-9 or np.std(y) < 1e-9:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def total_variation(true_noise: np.ndarray) -> float:
    """Change of the noise over the clock: the sum of absolute steps of 1 - Q(t)[i, i], mean over classes."""
    wrong = 1 - np.diagonal(true_noise, axis1=-2, axis2=-1)  # (points, classes)
    return float(np.abs(np.diff(wrong, axis=0)).sum(axis=0).mean())
