"""Clocks that begin anew, such as the hour of day."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeltide._validation import check_number


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
