"""The first pass over a large table: counts rows, steps, sequences, classes and annotators, and checks their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import UnanswerableError, find_classes
from labeltide.auditing.streaming.row_times import time_numbers
from labeltide.auditing.streaming.step_counts import TimesBetween, TrustedSteps
from labeltide.tables.coded import code_values, label_values
from labeltide.tables.intake import whole
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.row_stream import RowStream
from labeltide.tables.table_rows import MOST_ANNOTATORS, UNNAMED
from labeltide.tables.wording import name_rows, quoted, unique_texts

ANCHOR = 4096  # steps of a sequence, after which the number of the row is noted


class UnsortedError(ValueError):
    """Rows that are not in the order of sequences and times."""


@dataclass(frozen=True)
class Survey:
    """What the first pass found.

    Attributes
    ----------
    names : one text for every sequence, in the order of the rows
    first_rows, counts : int64 arrays of shape (sequences,), the first row and the number of steps
    anchors, anchor_starts : the row of every `ANCHOR`-th step, and where those of each sequence begin
    classes : the user's own values, sorted
    class_counts : how many labels each has
    annotators : the values of the column of annotators, sorted; None without one
    earliest : the least time on the wall clock in microseconds; None where times are numbers
    unit : of the texts of times: "s", "ms" or "us"
    usual, n_gaps : the usual time between two steps, in seconds or the unit of the column, and how many times more
        lies between two; None where there are no times, or too many different ones to be counted
    trusted : how many steps have a label known to be right
    trusted_codes : the classes of these
    """

    n_rows: int
    names: pa.Array
    first_rows: np.ndarray
    counts: np.ndarray
    anchors: np.ndarray
    anchor_starts: np.ndarray
    classes: tuple[Hashable, ...]
    class_counts: np.ndarray
    annotators: pa.Array | None
    unnamed_hold_labels: bool
    earliest: int | None
    unit: str
    usual: float | None = None
    n_gaps: int | None = None
    trusted: int = 0
    trusted_codes: tuple[int, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(unique_texts(self.classes))

    def row_of_step(self, sequence: int, anchor: int) -> int:
        """The row of step `anchor * ANCHOR` of a sequence; the row after its last where there are fewer steps."""
        if anchor * ANCHOR >= self.counts[sequence]:
            after = np.append(self.first_rows, self.n_rows)
            return int(after[sequence + 1])
        return int(self.anchors[self.anchor_starts[sequence] + anchor])


@dataclass
class _State:
    """What the pass carries from one row group to the next."""

    key: tuple[Any, ...] | None = None
    time: Any = None
    step: int = -1  # of the sequence, the last one met
    people: set[int] = field(default_factory=set)  # annotators of the last step
    names: list[pa.Array] = field(default_factory=list)
    first_rows: list[np.ndarray] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    anchors: list[np.ndarray] = field(default_factory=list)
    classes: Counter[Hashable] = field(default_factory=Counter)
    annotators: dict[Any, int] = field(default_factory=dict)
    unnamed_hold_labels: bool = False
    earliest: int | None = None
    fraction: int = 1_000_000  # the greatest whole number of microseconds that divides all times
    between: TimesBetween = field(default_factory=TimesBetween)
    trusted: TrustedSteps | None = None


def survey(stream: RowStream, columns: RoleColumns, on_rows: Callable[[int], None] = lambda rows: None) -> Survey:
    """Read sequences, times, labels and annotators of all rows; unsorted rows are an `UnsortedError`."""
    state = _State(trusted=TrustedSteps(columns.trusted) if columns.trusted else None)
    single = [name for name in (columns.time, columns.annotator, columns.trusted) if name]
    wanted = [*columns.sequence, *single, *columns.label]
    for first, table in stream.read_groups(list(dict.fromkeys(wanted))):
        _take_group(state, table, first, columns)
        on_rows(first + len(table))
    if not state.counts:
        raise UnanswerableError("The table must hold at least one row. Got none.")
    return _conclude(state, stream.n_rows, columns)


def _take_group(state: _State, table: pa.Table, first: int, columns: RoleColumns) -> None:
    starts = _sequence_starts(state, table, columns.sequence)
    times = _times(state, table, columns.time)
    person = _annotators(state, table, columns.annotator)
    _labels(state, table, columns, person)
    new_step = np.ones(len(table), dtype=bool)
    if times is not None:
        before = np.append(times[:1] if state.time is None else np.asarray([state.time], times.dtype), times[:-1])
        late = np.flatnonzero((times < before) & ~starts)
        if len(late):
            raise UnsortedError(f"Times must rise within a sequence. They fall in row {first + late[0]}.")
        new_step = starts | (times != before)
        _check_repeats(state, new_step, person, first)
        with np.errstate(invalid="ignore"):
            state.between.add((times - before)[new_step & ~starts].astype(np.float64))
        state.time = times[-1]
    if state.trusted is not None:
        state.trusted.add(table[state.trusted.name], new_step, first)
    _count_steps(state, starts, new_step, first)


def _sequence_starts(state: _State, table: pa.Table, names: list[str]) -> np.ndarray:
    starts = np.zeros(len(table), dtype=bool)
    key = []
    for name in names:
        codes, values = code_values(table[name])
        if (codes < 0).any():
            rows = name_rows(np.flatnonzero(codes < 0))
            raise ValueError(f"The sequence column {quoted([name])} must be given in every row. It is null in {rows}.")
        starts[1:] |= codes[1:] != codes[:-1]
        key.append((values[int(codes[0])].as_py(), values[int(codes[-1])].as_py()))
    starts[0] = state.key is None or state.key != tuple(first for first, _ in key)
    state.key = tuple(last for _, last in key)
    places = pa.array(np.flatnonzero(starts))
    if names:
        state.names.append(join_texts([whole(table[name]).take(places) for name in names]))
    elif starts.any():
        state.names.append(pa.array(["table"]))
    return starts


def join_texts(columns: list[pa.Array]) -> pa.Array:
    """One text for each row of the columns that name a sequence."""
    texts = [column.cast(pa.string()) for column in columns]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, " / ")


def _times(state: _State, table: pa.Table, name: str | None) -> np.ndarray | None:
    if name is None:
        return None
    column = table[name]
    times = time_numbers(name, column)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        local = times
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            local = time_numbers(name, pc.local_timestamp(column))
        state.earliest = int(local.min()) if state.earliest is None else min(state.earliest, int(local.min()))
        for divisor in (1_000_000, 1000, 1):
            if state.fraction >= divisor and not (local % divisor).any():
                state.fraction = divisor
                break
    return times


def _annotators(state: _State, table: pa.Table, name: str | None) -> np.ndarray:
    if name is None:
        return np.zeros(len(table), dtype=np.int32)
    codes, values = code_values(table[name])
    known = [state.annotators.setdefault(value, len(state.annotators)) for value in values.to_pylist()]
    if len(state.annotators) > 4 * MOST_ANNOTATORS:
        raise ValueError(
            f"There can be at most {MOST_ANNOTATORS} annotators. {quoted([name])} holds more: "
            f"{quoted(list(state.annotators))}."
        )
    return np.append(np.array(known, dtype=np.int32), np.int32(-1))[codes]


def _labels(state: _State, table: pa.Table, columns: RoleColumns, person: np.ndarray) -> None:
    for name in columns.label:
        codes, of_value, distinct = label_values(table[name])
        labels = np.append(of_value, -1)[codes]
        for value, count in zip(distinct, np.bincount(labels[labels >= 0], minlength=len(distinct)), strict=True):
            state.classes[value] += int(count)
        state.unnamed_hold_labels |= bool(((person < 0) & (labels >= 0)).any())


def _check_repeats(state: _State, new_step: np.ndarray, person: np.ndarray, first: int) -> None:
    """No two rows of one sequence, time and annotator."""
    step = np.cumsum(new_step)  # 0 for rows of the step with which the group before ended
    key = step * (4 * MOST_ANNOTATORS + 2) + person
    order = np.argsort(key, kind="stable")
    again = order[1:][key[order][1:] == key[order][:-1]]
    again = again if len(again) else np.flatnonzero((step == 0) & np.isin(person, list(state.people)))
    if len(again):
        raise ValueError(
            f"Every sequence, time and annotator may occur once. An earlier row is repeated in "
            f"{name_rows(np.sort(again) + first)}. Drop the repeats, or name the column of annotators."
        )
    last = set(person[step == step[-1]].tolist())
    state.people = last | state.people if step[-1] == 0 else last


def _count_steps(state: _State, starts: np.ndarray, new_step: np.ndarray, first: int) -> None:
    """The number of steps of every sequence so far, and the rows of every `ANCHOR`-th step."""
    begins = np.flatnonzero(starts)
    rising = np.cumsum(new_step)
    base = np.zeros(len(starts), dtype=np.int64)
    base[begins] = rising[begins] - 1
    base = np.maximum.accumulate(np.where(starts, base, -1))
    step = np.where(base >= 0, rising - 1 - base, state.step + rising)  # of each row, within its sequence
    state.anchors.append(first + np.flatnonzero(new_step & (step % ANCHOR == 0)))
    state.first_rows.append(first + begins)
    ends = np.append(begins, len(starts))
    if ends[0] > 0 and state.counts:
        state.counts[-1] = int(step[ends[0] - 1]) + 1
    state.counts += (step[ends[1:] - 1] + 1).tolist()
    state.step = int(step[-1])


def _conclude(state: _State, n_rows: int, columns: RoleColumns) -> Survey:
    names = pa.concat_arrays(state.names)
    if pc.count_distinct(names).as_py() < len(names):
        raise UnsortedError("The rows of a sequence must follow one another. Some sequences occur in several places.")
    if not state.classes and columns.label:
        raise UnanswerableError(f"The label column {quoted(columns.label)} must hold labels. Every row is empty or -1.")
    counts = np.array(state.counts, dtype=np.int64)
    n_anchors = -(-counts // ANCHOR)
    values = np.fromiter(state.classes, dtype=object, count=len(state.classes))
    classes = _sorted_classes(values, columns)
    usual, n_gaps = state.between.find_gaps() or (None, None)
    if usual is not None and state.earliest is not None:
        usual /= 1e6  # seconds
    return Survey(
        n_rows=n_rows,
        names=names,
        first_rows=np.concatenate(state.first_rows),
        counts=counts,
        anchors=np.concatenate(state.anchors),
        anchor_starts=np.cumsum(n_anchors) - n_anchors,
        classes=classes,
        class_counts=np.array([state.classes[value] for value in classes], dtype=np.int64),
        annotators=_sorted_annotators(state, columns),
        unnamed_hold_labels=state.unnamed_hold_labels,
        earliest=state.earliest,
        unit={1_000_000: "s", 1000: "ms"}.get(state.fraction, "us"),
        usual=usual,
        n_gaps=n_gaps,
        trusted=state.trusted.count if state.trusted else 0,
        trusted_codes=tuple(state.trusted.codes(classes)) if state.trusted else (),
    )


def _sorted_classes(values: np.ndarray, columns: RoleColumns) -> tuple[Hashable, ...]:
    if not columns.label:
        return ()
    try:
        return find_classes(values, np.ones(len(values), dtype=bool), f"The label column {quoted(columns.label)}")
    except ValueError as error:
        raise UnanswerableError(str(error)) from None


def _sorted_annotators(state: _State, columns: RoleColumns) -> pa.Array | None:
    if columns.annotator is None:
        return None
    named = [value for value in state.annotators if value is not None]
    if state.unnamed_hold_labels:
        named = [*map(str, named), UNNAMED]
    if len(named) > MOST_ANNOTATORS:
        raise ValueError(f"There can be at most {MOST_ANNOTATORS} annotators. Got {len(named)}: {quoted(named)}.")
    return pa.array(sorted(named)) if named else None
