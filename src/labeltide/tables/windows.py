"""From a table to the fields of `Sequences`: one table row per step (and annotator), in any order."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._validation import check_clock, check_number, steps_mask
from labeltide.tables.columns import (
    Column,
    FactorizedLabels,
    Steps,
    factorize_labels,
    factorize_times,
    find_steps,
    group_rows,
    is_moment,
    load_columns,
    number_column,
    open_table,
    whole,
)
from labeltide.tables.roles import ROLES, Labels, check_roles, columns_of_role
from labeltide.tables.rows import common_classes
from labeltide.tables.tidy import drop_missing, read_written_names
from labeltide.tables.times import DAY, Moments, read_moments
from labeltide.tables.words import means, quoted


def read_sequences(
    table: Any, *, window: int | None, offset: int, keep_tail: bool, missing: Labels, **named: Any
) -> dict[str, Any]:
    """The fields of `Sequences`; `named` are the columns of each role, as `Sequences.from_table` takes them."""
    if window is not None:
        check_number("window", window, 1, whole=True)
    check_number("offset", offset, 0, whole=True)
    opened = open_table(table)
    roles = {role: columns_of_role(role, named[role]) for role in ROLES}
    if named["zscore"] == "sequence" and "sequence" not in opened.names:
        roles["zscore"] = roles["sequence"]
    check_roles(roles, opened.names)
    columns = load_columns(opened, list(dict.fromkeys(name for names in roles.values() for name in names)))
    names, others = [*roles["label"], *roles["clean"]], [*roles["sequence"], *roles["annotator"]]
    written, messages = read_written_names(opened.written, names, others, missing)
    columns |= {name: Column.of_array(name, array) for name, array in written.items()}
    if messages and missing is None:
        warnings.warn(" ".join(messages), UserWarning, stacklevel=3)
    steps = find_steps(columns, roles, isinstance(named["sequence"], str))
    windows = cut_consecutive(steps.counts, window, offset, keep_tail)
    lengths, n_steps = windows.lengths, windows.window
    real = steps_mask(lengths, n_steps)
    index = windows.filled_index(n_steps)  # clock and times hold real moments on padding too
    label = named["label"]
    parts = drop_missing([factorize_labels(columns[name]) for name in names], missing)
    recorded, *known = [FactorizedLabels(*part) for part in parts]
    if not len(recorded.distinct):
        raise ValueError(f"The label column {label!r} holds no label at all: every row is null, NaN or missing.")
    classes = common_classes([recorded, *known], f"The label column {label!r}")
    n_annotators = len(steps.annotators) if steps.annotators is not None else 1
    labels = steps.spread(recorded.encode(classes), steps.annotator_of_row, n_annotators)
    clean = steps.pick(named["clean"], known[0].encode(classes)) if known else None
    numbers = [steps.pick(name, number_column(columns[name], "feature")) for name in roles["features"]]
    if roles["zscore"]:
        group = steps.pick(roles["zscore"][0], group_rows(columns, roles["zscore"], "zscore")[0])
        numbers = [_zscore(values, group) for values in numbers]
    features = np.stack([values.astype(np.float32) for values in numbers], axis=1)[index]
    features[~real] = 0
    clock = check_clock(None, lengths, n_steps)
    for name in roles["clock"]:
        array = columns[name].array
        if array is not None and is_moment(array.type):
            moments, _ = factorize_times(columns[name], "clock")
            values = (moments - moments.min()) / np.timedelta64(1, "D")
        else:
            values = number_column(columns[name], "clock")
        clock = steps.pick(name, values)[index]
    return {
        "features": features,
        "labels": np.where(real[..., None], labels[index], np.int8(-1)),
        "lengths": lengths,
        "clock": clock,
        "ids": tuple(steps.ids[code] for code in windows.groups),
        "classes": classes,
        "clean_labels": None if clean is None else np.where(real, clean[index], np.int8(-1)),
        "times": steps.times[index],
        "annotators": steps.annotators,
    }


def _zscore(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Subtract the mean of the group and divide by its population standard deviation."""
    counts = np.bincount(group)
    anchor = np.empty(len(counts))
    anchor[group] = values  # any value of the group
    centred = values - anchor[group]  # a constant is now exactly zero, with no rounding left to blow up
    centred -= (np.bincount(group, centred) / counts)[group]
    scale = np.sqrt(np.bincount(group, centred**2) / counts)
    return centred / np.where(scale > 0, scale, 1)[group]


# Sequences cut into windows, consecutive or overlapping; every step belongs to one window.

WHOLE = 200  # sequences up to this long stay whole
USUAL = 100
MIN_WINDOW = 16
OVERLAP = 0.25
MAX_PADDING = 4.0  # padded steps for each real one, before the window we choose shrinks


@dataclass(frozen=True)
class Windows:
    """Where n windows lie among the steps, which are ordered by sequence, then time: int64 arrays of shape (n,)."""

    starts: np.ndarray
    lengths: np.ndarray
    # How many first steps a window shares with the one before it. A causal network knows little there, so these steps
    # belong to the window before, in training and in results: every step belongs to one window.
    warm_up: np.ndarray
    groups: np.ndarray  # the sequence of each window
    window: int

    @property
    def index(self) -> np.ndarray:
        """The step at each position of each window, -1 on padding: int64 of shape (n, steps)."""
        return np.where(steps_mask(self.lengths, int(self.lengths.max())), self.filled_index(), -1)

    def filled_index(self, n_steps: int | None = None) -> np.ndarray:
        """The step at each position of each window; padding repeats the last step: int64 of shape (n, n_steps)."""
        indices = np.arange(n_steps or int(self.lengths.max()))
        return self.starts[:, None] + np.minimum(indices, self.lengths[:, None] - 1)

    @property
    def belongs(self) -> np.ndarray:
        """True where a step belongs to the window: shape (n, steps); every step belongs to one."""
        indices = np.arange(int(self.lengths.max()))
        return (indices >= self.warm_up[:, None]) & (indices < self.lengths[:, None])


def cut_consecutive(counts: np.ndarray, window: int | None, offset: int, keep_tail: bool) -> Windows:
    """Windows one after the other, as `Sequences.from_table` describes them; None keeps sequences whole."""
    first = np.cumsum(counts) - counts
    local = []
    for count in counts.tolist():
        # With an offset and without tails we follow the paper's own cutting of its data, range(1, rows - 50, 50), so
        # that its windows come out the same: it leaves out a last window that would end exactly at the last row.
        last = count if window is None or keep_tail else count - window + (offset == 0)
        local.append(np.arange(offset, last)[:1] if window is None else np.arange(offset, last, window))
    groups = np.repeat(np.arange(len(counts)), [len(starts) for starts in local])
    if not len(groups):
        raise ValueError(
            f"No sequence is long enough: the longest has {counts.max()} steps, window={window} "
            f"and offset={offset}. Take a shorter window or offset, or keep_tail=True."
        )
    starts = first[groups] + np.concatenate(local).astype(np.int64)
    lengths = np.minimum(window or np.iinfo(np.int64).max, (first + counts)[groups] - starts)
    return Windows(starts, lengths, np.zeros_like(starts), groups, window or int(lengths.max()))


def cut_windows(counts: np.ndarray, window: int | None = None) -> Windows:
    """Overlapping windows of sequences with these numbers of steps; None chooses the window from them."""
    if window is None:
        window = choose_window(counts)
    check_number("window", window, 1, whole=True)
    window = min(int(window), int(counts.max()))
    stride, n_windows = stride_of(window), count_windows(counts, window)
    groups = np.repeat(np.arange(len(counts)), n_windows)
    turn = np.arange(len(groups)) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
    # The last window ends with the sequence: as long as the others, it knows as much as they do.
    local = np.minimum(turn * stride, np.maximum(counts[groups] - window, 0))
    before = (turn - 1) * stride + window  # where the window before ends
    return Windows(
        starts=(np.cumsum(counts) - counts)[groups] + local,
        lengths=np.minimum(counts[groups], window),
        warm_up=np.where(turn > 0, before - local, 0),
        groups=groups,
        window=window,
    )


def choose_window(counts: np.ndarray) -> int:
    """Whole sequences up to 200 steps, else 100; less where most sequences are far shorter than a few."""
    longest = int(counts.max())
    window = longest if longest <= WHOLE else USUAL
    while window > MIN_WINDOW and window * count_windows(counts, window).sum() > MAX_PADDING * counts.sum():
        window //= 2
    return window


def stride_of(window: int) -> int:
    """How many steps lie between the starts of two windows."""
    return window - int(window * OVERLAP)


def count_windows(counts: np.ndarray, window: int) -> np.ndarray:
    """The number of windows of every sequence."""
    return 1 + np.ceil(np.maximum(counts - window, 0) / stride_of(window)).astype(np.int64)


def say_windows(n_windows: int, window: int, counts: np.ndarray) -> str:
    """A sentence on how sequences with these numbers of steps are cut."""
    if n_windows == len(counts):
        return f"Sequences have up to {counts.max()} steps and stay whole."
    long = int((counts > window).sum())
    subject, verb = ("sequences", "are") if long > 1 else ("sequence", "is")
    return (
        f"{long} {subject} longer than {window} steps {verb} cut "
        "into windows of that length, which overlap by a quarter; every row gets its result from one window."
    )


# The clocks of every step: columns, parts of the time, or the position in the sequence.

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
    table: pa.Table,
    clocks: Sequence[str],
    time: str | None,
    moments: Moments | None,
    steps: Steps,
    known: Sequence[ClockInfo] | None = None,
    earliest: int | None = None,
    people: np.ndarray | None = None,
) -> tuple[np.ndarray, tuple[ClockInfo, ...], list[str]]:
    """The moments of every step, float64 of shape (steps,) or (steps, clocks), what they are, and what to say.

    With `people`, the annotator of every row, a column is read for each of them: (steps, annotators), NaN where nothing
    was recorded. Of a part of a table, `known` are the clocks of the whole, and `earliest` its least time, from which
    days count.
    """
    names = clocks or ("position",)
    infos: Sequence[ClockInfo | None] = known or [None] * len(names)
    read = [
        _read_clock(table, *each, time, moments, steps, people, earliest) for each in zip(names, infos, strict=True)
    ]
    if len(read) == 1:
        ((values, info, what),) = read
        return values, (info,), [f"The clock is {what}"]
    for leader, other in permutations(range(len(read)), 2):
        if known is None and _moves_with(read[other], read[leader]):
            raise ValueError(
                f"Several clocks must differ, or their effects cannot be distinguished. {quoted([clocks[other]])} "
                f"is nearly a function of {quoted([clocks[leader]])}. Leave one of them out."
            )
    messages = [f"One of the clocks, whose effects add up, is {what}" for _, _, what in read]
    return np.stack([values for values, _, _ in read], -1), tuple(info for _, info, _ in read), messages


def _read_clock(
    table: pa.Table,
    clock: str,
    known: ClockInfo | None,
    time: str | None,
    moments: Moments | None,
    steps: Steps,
    people: np.ndarray | None,
    earliest: int | None,
) -> tuple[np.ndarray, ClockInfo, str]:
    """One clock, float64 of shape (steps,), what it is, and the end of a sentence about it."""
    if clock in table.column_names:
        values, info = _read_column(table, clock, known)
        unit = {"h": ", in hours of the day", "days": ", in days since the earliest"}.get(info.unit, "")
        each = steps.pick(clock, values) if people is None else steps.spread(values, people, people.max() + 1, np.nan)
        return each, info, f"{quoted([clock])}{unit}."
    if clock == "position":
        what = "the position in the sequence, from 0 at its start to 1 at its end."
        return steps.positions, ClockInfo("position in the sequence", clock), what
    if moments is None or moments.local is None:
        got = f"the numbers of {quoted([time])}" if time else "the order of the rows"
        raise ValueError(
            f"The clock {clock} needs a time column of dates and times. Time is {got}. Name such a column with the "
            "option time, or a clock column of your own."
        )
    if clock == "hour_of_day":
        if not moments.has_hours:
            raise ValueError(f"The clock hour_of_day needs times with hours. {quoted([time])} holds dates alone.")
        values, info = (moments.local % DAY) / (DAY / 24), ClockInfo("hour of day", clock, "h", 24.0)
    elif clock == "day_of_week":
        values = ((moments.local + 3 * DAY) % (7 * DAY)) / DAY  # 1 January 1970 was a Thursday
        info = ClockInfo("day of the week (0 is Monday)", clock, "days", 7.0)
    else:
        start = moments.local.min() if earliest is None else earliest
        values, info = (moments.local - start) / DAY, ClockInfo("days since the start", clock, "days")
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


def _read_column(table: pa.Table, name: str, known: ClockInfo | None) -> tuple[np.ndarray, ClockInfo]:
    array = whole(table[name])
    if pa.types.is_time(array.type):
        micro = array.cast(pa.time64("us"), safe=False).cast(pa.int64())
        return number_column(Column.of_array(name, micro), "clock") / (DAY / 24), ClockInfo(name, "column", "h", 24.0)
    if is_moment(array.type):
        if known is not None:
            raise ValueError(
                f"In a table of this size the clock column {quoted([name])} must hold numbers or hours of the day. Got "
                f"{array.type}. Name it as the time, with the clock days."
            )
        if array.null_count:
            raise ValueError(
                f"The clock column {quoted([name])} must be given in every row. {array.null_count} are empty."
            )
        local = read_moments(name, array).local
        assert local is not None
        return (local - local.min()) / DAY, ClockInfo(name, "column", "days")
    values = number_column(Column.of_array(name, array), "clock")
    is_hours = means(name, HOURS) and values.min() >= 0 and values.max() <= 24
    if is_hours if known is None else known.kind == "hour_of_day":
        return values % 24, ClockInfo(name, "hour_of_day", "h", 24.0)
    return values, ClockInfo(name, "column")
