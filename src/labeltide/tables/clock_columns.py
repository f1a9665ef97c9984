"""The clocks of every step: columns, parts of the time, or the position in the sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Protocol

import numpy as np
import pyarrow as pa

from labeltide.tables.columns import read_numbers
from labeltide.tables.intake import Column, is_moment, whole
from labeltide.tables.moments import DAY, Moments, read_moments
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.steps import Steps
from labeltide.tables.vocabulary import means
from labeltide.tables.wording import quoted

HOURS = frozenset(("hour", "hourofday", "hours", "clockhour"))
PARTS = 24  # of one clock, within each of which another must still move
STILL = 0.01  # of a clock's variance that is left there: it does not


@dataclass(frozen=True)
class ClockInfo:
    """What the clock counts."""

    name: str
    kind: str  # position, hour_of_day, day_of_week, days or column
    unit: str = ""
    period: float | None = None  # where it starts again


def read_clocks(
    table: pa.Table, clocks: Sequence[str], time: str | None, moments: Moments | None, steps: Steps
) -> tuple[np.ndarray, tuple[ClockInfo, ...], list[str]]:
    """The moments of every step, float64 of shape (steps,) or (steps, clocks), what they are, and what to say."""
    read = [_read_clock(table, clock, time, moments, steps) for clock in clocks or ("position",)]
    if len(read) == 1:
        ((values, info, what),) = read
        return values, (info,), [f"The clock is {what}"]
    for leader, other in permutations(range(len(read)), 2):
        if _moves_with(read[other], read[leader]):
            raise ValueError(
                f"Several clocks must differ, or their effects cannot be told apart. Where {quoted([clocks[leader]])} "
                f"stands, {quoted([clocks[other]])} always stands alike. Leave one of them out."
            )
    infos = tuple(info for _, info, _ in read)
    said = [f"One of the clocks, whose effects add up, is {what}" for _, _, what in read]
    return np.stack([values for values, _, _ in read], -1), infos, said


class ReadSteps(Protocol):
    """A part of a table whose rows were found to be steps."""

    @property
    def table(self) -> pa.Table: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def moments(self) -> Moments | None: ...
    @property
    def positions(self) -> np.ndarray: ...


def read_known_clocks(
    columns: RoleColumns, infos: Sequence[ClockInfo], read: ReadSteps, earliest: int | None
) -> np.ndarray:
    """The moments of every step of a part of a table, by what is known of the clocks of the whole: see `read_clocks`.

    `earliest` is the least time of the whole table, from which days are counted.
    """
    values = []
    for clock, info in zip(columns.clock or ["position"], infos, strict=True):
        if clock in read.table.column_names:
            moments = _read_known_column(read.table, clock, info)
            values.append(read.steps.pick(clock, moments))
        elif clock == "position":
            values.append(read.positions)
        else:
            moments, _ = _derive(clock, columns.time, read.moments)
            if clock == "days" and read.moments is not None and read.moments.local is not None:
                moments = moments + (read.moments.local.min() - (earliest or 0)) / DAY
            values.append(moments[read.steps.rows])
    return values[0] if len(values) == 1 else np.stack(values, -1)


def _read_known_column(table: pa.Table, name: str, info: ClockInfo) -> np.ndarray:
    if is_moment(table[name].type):
        raise ValueError(
            f"In a table of this size the clock column {quoted([name])} must hold numbers or hours of the day. Got "
            f"{table[name].type}. Name it as the time, with the clock days."
        )
    values, found = _read_column(table, name)
    return values if info.period is None or found.period is not None else values % info.period


def _read_clock(
    table: pa.Table, clock: str, time: str | None, moments: Moments | None, steps: Steps
) -> tuple[np.ndarray, ClockInfo, str]:
    """One clock, float64 of shape (steps,), what it is, and the end of a sentence about it."""
    if clock in table.column_names:
        values, info = _read_column(table, clock)
        return steps.pick(clock, values), info, f"{quoted([clock])}{_in_unit(info)}."
    if clock == "position":
        what = "the position in the sequence, from 0 at its start to 1 at its end."
        return positions(steps), ClockInfo("position in the sequence", clock), what
    values, info = _derive(clock, time, moments)
    return values[steps.rows], info, f"the {info.name}, read from {quoted([time])}."


def _moves_with(clock: tuple[np.ndarray, ClockInfo, str], other: tuple[np.ndarray, ClockInfo, str]) -> bool:
    """Whether a clock is nearly a function of another: its variance within equal bins of the other is below STILL.

    Periodic clocks are compared as points on the unit circle.
    """
    values, info, _ = clock
    angle = 2 * np.pi * values / (info.period or 1)
    axes = [values] if info.period is None else [np.cos(angle), np.sin(angle)]
    low, high = other[0].min(), other[0].max()
    part = np.minimum((other[0] - low) / ((high - low) or 1) * PARTS, PARTS - 1).astype(np.int64)
    counts = np.bincount(part)
    means = [(np.bincount(part, axis) / np.maximum(counts, 1))[part] for axis in axes]
    left = sum(float(np.square(axis - mean).sum()) for axis, mean in zip(axes, means, strict=True))
    return left <= STILL * sum(float(np.square(axis - axis.mean()).sum()) for axis in axes)


def positions(steps: Steps) -> np.ndarray:
    """From 0 at the start of each sequence to 1 at its end: shape (steps,)."""
    place = np.arange(len(steps.sequence)) - steps.first
    return place / np.maximum(steps.counts - 1, 1)[steps.sequence]


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
        return read_numbers(Column.of_array(name, micro), "clock") / (DAY / 24), ClockInfo(name, "column", "h", 24.0)
    if is_moment(array.type):
        if array.null_count:
            raise ValueError(
                f"The clock column {quoted([name])} must be given in every row. {array.null_count} are empty."
            )
        local = read_moments(name, array).local
        assert local is not None
        return (local - local.min()) / DAY, ClockInfo(name, "column", "days")
    values = read_numbers(Column.of_array(name, array), "clock")
    if means(name, HOURS) and values.min() >= 0 and values.max() <= 24:
        return values % 24, ClockInfo(name, "hour_of_day", "h", 24.0)
    return values, ClockInfo(name, "column")


def _in_unit(info: ClockInfo) -> str:
    unit = {"h": ", in hours of the day", "days": ", in days since the earliest"}.get(info.unit, "")
    return unit
