"""Open a large table: find its columns, put its rows in order where they are not, and survey them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide._files import import_extra, write_atomically
from labeltide._validation import UnanswerableError, encode_labels, find_classes
from labeltide.auditing.apply import DecidedLabels, trust_decided
from labeltide.auditing.checks import find_rare
from labeltide.auditing.fitting import TableSize
from labeltide.auditing.reading import AuditInput, audit_window
from labeltide.tables.columns import (
    add_columns,
    code_values,
    is_number,
    is_text,
    load_table,
    open_table,
    read_recorded,
    whole,
)
from labeltide.tables.features import Encoder
from labeltide.tables.files import FileSet, csv_batches, open_files
from labeltide.tables.roles import Reading, Request, RoleColumns, find_columns
from labeltide.tables.rows import (
    MAX_ANNOTATORS,
    UNNAMED,
    describe_trusted,
    find_rows,
    keep_rows,
    merge_trusted,
    read_table_labels,
    read_trusted,
)
from labeltide.tables.stream import RowStream
from labeltide.tables.tidy import NOTHING, TableCounts, Tidying
from labeltide.tables.times import MINUTE, Moments, written_offset
from labeltide.tables.windows import ClockInfo, Windows, count_windows, cut_windows, stride_of
from labeltide.tables.words import is_number_of_row, name_rows, quoted, unique_texts

HEAD_ROWS = 100_000  # from which columns are found
OnRows = Callable[[int], None]


def find_roles(files: FileSet, request: Request, *, labelled: bool = True) -> RoleColumns:
    """Which column plays which role, from the first rows."""
    head, held = [], 0
    for batch in read_batches(files, files.schema.names):
        head.append(batch)
        held += len(batch)
        if held >= HEAD_ROWS:
            break
    table = pa.Table.from_batches(head).drop_columns([ROW]) if head else files.schema.empty_table()
    return find_columns(load_table(open_table(table)), request, labelled=labelled)


def count_columns(
    files: FileSet, roles: RoleColumns, names: set[str] | None, on_rows: OnRows, kept: np.ndarray | None = None
) -> TableCounts:
    """Count what some columns hold, or all, in one pass over the files as they were given; of all rows or of some."""
    counts, done = TableCounts(), 0
    columns = [name for name in files.schema.names if names is None or name in names]
    for batch in read_batches(files, columns) if kept is None else _prepared_batches(files, columns, kept, {}):
        table = pa.Table.from_batches([batch]).drop_columns([ROW])
        if len(table):
            counts.add(load_table(open_table(table)), roles)
        done += len(table)
        on_rows(done)
    return counts


def used_columns(files: FileSet, roles: RoleColumns) -> list[str]:
    """The columns to read, in the order of the files."""
    single = [roles.time, roles.annotator, roles.trusted]
    wanted = {*roles.sequence, *roles.label, *roles.clock, *roles.features, *single}
    return [name for name in files.schema.names if name in wanted]


def needs_copy(files: FileSet) -> bool:
    """Whether ranges of rows cannot be read from the files as they are: CSV, or parquet with huge row groups."""
    return files.kind == "csv" or not RowStream(files, [], []).is_fine


def open_layout(
    prepared: PreparedTable, window: int | None, work: Path, on_rows: OnRows, tidy: Tidying
) -> tuple[Layout, list[str]]:
    """The rows in order, surveyed and cut into chunks, and sentences about what had to be done."""
    roles, files = prepared.roles, prepared.files
    columns = used_columns(files, roles)
    kind = None if roles.time is None else _kind(files, roles.time)
    if kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None:
        tidy = replace(tidy, zones={str(roles.time): kind.tz})
    sorted_path, copy_path = work / "sorted.parquet", work / "table.parquet"
    coded = [name for name in (*roles.sequence, *roles.label, roles.annotator) if name and is_text(_kind(files, name))]
    numbered, messages, found = [*columns, ROW], list[str](), None
    if not sorted_path.exists():
        if needs_copy(files):
            if not copy_path.exists():
                write_atomically(copy_path, lambda path: write_batches(read_batches(files, columns), path, on_rows))
            files = open_files(copy_path)
        given = numbered if files.paths == (str(copy_path),) else columns
        stream = RowStream(files, given, coded, tidy)
        try:
            found = survey(stream, roles, on_rows)
        except UnsortedError:
            write_atomically(sorted_path, lambda path: write_sorted(files, given, roles, path, work / "sort", tidy))
    if found is None:
        messages.append("The rows were not ordered by sequence and time, so they were sorted on disk.")
        stream = RowStream(open_files(sorted_path), numbered, coded, tidy)
        found = survey(stream, roles, on_rows)
    window = audit_window(found.counts) if window is None else min(window, int(found.counts.max()))
    return Layout(stream, prepared, found, window, plan_chunks(found, window)), messages


class PreparedTable(NamedTuple):
    """A large table whose rows were prepared in a copy on disk, where options or written dates ask for it."""

    files: FileSet
    roles: RoleColumns
    shown: RoleColumns  # of the table as it was given
    row_messages: tuple[str, ...] = ()  # on rows left out
    time_messages: tuple[str, ...] | None = None  # on times; None where the windows to learn from tell
    decisions: dict[str, Any] | None = None  # how many settled labels were used and left out
    kept: np.ndarray | None = None  # the rows that were not left out; None where all were kept


SETTLED = "labeltide settled label"  # added: labels that reviewers settled, which are trusted
DIGEST = "labeltide digest"


def prepare_rows(
    files: FileSet,
    roles: RoleColumns,
    tidy: Tidying,
    how: Reading,
    work: Path,
    on_rows: OnRows,
    decided: tuple[DecidedLabels, Any] | None = None,
) -> PreparedTable:
    """Leave out bad rows, convert times and add decisions as for tables in memory, in a copy of the table.

    Sequences, times, annotators and labels of all rows are held in memory meanwhile. `decided` holds the labels that
    reviewers settled, and the table as it was given.
    """
    if files.kind == "csv":  # whole numbers of features as numbers: later rows may hold fractions
        whole_numbers = {name for name in roles.features if _kind(files, name) == pa.int64()}
        kinds = [(each.name, pa.float64() if each.name in whole_numbers else each.type) for each in files.schema]
        files = replace(files, schema=pa.schema(kinds))
    is_written = roles.time is not None and is_text(_kind(files, roles.time))
    is_written &= roles.time not in (*tidy.as_numbers, *tidy.in_text)
    if not is_written and how == Reading(missing=how.missing, classes=how.classes) and decided is None:
        return PreparedTable(files, roles, roles)
    given = _read_keys(files, roles, how.drop_bad_rows)
    given, index, row_messages = keep_rows(given, roles, how)
    loaded = tidy(given)
    labels = read_table_labels(loaded, roles.label)
    rows = find_rows(loaded, roles, labels.codes, how.timezone, index)
    replaced: dict[str, pa.Array] = {}
    new_roles, time_messages, found = roles, None, None
    if roles.time is not None and rows.moments is not None and (is_written or how.timezone is not None):
        replaced[roles.time], time_messages = _time_column(roles.time, rows.moments), rows.moments.messages
    if decided is not None:
        trusted = read_trusted(loaded, roles.trusted, labels.classes, rows.steps) if roles.trusted else None
        table = decided[1] if isinstance(decided[1], str | Path) and Path(decided[1]).is_file() else None
        trusted, found = trust_decided(rows, labels.names, trusted, decided[0], table)
        new_roles = replace(roles, trusted=roles.trusted or SETTLED)
        settled = trusted[rows.steps.step_of_row]
        cells = [np.argwhere(labels.codes == code)[0] for code in range(len(labels.classes))]  # one of each class
        values = [loaded[roles.label[column]][int(row)].as_py() for row, column in cells]
        of_class = pa.array(values, loaded[roles.label[0]].type)
        replaced[roles.trusted or SETTLED] = of_class.take(pa.array(settled, mask=settled < 0))
    kept_rows = None if index is None else np.flatnonzero(index >= 0)
    path = work / "table.parquet"
    if not path.exists():
        batches = _prepared_batches(files, used_columns(files, roles), kept_rows, replaced)
        write_atomically(path, lambda draft: write_batches(batches, draft, on_rows))
    return PreparedTable(open_files(path), new_roles, roles, row_messages, time_messages, found, kept_rows)


def _read_keys(files: FileSet, roles: RoleColumns, with_digest: bool) -> pa.Table:
    """Sequences, times, annotators and labels of all rows; a digest stands for the other columns."""
    single = [roles.time, roles.annotator, roles.trusted]
    keys = list(dict.fromkeys([*roles.sequence, *(name for name in single if name), *roles.label]))
    columns = files.schema.names if with_digest else keys
    parts = []
    for batch in read_batches(files, [name for name in files.schema.names if name in columns]):
        part = pa.Table.from_batches([batch])
        digest = digest_of_rows(part.drop_columns([ROW, *keys])) if with_digest else None
        part = part.select(keys)
        parts.append(part if digest is None else part.append_column(DIGEST, pa.array(digest)))
    return load_table(open_table(pa.concat_tables(parts, promote_options="permissive")))


def digest_of_rows(table: pa.Table) -> np.ndarray:
    """One number for the values of each row, the same for equal rows in this process: uint64 of shape (rows,)."""
    joined = np.zeros(len(table), dtype=np.uint64)
    for name in table.column_names:
        if is_number_of_row(name):
            continue
        coded = whole(table[name]).dictionary_encode(null_encoding="encode")
        values = coded.dictionary
        if is_number(values.type):
            numbers = values.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
            bits = numbers.view(np.uint64)
        else:
            bits = np.array([hash(str(value)) for value in values.to_pylist()], np.int64).view(np.uint64)
        joined = mix(joined ^ bits[coded.indices.to_numpy()], np.zeros(1, dtype=np.uint64))
    return joined


def mix(name: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The hash of a window (SplitMix64, Steele and others 2014) from those of its sequence's name and its number."""
    value = name + (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _time_column(name: str, moments: Moments) -> pa.Array:
    """Times from which the order and the wall clock follow."""
    order = moments.order
    if moments.local is None or not pa.types.is_timestamp(order.type):
        return order
    if not moments.has_hours:
        return order.cast(pa.date32())
    if order.type.tz is None:
        return order
    ahead = np.unique(moments.local - order.cast(pa.int64()).to_numpy(zero_copy_only=False))
    by_zone = pc.local_timestamp(order).cast(pa.int64()).to_numpy(zero_copy_only=False)
    if np.array_equal(by_zone, moments.local):
        return order
    if len(ahead) > 1:
        raise ValueError(
            f"The time column {quoted([name])} of a table of this size must have one offset from UTC, or a time zone: "
            "name it with the option timezone (--timezone Europe/Berlin)."
        )
    return order.cast(pa.timestamp("us", written_offset(int(ahead[0]) // MINUTE)))


def _prepared_batches(
    files: FileSet, columns: list[str], kept: np.ndarray | None, replaced: dict[str, pa.Array]
) -> Iterator[pa.RecordBatch]:
    """The rows that are kept, with other columns in place of some; `replaced` has a value for each of these rows."""
    done = 0
    for batch in read_batches(files, columns):
        if kept is not None:
            first, last = np.searchsorted(kept, [batch[ROW][0].as_py(), batch[ROW][-1].as_py() + 1])
            batch = batch.take(pa.array(kept[first:last] - batch[ROW][0].as_py()))
        values = dict(zip(batch.schema.names, batch.columns, strict=True))
        values |= {name: column.slice(done, len(batch)) for name, column in replaced.items()}
        done += len(batch)
        if len(batch):
            yield pa.record_batch(list(values.values()), names=list(values))


def _kind(files: FileSet, name: str) -> pa.DataType:
    return files.schema.field(name).type


MAX_LENGTHS = 10_000  # different times between two steps that are counted


def _find_gaps(between: Counter[float] | None) -> tuple[float | None, int | None]:
    """The usual time between two steps, their median, and how often more than one of these lies between two.

    None where times were not counted, or have no usual length.
    """
    if not between:
        return None, None
    lengths = np.array(sorted(between))
    counts = np.array([between[length] for length in lengths.tolist()])
    ends = np.cumsum(counts)
    middles = np.searchsorted(ends, [(ends[-1] - 1) // 2, ends[-1] // 2], side="right")
    usual = float(lengths[middles].mean())
    return (usual, int(counts[np.rint(lengths / usual) > 1].sum())) if 0 < usual < np.inf else (None, None)


ANCHOR = 4096  # steps of a sequence, after which the number of the row is noted


class UnsortedError(ValueError):
    """Rows that are not in the order of sequences and times."""


@dataclass(frozen=True)
class Survey:
    """What the first pass found."""

    n_rows: int
    names: pa.Array  # one text for every sequence, in the order of the rows
    first_rows: np.ndarray  # int64 (sequences,)
    counts: np.ndarray  # int64 (sequences,), the number of steps
    anchors: np.ndarray  # the row of every `ANCHOR`-th step
    anchor_starts: np.ndarray  # (sequences,), where the anchors of each begin
    classes: tuple[Hashable, ...]  # the user's own values, sorted
    class_counts: np.ndarray  # how many labels each has
    annotators: pa.Array | None  # the values of their column, sorted; None without one
    unnamed_hold_labels: bool
    earliest: int | None  # the least time on the wall clock in microseconds; None where times are numbers
    unit: str  # of the texts of times: "s", "ms" or "us"
    offsets_vary: bool  # whether the wall clock is not always as far ahead of UTC
    usual: float | None  # time between two steps, in seconds or the unit of the column; None: no times, or too many
    n_gaps: int | None  # how often more lies between two steps
    trusted: int  # steps with a label known to be right
    trusted_codes: tuple[int, ...]  # the classes of these

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
    n_steps: int = 0  # of all sequences so far
    first_step: int = 0  # of the present sequence
    names: list[pa.Array] = field(default_factory=list)
    first_rows: list[np.ndarray] = field(default_factory=list)
    first_steps: list[np.ndarray] = field(default_factory=list)
    anchors: list[np.ndarray] = field(default_factory=list)
    classes: Counter[Hashable] = field(default_factory=Counter)
    annotators: dict[Any, int] = field(default_factory=dict)
    unnamed_hold_labels: bool = False
    earliest: int | None = None
    fraction: int = 1_000_000  # microseconds, the greatest common divisor of all times
    offsets: set[int] = field(default_factory=set)  # least and largest, of the wall clock from UTC
    between: Counter[float] | None = field(default_factory=Counter)  # times between steps; None: too many to count
    trusted: int = 0  # steps with a label known to be right
    trusted_values: dict[Hashable, None] = field(default_factory=dict)


def survey(stream: RowStream, columns: RoleColumns, on_rows: Callable[[int], None] = lambda rows: None) -> Survey:
    """Read sequences, times, labels and annotators of all rows; unsorted rows are an `UnsortedError`."""
    state = _State()
    single = [name for name in (columns.time, columns.annotator, columns.trusted) if name]
    wanted = [*columns.sequence, *single, *columns.label]
    groups = stream.read_groups(list(dict.fromkeys(wanted)))
    for first, table in groups if columns.time is None else _whole_steps(groups, columns.sequence, columns.time):
        _take_group(state, table, first, columns)
        on_rows(first + len(table))
    names = pa.concat_arrays(state.names)
    if pc.count_distinct(names).as_py() < len(names):
        raise UnsortedError(
            "The rows of a sequence must follow one another. Some sequences occur in several parts of the table."
        )
    subject = f"The label column {quoted(columns.label)}"
    if not state.classes and columns.label:
        raise UnanswerableError(f"{subject} must hold labels. Every row is empty.")
    classes: tuple[Hashable, ...] = ()
    if columns.label:
        values = np.fromiter(state.classes, dtype=object, count=len(state.classes))
        try:
            classes = find_classes(values, np.ones(len(values), dtype=bool), subject)
        except ValueError as error:
            raise UnanswerableError(str(error)) from None
    trusted_codes: tuple[int, ...] = ()
    if columns.trusted:
        describe_trusted(state.trusted, columns.trusted)  # refuses a column without any
        values = np.fromiter(state.trusted_values, dtype=object, count=len(state.trusted_values))
        subject = f"The trusted column {quoted([columns.trusted])}"
        trusted_codes = tuple(encode_labels(values, np.ones(len(values), dtype=bool), classes, subject).tolist())
    named = [value for value in state.annotators if value is not None]
    if state.unnamed_hold_labels:
        named = [*map(str, named), UNNAMED]
    if len(named) > MAX_ANNOTATORS:
        raise ValueError(f"There can be at most {MAX_ANNOTATORS} annotators. Got {len(named)}: {quoted(named)}.")
    counts = np.diff(np.append(np.concatenate(state.first_steps), state.n_steps))
    n_anchors = -(-counts // ANCHOR)
    usual, n_gaps = _find_gaps(state.between)
    if usual is not None and state.earliest is not None:
        usual /= 1e6  # seconds
    return Survey(
        n_rows=stream.n_rows,
        names=names,
        first_rows=np.concatenate(state.first_rows),
        counts=counts,
        anchors=np.concatenate(state.anchors),
        anchor_starts=np.cumsum(n_anchors) - n_anchors,
        classes=classes,
        class_counts=np.array([state.classes[value] for value in classes], dtype=np.int64),
        annotators=pa.array(sorted(named)) if named else None,
        unnamed_hold_labels=state.unnamed_hold_labels,
        earliest=state.earliest,
        unit="us" if state.fraction % 1000 else "s" if state.fraction == 1_000_000 else "ms",
        offsets_vary=len(state.offsets) > 1,
        usual=usual,
        n_gaps=n_gaps,
        trusted=state.trusted,
        trusted_codes=trusted_codes,
    )


def _whole_steps(
    groups: Iterable[tuple[int, pa.Table]], sequence: list[str], time: str
) -> Iterator[tuple[int, pa.Table]]:
    """The same rows in other groups, which end where a step does."""
    held: pa.Table | None = None
    for first, group in groups:
        table = group
        if held is not None:
            first -= len(held)
            table = pa.concat_tables([held, group]).unify_dictionaries().combine_chunks()
        keys = [time_numbers(time, table[time]), *(code_values(table[name])[0] for name in sequence)]
        others = np.flatnonzero(np.logical_or.reduce([key != key[-1] for key in keys]))
        end = int(others[-1]) + 1 if len(others) else 0
        held = table.slice(end)
        if end:
            yield first, table.slice(0, end)
        first_held = first + end
    if held is not None and len(held):
        yield first_held, held


def _take_group(state: _State, table: pa.Table, first: int, columns: RoleColumns) -> None:
    starts = _sequence_starts(state, table, columns.sequence)
    times = _times(state, table, columns.time)
    person = _annotators(state, table, columns.annotator)
    for name in columns.label:
        labels, distinct = read_recorded(table[name])
        for value, count in zip(distinct, np.bincount(labels[labels >= 0], minlength=len(distinct)), strict=True):
            state.classes[value] += int(count)
        state.unnamed_hold_labels |= bool(((person < 0) & (labels >= 0)).any())
    new_step = np.ones(len(table), dtype=bool)
    if times is not None:
        before = np.append(times[:1] if state.time is None else np.asarray([state.time], times.dtype), times[:-1])
        late = np.flatnonzero((times < before) & ~starts)
        if len(late):
            raise UnsortedError(f"Times must increase within a sequence. They decrease in row {first + late[0]}.")
        new_step = starts | (times != before)
        key = np.cumsum(new_step) * (4 * MAX_ANNOTATORS + 2) + person
        order = np.argsort(key, kind="stable")
        again = order[1:][key[order][1:] == key[order][:-1]]
        if len(again):
            raise ValueError(
                f"Each combination of sequence, time and annotator may occur only once. An earlier one is repeated in "
                f"{name_rows(np.sort(again) + first)}. Drop the repeats, or name the column of annotators."
            )
        with np.errstate(invalid="ignore"):
            spent = (times - before)[new_step & ~starts].astype(np.float64)
        if state.between is not None:
            lengths, counts = np.unique(spent, return_counts=True)
            if len(lengths) <= MAX_LENGTHS:
                state.between.update(dict(zip(lengths.tolist(), counts.tolist(), strict=True)))
            if max(len(lengths), len(state.between)) > MAX_LENGTHS:
                state.between = None
        state.time = times[-1]
    if columns.trusted is not None:
        codes, distinct = read_recorded(table[columns.trusted])
        known = merge_trusted(columns.trusted, codes, np.cumsum(new_step) - 1, first)
        state.trusted += int((known >= 0).sum())
        state.trusted_values |= dict.fromkeys(distinct)
    step, begins = state.n_steps + np.cumsum(new_step) - 1, np.flatnonzero(starts)
    first_step = np.append(state.first_step, step[begins])[np.cumsum(starts)]  # of the sequence of each row
    state.anchors.append(first + np.flatnonzero(new_step & ((step - first_step) % ANCHOR == 0)))
    state.first_rows.append(first + begins)
    state.first_steps.append(step[begins])
    state.n_steps, state.first_step = int(step[-1]) + 1, int(first_step[-1])


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
    begins = pa.array(np.flatnonzero(starts))
    if names:
        texts = [whole(table[name]).take(begins).cast(pa.string()) for name in names]
        state.names.append(texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, " / "))
    elif starts.any():
        state.names.append(pa.array(["table"]))
    return starts


def _times(state: _State, table: pa.Table, name: str | None) -> np.ndarray | None:
    if name is None:
        return None
    column = table[name]
    times = time_numbers(name, column)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        local = times
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            local = time_numbers(name, pc.local_timestamp(column))
            ahead = local - times
            state.offsets |= {int(ahead.min()), int(ahead.max())}
        state.earliest = int(local.min()) if state.earliest is None else min(state.earliest, int(local.min()))
        state.fraction = int(np.gcd.reduce(local, initial=state.fraction))
    return times


def _annotators(state: _State, table: pa.Table, name: str | None) -> np.ndarray:
    if name is None:
        return np.zeros(len(table), dtype=np.int32)
    codes, values = code_values(table[name])
    known = [state.annotators.setdefault(value, len(state.annotators)) for value in values.to_pylist()]
    if len(state.annotators) > 4 * MAX_ANNOTATORS:
        raise ValueError(
            f"There can be at most {MAX_ANNOTATORS} annotators. {quoted([name])} holds more: "
            f"{quoted(list(state.annotators))}."
        )
    return np.append(np.array(known, dtype=np.int32), np.int32(-1))[codes]


ROW = "labeltide row number"  # added, so that results can name the rows of the user's own table
BATCH = 100_000
GROUP = 250_000  # rows of a row group that is written here
MEMORY = "1GB"  # that DuckDB may take before it sorts on disk


def read_batches(files: FileSet, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """All rows of parquet or CSV files in batches, with the number of each row."""
    first, is_csv = 0, files.kind == "csv"
    for batch in csv_batches(files, columns) if is_csv else RowStream(files, columns, []).batches(BATCH):
        if ROW in batch.schema.names:  # it has been added before
            yield batch
            continue
        numbers = pa.array(np.arange(first, first + len(batch)))
        yield pa.record_batch([*batch.columns, numbers], names=[*batch.schema.names, ROW])
        first += len(batch)


def write_joined(files: FileSet, beside: FileSet, path: Path) -> FileSet:
    """Two Parquet tables side by side, in a copy on disk."""
    if "csv" in (files.kind, beside.kind):
        raise ValueError("Tables that are read in parts take probabilities from a second file in Parquet, not in CSV.")

    def batches() -> Iterator[pa.RecordBatch]:
        others = RowStream(beside, beside.schema.names, []).batches(BATCH)
        waiting, first = beside.schema.empty_table(), 0
        for batch in RowStream(files, files.schema.names, []).batches(BATCH):
            while len(waiting) < len(batch) and (more := next(others, None)) is not None:
                waiting = pa.concat_tables([waiting, pa.table(more)])
            part, waiting = waiting.slice(0, len(batch)), waiting.slice(len(batch))
            first += len(batch)
            if first == files.n_rows:  # with what may be left
                part = pa.concat_tables([part, waiting, *map(pa.table, others)])
            yield from add_columns(pa.table(batch), part, beside.paths[0], first - len(batch)).to_batches()

    if not path.exists():
        write_atomically(path, lambda draft: write_batches(batches(), draft))
    return open_files(path)


def write_batches(
    batches: Iterable[pa.RecordBatch], path: Path, on_rows: Callable[[int], None] = lambda rows: None
) -> None:
    """Write the rows as they come to a parquet file with small row groups, from which ranges can be read."""
    writer, waiting, held, done = None, list[pa.RecordBatch](), 0, 0
    for batch in batches:
        waiting.append(batch)
        held += len(batch)
        writer = writer or parquet.ParquetWriter(path, batch.schema, compression="zstd", compression_level=1)
        if held >= GROUP:
            writer.write_table(pa.Table.from_batches(waiting))
            done, waiting, held = done + held, [], 0
            on_rows(done)
    assert writer is not None  # `find_roles` has refused a table without rows
    if waiting:
        writer.write_table(pa.Table.from_batches(waiting))
    writer.close()


def write_sorted(
    files: FileSet, columns: list[str], roles: RoleColumns, path: Path, work: Path, tidy: Tidying = NOTHING
) -> None:
    """Sort by sequence, time and annotator with DuckDB, which uses disk where memory does not suffice.

    Columns are tidied first, because texts of numbers have another order.
    """
    purpose = "Sorting a table that does not fit into memory, and is not in the order of sequences and times,"
    duckdb = import_extra("duckdb", "sort", purpose, "sort it before")
    work.mkdir(parents=True, exist_ok=True)
    given = (tidy(pa.Table.from_batches([batch])) for batch in read_batches(files, columns) if len(batch))
    batches = (table.combine_chunks().to_batches()[0] for table in given)
    head = next(batches)
    reader = pa.RecordBatchReader.from_batches(head.schema, chain([head], batches))
    keys = [*roles.sequence, *(name for name in (roles.time, roles.annotator) if name), ROW]
    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        connection.execute(f"SET temp_directory = {_quoted(str(work), chr(39))}")
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", reader)
        order = ", ".join(_quoted(key, '"') for key in dict.fromkeys(keys))
        options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {GROUP}"
        target = _quoted(str(path), chr(39))
        connection.execute(f"COPY (SELECT * FROM rows ORDER BY {order}) TO {target} ({options})")
    with suppress(OSError):
        work.rmdir()


def _quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, 2 * mark) + mark


CHUNK_ROWS = 250_000
HISTORY = 1  # anchors of a long sequence that are read before a part of it, for the last values before gaps


class Chunk(NamedTuple):
    """A range of rows, and what they are.

    A part of a long sequence has one sequence, starts at one of its steps, and holds some of its windows; other chunks
    hold whole sequences.
    """

    first_row: int
    last_row: int  # exclusive, as are the others
    first_sequence: int
    last_sequence: int
    first_step: int
    first_window: int
    last_window: int  # 0 for whole sequences


def select_windows(windows: Windows, which: slice | np.ndarray) -> Windows:
    """Some of the windows."""
    names = ("starts", "lengths", "warm_up", "groups")
    return replace(windows, **{name: getattr(windows, name)[which] for name in names})


def plan_chunks(survey: Survey, window: int) -> tuple[Chunk, ...]:
    """Whole sequences together, up to so many rows, and the parts of long ones."""
    ends = np.append(survey.first_rows, survey.n_rows).tolist()
    counts, chunks, start = survey.counts.tolist(), list[Chunk](), 0
    for sequence, n_steps in enumerate(counts):
        if start < sequence and ends[sequence + 1] - ends[start] > CHUNK_ROWS:
            chunks.append(Chunk(ends[start], ends[sequence], start, sequence, 0, 0, 0))
            start = sequence
        n_rows = ends[sequence + 1] - ends[sequence]
        if n_rows > 2 * CHUNK_ROWS and n_steps > 2 * ANCHOR:
            chunks += _parts(survey, window, sequence, n_rows)
            start = sequence + 1
    if start < len(counts):
        chunks.append(Chunk(ends[start], ends[-1], start, len(counts), 0, 0, 0))
    return tuple(chunks)


def _parts(survey: Survey, window: int, sequence: int, n_rows: int) -> list[Chunk]:
    """The parts of a long sequence; each is read from an anchor before its first window on."""
    steps, stride = int(survey.counts[sequence]), stride_of(window)
    n_windows = int(count_windows(survey.counts[[sequence]], window)[0])
    each = max(1, int(CHUNK_ROWS * steps / n_rows) // stride)  # windows of a part
    parts = []
    for first in range(0, n_windows, each):
        last = min(first + each, n_windows)
        begin = min(first * stride, steps - window)
        end = min((last - 1) * stride, steps - window) + window
        low, high = max(0, begin // ANCHOR - HISTORY), -(-end // ANCHOR)
        rows = survey.row_of_step(sequence, low), survey.row_of_step(sequence, high)
        parts.append(Chunk(*rows, sequence, sequence + 1, low * ANCHOR, first, last))
    return parts


@dataclass(frozen=True)
class Layout:
    """How the rows of a large table are read; the last three are found from the windows that were drawn."""

    stream: RowStream
    prepared: PreparedTable
    survey: Survey
    window: int
    chunks: tuple[Chunk, ...]
    encoders: tuple[Encoder, ...] = ()
    clocks: tuple[ClockInfo, ...] = ()
    usual: float | None = None  # time between two steps, in seconds or the unit of the column

    @property
    def columns(self) -> RoleColumns:
        return self.prepared.roles

    @cached_property
    def rare(self) -> np.ndarray:
        """Which classes have too few labels to be learned from: bool of shape (classes,)."""
        return find_rare(self.survey.class_counts, self.survey.trusted_codes)

    @property
    def n_windows(self) -> np.ndarray:
        """The number of windows of every sequence."""
        return count_windows(self.survey.counts, self.window)

    def windows(self, chunk: Chunk) -> tuple[Windows, np.ndarray]:
        """The windows of a chunk, starts and sequences counted within it, and the number of each in its sequence."""
        windows = cut_windows(self.survey.counts[chunk.first_sequence : chunk.last_sequence], self.window)
        if chunk.last_window:
            some = select_windows(windows, slice(chunk.first_window, chunk.last_window))
            numbers = np.arange(chunk.first_window, chunk.last_window)
            return replace(some, starts=some.starts - chunk.first_step), numbers
        numbers = np.arange(len(windows.groups)) - np.searchsorted(windows.groups, windows.groups)
        return windows, numbers

    @property
    def n_rows(self) -> int:
        return self.survey.n_rows

    @property
    def sequence_names(self) -> pa.Array:
        return self.survey.names

    def read(self, chunk: Chunk) -> tuple[AuditInput, np.ndarray]:
        """The arrays of a chunk with labels of all classes, and the number of each of its rows in the user's table."""
        from labeltide.auditing.sampling import read_rows, to_steps

        rows = read_rows(self, chunk)
        return to_steps(self, rows).take(self.windows(chunk)[0]), rows.table[ROW].to_numpy()

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes that are learned, judged and suggested."""
        return tuple(compress(self.survey.class_names, ~self.rare))

    @property
    def n_labels(self) -> int:
        """How many labels of these classes there are."""
        return int(self.survey.class_counts[~self.rare].sum())

    @property
    def size(self) -> TableSize:
        return TableSize(int(self.survey.counts.sum()), int(self.n_windows.sum()), self.window, self.n_labels)

    @property
    def annotator_names(self) -> tuple[str, ...] | None:
        if len(self.columns.label) > 1:
            return tuple(unique_texts(self.columns.label))
        annotators = self.survey.annotators
        return None if annotators is None else tuple(unique_texts(annotators.to_pylist()))


def time_numbers(name: str, column: pa.ChunkedArray) -> np.ndarray:
    """Times as numbers in their order: microseconds, or the numbers of the column."""
    kind = column.type
    if column.null_count:
        raise ValueError(
            f"The time column {quoted([name])} must be given in every row. {column.null_count} rows have none."
        )
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        column = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ValueError(
            f"In a table of this size the time column {quoted([name])} must hold moments or numbers. Got {kind}. Write "
            "moments as in 2026-11-15 10:30."
        )
    return whole(column).to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class MemoryTable:
    """A table in memory, judged as a stream of one chunk; attributes that are shared have the meaning of `Layout`'s."""

    recorded: AuditInput
    rare: np.ndarray

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        return (Chunk(0, self.n_rows, 0, len(self.recorded.sequence_names), 0, 0, 0),)

    @property
    def n_rows(self) -> int:
        return self.recorded.n_rows

    @property
    def n_labels(self) -> int:
        counts = np.bincount(self.recorded.fit_labels[self.recorded.fit_labels >= 0], minlength=len(self.rare))
        return int(counts[~self.rare].sum())

    @property
    def sequence_names(self) -> pa.Array:
        return pa.array(self.recorded.sequence_names, pa.string())

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(compress(self.recorded.class_names, ~self.rare))

    @property
    def annotator_names(self) -> tuple[str, ...] | None:
        return self.recorded.annotator_names

    def read(self, chunk: Chunk) -> tuple[AuditInput, np.ndarray]:
        """The whole table."""
        return self.recorded, np.arange(self.n_rows)
