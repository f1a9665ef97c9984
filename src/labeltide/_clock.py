"""Clocks that begin anew, such as the hour of day, and gaps in time between steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labeltide._validation import check_number, steps_mask

LONGEST_GAP = 1000  # steps of time; what lies longer ago says no less
MOST_GAPS = 16  # different lengths, each of which has transitions of its own


def check_period(period: Any) -> None:
    """A length above zero, or None for a clock that never begins anew."""
    if period is not None:
        check_number("period", period, 0, above=True)


def wrap_clock(clock: np.ndarray, period: float | None) -> np.ndarray:
    """The same moments within one period, from zero up to but not including it; untouched without one."""
    if period is None:
        return clock
    inside = clock % period
    return np.where(inside < period, inside, 0.0)  # what lies just below zero is rounded up to the period itself


def check_gaps(gaps: ArrayLike | None, lengths: np.ndarray, n_steps: int) -> np.ndarray | None:
    """Whole numbers of steps between each step and the one before it, shape (n, steps); None where all are one.

    The first step of a sequence and padding come out as one, whatever was given there.
    """
    if gaps is None:
        return None
    shape = (len(lengths), n_steps)
    try:
        values = np.array(gaps, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("gaps must be whole numbers: how many steps of time lie between two steps.") from None
    if values.shape not in (shape, shape[1:]):
        raise ValueError(
            f"gaps must have shape {shape}, one per step, or {shape[1:]}, shared by all sequences. "
            f"Got shape {values.shape}."
        )
    values = np.broadcast_to(values, shape).copy()
    values[:, 0] = 1
    values[~steps_mask(lengths, n_steps)] = 1
    bad = np.argwhere(~(values >= 1) | (values != np.floor(values)))
    if len(bad):
        raise ValueError(
            "gaps must be whole numbers of at least 1, which means that a step follows the one before at once. "
            f"Got {values[tuple(bad[0])]} in sequence {bad[0][0]}, step {bad[0][1]}."
        )
    return np.minimum(values, LONGEST_GAP).astype(np.int64) if (values > 1).any() else None


def gap_ladder(gaps: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Gaps as places, int8 of the same shape, among a few lengths that begin with one; those between are rounded up."""
    lengths = np.union1d([1], gaps)
    if len(lengths) > MOST_GAPS:
        lengths = np.unique(np.geomspace(1, lengths[-1], MOST_GAPS).round().astype(np.int64))
    return np.searchsorted(lengths, gaps).astype(np.int8), tuple(lengths.tolist())
