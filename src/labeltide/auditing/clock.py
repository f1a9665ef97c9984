"""The clock of every row: a column, a part of the time, or the position in the sequence."""

from __future__ import annotations

from dataclasses import dataclass

import narwhals as nw
import numpy as np
import pyarrow as pa

from labeltide.auditing.columns import DERIVED
from labeltide.auditing.intake import is_moment, whole
from labeltide.auditing.moments import DAY, Moments, read_moments
from labeltide.auditing.words import means, quoted
from labeltide.data.columns import read_numbers
from labeltide.data.tables import Steps

HOURS = frozenset(("hour", "hourofday", "hours", "clockhour"))


@dataclass(frozen=True)
class ClockInfo:
    """What the clock counts."""

    name: str
    kind: str  # position, hour_of_day, day_of_week, days or column
    unit: str = ""
    period: float | None = None  # where it starts again


def read_clock(
    table: pa.Table, clock: str | None, time: str | None, moments: Moments | None, steps: Steps
) -> tuple[np.ndarray, ClockInfo, str]:
    """The moment of every step, float64 of shape (steps,), what it is, and a sentence about it."""
    if clock is None:
        said = "The clock is the position in the sequence, from 0 at its start to 1 at its end."
        return positions(steps), ClockInfo("position in the sequence", "position"), said
    if clock in DERIVED and clock not in table.column_names:
        values, info = _derive(clock, time, moments)
        return values[steps.rows], info, f"The clock is the {info.name}, read from {quoted([time])}."
    values, info = _read_column(table, clock)
    return steps.pick(clock, values), info, f"The clock is {quoted([clock])}{_in_unit(info)}."


def positions(steps: Steps) -> np.ndarray:
    """From 0 at the start of each sequence to 1 at its end: shape (steps,)."""
    counts = np.bincount(steps.sequence)
    place = np.arange(len(steps.sequence)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place / np.maximum(counts - 1, 1)[steps.sequence]


def _derive(clock: str, time: str | None, moments: Moments | None) -> tuple[np.ndarray, ClockInfo]:
    if moments is None or moments.local is None:
        got = f"the numbers of {quoted([time])}" if time else "the order of the rows"
        raise ValueError(
            f"The clock {clock} needs a time column of dates and times. Time is {got}. Name such a column with the "
            "option time, or a clock column of your own."
        )
    if clock == "hour_of_day":
        if not moments.has_hours:
            raise ValueError(f"The clock hour_of_day needs times with hours. {quoted([time])} holds dates alone.")
        return (moments.local % DAY) / (DAY / 24), ClockInfo("hour of day", clock, "h", 24.0)
    if clock == "day_of_week":
        monday = 3 * DAY  # 1 January 1970 was a Thursday
        info = ClockInfo("day of the week (0 is Monday)", clock, "days", 7.0)
        return ((moments.local + monday) % (7 * DAY)) / DAY, info
    return (moments.local - moments.local.min()) / DAY, ClockInfo("days since the start", clock, "days")


def _read_column(table: pa.Table, name: str) -> tuple[np.ndarray, ClockInfo]:
    array = whole(table[name])
    if pa.types.is_time(array.type):
        micro = array.cast(pa.time64("us"), safe=False).cast(pa.int64())
        series = nw.from_native(pa.table({name: micro}))[name]
        return read_numbers(series, "clock") / (DAY / 24), ClockInfo(name, "column", "h", 24.0)
    if is_moment(array.type):
        if array.null_count:
            raise ValueError(
                f"The clock column {quoted([name])} must be given in every row. {array.null_count} are empty."
            )
        local = read_moments(name, array).local
        assert local is not None
        return (local - local.min()) / DAY, ClockInfo(name, "column", "days")
    values = read_numbers(nw.from_native(table.select([name]))[name], "clock")
    if means(name, HOURS) and values.min() >= 0 and values.max() <= 24:
        return values % 24, ClockInfo(name, "hour_of_day", "h", 24.0)
    return values, ClockInfo(name, "column")


def _in_unit(info: ClockInfo) -> str:
    unit = {"h": ", in hours of the day", "days": ", in days since the earliest"}.get(info.unit, "")
    return unit
