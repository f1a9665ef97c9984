"""Clocks: cyclic ones with a period such as the hour of day, gaps in time between steps, and several clocks at once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labeltide._validation import check_clock, check_number, spread_steps, steps_mask

Period = float | tuple[float | None, ...] | None  # of one clock, or of each of several
MAX_GAP = 1000  # steps of time; longer gaps are cut to it, as the transition matrix hardly changes any more
MAX_GAP_LENGTHS = 16  # distinct lengths, each with its power of the transition matrix


def check_period(period: Any) -> None:
    """A positive number, or None for a clock that is not cyclic; with several clocks one for each."""
    for clock_period in period if isinstance(period, tuple | list) else (period,):
        if clock_period is not None:
            check_number("period", clock_period, 0, above=True)


def one_period(period: Period) -> float | None:
    """The period of a single clock."""
    if isinstance(period, tuple | list):
        raise ValueError(f"period must be one number, as there is one clock. Got {period!r}.")
    return period


def wrap_clock(clock: np.ndarray, period: float | None) -> np.ndarray:
    """Moments modulo the period, in [0, period); unchanged without a period."""
    if period is None:
        return clock
    inside = clock % period
    return np.where(inside < period, inside, 0.0)  # rounding can give the period itself for moments just below zero


def check_gaps(gaps: ArrayLike | None, lengths: np.ndarray, n_steps: int) -> np.ndarray | None:
    """Gaps: the time between each step and the one before in whole steps, shape (n, steps); None where all are one.

    The first step of a sequence and padding get a gap of one, whatever was passed there.
    """
    if gaps is None:
        return None
    try:
        values = np.array(gaps, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("gaps must be whole numbers: how many steps of time lie between two steps.") from None
    values = spread_steps("gaps", "one per step", values, (len(lengths), n_steps))
    values[:, 0] = 1
    values[~steps_mask(lengths, n_steps)] = 1
    bad = np.argwhere(~(values >= 1) | (values != np.floor(values)))
    if len(bad):
        raise ValueError(
            "gaps must be whole numbers of at least 1, which means that a step follows the one before at once. "
            f"Got {values[tuple(bad[0])]} in sequence {bad[0][0]}, step {bad[0][1]}."
        )
    return np.minimum(values, MAX_GAP).astype(np.int64) if (values > 1).any() else None


def gap_ladder(gaps: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Gaps as int8 indices into at most 16 lengths, the first of which is one; gaps between lengths are rounded up."""
    lengths = np.union1d([1], gaps)
    if len(lengths) > MAX_GAP_LENGTHS:
        lengths = np.unique(np.geomspace(1, lengths[-1], MAX_GAP_LENGTHS).round().astype(np.int64))
    return np.searchsorted(lengths, gaps).astype(np.int8), tuple(lengths.tolist())


def check_clocks(clock: ArrayLike | None, lengths: np.ndarray, n_steps: int) -> np.ndarray:
    """Several clocks, (n, steps, clocks), or one, (n, steps): finite moments for every step."""
    if np.ndim(clock) != 3:  # type: ignore[arg-type]
        return check_clock(clock, lengths, n_steps)
    clocks = np.moveaxis(np.asarray(clock), -1, 0)
    if len(clocks) < 2:
        raise ValueError(
            f"Several clocks have shape (n, steps, clocks); for one leave out the last axis. Got {clocks.shape[0]}."
        )
    return np.stack([check_clock(values, lengths, n_steps) for values in clocks], -1)


class Cells(NamedTuple):
    """Cells of the Cartesian product of several clocks, each rounded to a few moments; the last clock varies fastest.

    Below `fit` and `audit` the index of a step's cell is used as its clock.
    """

    axes: tuple[np.ndarray, ...]  # the moments of each clock, rising
    periods: tuple[float | None, ...]

    @property
    def grid(self) -> np.ndarray:
        """The moments of every cell: shape (cells, clocks)."""
        return np.stack(np.meshgrid(*self.axes, indexing="ij"), -1).reshape(-1, len(self.axes))

    def cell_of(self, clock: np.ndarray) -> np.ndarray:
        """The index of the nearest cell of moments of shape (..., clocks): whole numbers of shape (...)."""
        if clock.ndim < 1 or clock.shape[-1] != len(self.axes):
            raise ValueError(f"clock must have shape (..., {len(self.axes)}), one moment per clock. Got {clock.shape}.")
        pairs = zip(self.axes, self.periods, strict=True)
        near = [nearest(clock[..., i], axis, period) for i, (axis, period) in enumerate(pairs)]
        return np.ravel_multi_index(near, [len(axis) for axis in self.axes])


def find_cells(clock: np.ndarray, mask: np.ndarray, period: Period, most: int) -> Cells:
    """At most `most` cells of clocks of shape (n, steps, clocks), on a regular grid where distinct moments are more."""
    periods = each_period(period, clock.shape[-1])
    n_moments = int(most ** (1 / len(periods)) + 1e-9)
    axes = [np.unique(wrap_clock(clock[mask, i], length)) for i, length in enumerate(periods)]
    for i, (axis, length) in enumerate(zip(axes, periods, strict=True)):
        if len(axis) > n_moments:
            turns = np.arange(n_moments)
            axes[i] = np.linspace(axis[0], axis[-1], n_moments) if length is None else turns * (length / n_moments)
    return Cells(tuple(axes), periods)


def cells_of(grid: np.ndarray, period: Period) -> Cells:
    """The cells whose moments are a grid of shape (cells, clocks)."""
    if grid.ndim != 2 or grid.shape[1] < 2:
        raise ValueError(f"Several clocks have a grid of shape (cells, clocks). Got {grid.shape}.")
    axes = tuple(np.unique(moments) for moments in grid.T)
    if math.prod(len(axis) for axis in axes) != len(grid):
        raise ValueError(f"The cells of several clocks are the product of their moments. Got {len(grid)} others.")
    return Cells(axes, each_period(period, grid.shape[1]))


def each_period(period: Period, count: int) -> tuple[float | None, ...]:
    """The period of each of several clocks."""
    periods = (None,) * count if period is None else period
    if not isinstance(periods, tuple | list) or len(periods) != count:
        raise ValueError(f"With {count} clocks, period must name one for each, such as (None, 24). Got {period!r}.")
    return tuple(periods)


def nearest(moments: np.ndarray, axis: np.ndarray, period: float | None) -> np.ndarray:
    """The index of the nearest moment on an axis, which is cyclic where it has a period."""
    if period is None:
        return np.searchsorted((axis[1:] + axis[:-1]) / 2, moments)
    ring = np.concatenate([axis[-1:] - period, axis, axis[:1] + period])
    index = np.searchsorted((ring[1:] + ring[:-1]) / 2, wrap_clock(moments, period))
    return (index - 1) % len(axis)
