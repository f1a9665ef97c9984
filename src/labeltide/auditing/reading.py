"""From a table to the arrays of an audit: the reader of `labeltide.tables`, with columns found where not named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._display import ShortRepr
from labeltide._validation import UnanswerableError
from labeltide.tables.columns import OpenTable, Steps, load_columns, load_table, open_table
from labeltide.tables.features import Encoder, Features, apply_encoders, encode_features, encode_probabilities
from labeltide.tables.files import FileSet, csv_batches, format_of, is_address, open_files
from labeltide.tables.roles import Reading, Request, RoleColumns, find_columns
from labeltide.tables.rows import TableRows, describe_trusted, find_rows, keep_rows, read_table_labels, read_trusted
from labeltide.tables.tidy import (
    ColumnOverview,
    TableCounts,
    choose_tidying,
    describe_overview,
    name_table,
    read_decimal_commas,
)
from labeltide.tables.times import find_gaps
from labeltide.tables.windows import (
    ClockInfo,
    Windows,
    choose_window,
    count_windows,
    cut_windows,
    read_clocks,
    say_windows,
)
from labeltide.tables.words import ANNOTATORS, means, quoted, unique_texts


@dataclass(frozen=True)
class AuditSteps:
    """A table as steps, before windows are cut; attributes are those of `AuditInput`, with (all steps,) for (n, steps).

    `messages` are sentences about what was read.
    """

    rows: TableRows
    features: Features
    labels: np.ndarray
    class_names: tuple[str, ...]
    clock: np.ndarray
    clocks: tuple[ClockInfo, ...]
    trusted: np.ndarray | None = None
    gaps: np.ndarray | None = None
    messages: tuple[str, ...] = ()
    overview: tuple[ColumnOverview, ...] = ()
    decisions: dict[str, Any] | None = None
    by_model: int = 0

    def cut(self, window: int | None = None) -> AuditInput:
        """Cut windows; None chooses their length from the data."""
        counts = self.rows.steps.counts
        windows = cut_windows(counts, window)
        messages = (*self.messages, say_windows(len(windows.groups), windows.window, counts))
        return replace(self.take(windows), messages=messages)

    def take(self, windows: Windows) -> AuditInput:
        """The arrays of some windows; steps that belong to none, and their rows, are left out."""
        steps, names = self.rows.steps, tuple(unique_texts(self.rows.steps.ids))
        index, belongs, filled = windows.index, windows.belongs, windows.filled_index()
        real, columns = index >= 0, self.features.columns
        features = np.zeros((*index.shape, len(columns)), dtype=np.float32)
        for number, column in enumerate(columns):
            features[..., number][real] = column[index[real]]
        labels = np.where(real[..., None], self.labels[filled], np.int8(-1))
        trusted = None if self.trusted is None else np.where(real, self.trusted[filled], np.int8(-1))
        flat_index = np.full(len(self.labels), -1, dtype=np.int64)
        flat_index[index[belongs]] = np.flatnonzero(belongs)
        kept = flat_index >= 0
        number_of_step = np.where(kept, np.cumsum(kept) - 1, -1)
        lines = self.rows.lines(kept)
        sequence_of_row = pa.array(steps.sequence[steps.step_of_row].astype(np.int32))
        return AuditInput(
            features=features,
            labels=labels,
            fit_labels=np.where(belongs[..., None], labels, np.int8(-1)),
            lengths=windows.lengths,
            clock=self.clock[filled],  # padding shows the last real moment
            trusted=trusted,
            fit_trusted=None if trusted is None else np.where(belongs, trusted, np.int8(-1)),
            gaps=None if self.gaps is None else np.where(real, self.gaps[filled], 1),
            groups=windows.groups,
            n_all_steps=int(kept.sum()),
            index=np.where(real, number_of_step[filled], -1),
            flat_index=flat_index[kept],
            **{**lines, "line_step": number_of_step[lines["line_step"]]},
            ids=self.rows.of_given(pa.DictionaryArray.from_arrays(sequence_of_row, pa.array(names, pa.string()))),
            times=self.rows.of_given(self.rows.times.dictionary_encode()),
            sequence_names=names,
            class_names=self.class_names,
            annotator_names=self.rows.annotators,
            feature_names=self.features.names or ("position in the sequence",),
            clocks=self.clocks,
            columns=self.rows.columns.describe(),
            window=windows.window,
            encoders=self.features.encoders,
            messages=self.messages,
            overview=self.overview,
            decisions=self.decisions,
            by_model=self.by_model,
        )


FEW_WINDOWS = 10  # under which whole sequences are cut, so that one part can be judged by others
MIN_WINDOW = 8


def audit_window(counts: np.ndarray) -> int:
    """The window of an audit that names none, of sequences with these numbers of steps."""
    usual = choose_window(counts)
    if count_windows(counts, usual).sum() >= FEW_WINDOWS:
        return usual
    lengths = cut_windows(counts, usual).lengths
    shorter = max(MIN_WINDOW, int(lengths.sum()) // FEW_WINDOWS)
    return shorter if shorter < lengths.max() else usual


def read_audit_steps(
    table: Any,
    request: Request,
    reading: Reading = Reading(),  # noqa: B008  (frozen)
    *,
    labels_only: bool = False,
) -> AuditSteps:
    """Read the columns of a request, and those that it leaves to be found.

    With `labels_only` there are no features, and a clock may differ between annotators: shape (steps, annotators).
    """
    try:
        return _read_steps(open_table(table), request, reading, labels_only)
    except pa.ArrowException as error:  # what no check above foresaw, in Arrow's own words
        raise ValueError(f"The table cannot be read: {str(error).rstrip('.')}.") from None


def _read_steps(table: OpenTable, request: Request, reading: Reading, labels_only: bool) -> AuditSteps:
    loaded = load_table(table, needed_columns(table.names, request))
    columns = find_columns(loaded, request, with_features=not labels_only)
    loaded = name_table(loaded, table.written, columns, reading.missing)
    loaded, given, row_messages = keep_rows(loaded, columns, reading)
    counts = TableCounts()
    counts.add(loaded, columns)
    tidy, tidying_messages = choose_tidying(counts, columns, reading.missing, reading.classes)
    loaded = tidy(loaded)
    labels = read_table_labels(loaded, columns.label)
    rows = find_rows(loaded, columns, labels.codes, reading.timezone, given)
    recorded = labels.of_steps(rows)
    if columns.probabilities:
        features = encode_probabilities(loaded, columns.features, rows.steps, labels.names)
    else:
        features = encode_features(loaded, columns.features, rows.steps, recorded, named=columns.features_named)
    people = rows.annotator if labels_only and rows.columns.annotator else None
    clock, clocks, clock_messages = read_clocks(
        loaded, columns.clock, columns.time, rows.moments, rows.steps, people=people
    )
    messages = [*columns.messages, *row_messages, *tidying_messages, *say_blank(counts, columns)]
    messages += [*(rows.moments.messages if rows.moments else ()), *features.messages, *clock_messages]
    trusted = None
    if columns.trusted:
        trusted = read_trusted(loaded, columns.trusted, labels.classes, rows.steps)
        messages.append(describe_trusted(int((trusted >= 0).sum()), columns.trusted))
    overview = describe_overview(counts, tidy, table.names, columns, features)
    if not features.columns:
        if not labels_only and rows.n_annotators < 2:
            check_features(1, columns.left_out)
        features = position_feature(rows.steps)
    gaps, gap_message = find_gaps(rows.steps) if rows.moments else (None, "")
    messages += [gap_message] if gap_message else []
    read = (rows, features, recorded, labels.names, clock, clocks, trusted, gaps, tuple(messages), overview)
    names = [name for name in (f"{label}_author" for label in columns.label) if name in table.names]
    authors = [who for column in (load_columns(table, names) if names else {}).values() for who in column.to_list()]
    return AuditSteps(*read, by_model=sum(str(who).startswith("labeltide ") for who in authors))  # labeltide apply


def say_blank(counts: TableCounts, columns: RoleColumns) -> list[str]:
    """Sentences on texts of blanks alone in columns of labels."""
    blank = {name: counts.columns[name].blank for name in columns.label}
    return [
        f"{count} label{'s' if count > 1 else ''} of {quoted([name])} are blank: not recorded."
        for name, count in blank.items()
        if count
    ]


def read_new_table(
    table: Any,
    encoders: Sequence[Encoder],
    class_names: Sequence[str],
    window: int,
    request: Request = Request(),  # noqa: B008  (frozen)
    timezone: str | None = None,
) -> AuditInput:
    """Read another table as a trained model knows it: the same features, no labels, the position as clock."""
    opened = open_table(table)
    loaded = load_table(opened)
    columns = find_columns(loaded, request, labelled=False)
    loaded = name_table(loaded, opened.written, columns)
    numbers = [encoder.column for encoder in encoders if not encoder.levels]
    loaded = read_decimal_commas(loaded, [*numbers, *([columns.time] if columns.time else [])])
    labels = read_table_labels(loaded, [])
    rows = find_rows(loaded, columns, labels.codes, timezone)
    features = apply_encoders(loaded, encoders, rows.steps) if encoders else position_feature(rows.steps)
    clock, clocks, _ = read_clocks(loaded, [], columns.time, rows.moments, rows.steps)
    steps = AuditSteps(rows, features, labels.of_steps(rows), tuple(class_names), clock, clocks)
    return replace(steps.cut(window), messages=tuple(columns.messages))


def needed_columns(names: Sequence[str], request: Request) -> set[str] | None:
    """The columns to load: all of them, unless the user has named the features and all else that we would guess."""
    if None in (request.features, request.sequence, request.time, request.label):
        return None
    there = [str(name) for name in names]
    named = {name for names in request.columns(there).values() for name in names}
    return named | {name for name in there if means(name, ANNOTATORS)}


class NoFeaturesError(UnanswerableError):
    """Several annotators and no features: annotators can be compared, labels cannot be audited."""


def check_features(n_annotators: int, left_out: Mapping[str, str]) -> None:
    """Refuse a table in which no column is a feature; `left_out` are columns that are none, and why."""
    why = "".join(f" {quoted([name])} is none: {reason}." for name, reason in list(left_out.items())[:2])
    if n_annotators < 2:
        raise UnanswerableError(
            "With one annotator, an audit needs features to distinguish wrong labels from right ones. No column is "
            f"left that could be a feature. Name some with the option features (--features COLUMN,...).{why}"
        )
    raise NoFeaturesError(
        "An audit needs features, and no column is left for them. Labels of several annotators can be compared with "
        f"each other: use compare_annotators (labeltide consensus TABLE).{why}"
    )


def position_feature(steps: Steps) -> Features:
    """The position in the sequence as the only feature."""
    return Features([(steps.positions * 2 - 1).astype(np.float32)], (), ())


@dataclass(frozen=True, repr=False)
class AuditInput(ShortRepr):
    """What an estimator needs, and the mapping back to the table.

    A *step* is one moment of one sequence; steps are ordered by sequence, then time. A *window* is a run of
    steps, as long as the network sees at once; windows overlap, but every step belongs to one of them. A *line* is one
    cell for a label: a row of the table or, where each annotator has a column, a row and an annotator. With `fit_`, a
    value is -1 wherever the step belongs to another window, so that none counts twice in training.
    """

    features: np.ndarray  # float32 (n, steps, features)
    fit_labels: np.ndarray  # int8 (n, steps, annotators)
    lengths: np.ndarray  # int64 (n,)
    clock: np.ndarray  # float64 (n, steps), or (n, steps, clocks) where there are several
    fit_trusted: np.ndarray | None
    gaps: np.ndarray | None  # int64 (n, steps), usual steps of time before each; None where no step is missing
    groups: np.ndarray  # int64 (n,), the sequence of each window, an index into `sequence_names`
    sequence_names: tuple[str, ...]
    clocks: tuple[ClockInfo, ...]
    n_all_steps: int  # of the whole table, from which these windows may have been drawn
    labels: np.ndarray  # int8 (n, steps, annotators), as recorded, -1 where nothing was
    trusted: np.ndarray | None  # int8 (n, steps)
    index: np.ndarray  # int64 (n, steps), the step at each position, -1 on padding
    flat_index: np.ndarray  # int64 (all steps,), where each step belongs: a position in (n, steps) read as one row
    line_row: np.ndarray  # int64 (lines,), in the table's order
    line_step: np.ndarray  # int64 (lines,)
    line_annotator: np.ndarray  # int64 (lines,), -1 in rows that name none and hold no label
    ids: pa.Array  # dictionary-encoded texts of all rows
    times: pa.Array  # the same
    class_names: tuple[str, ...]
    annotator_names: tuple[str, ...] | None
    feature_names: tuple[str, ...]
    columns: dict[str, str | None]
    window: int
    encoders: tuple[Encoder, ...]  # how each feature came from its column
    messages: tuple[str, ...]
    overview: tuple[ColumnOverview, ...] = ()  # type, missing values, levels and role of every column of the table
    decisions: dict[str, Any] | None = None  # how many labels reviewers settled, used and left out
    by_model: int = 0  # labels that were corrected by the model of an earlier audit
    moved: np.ndarray | None = None  # labels at the steps whose signals they belong to, where late or early
    shift: np.ndarray | None = None  # int64 (sequences, annotators), how late labels were taken to be
    ahead: np.ndarray | None = (
        None  # int64 (sequences, annotators), by how many steps labels are early as usual, else 0
    )

    @property
    def n_rows(self) -> int:
        return len(self.ids)

    @property
    def n_labels(self) -> int:
        """How many labels were recorded."""
        return int((self.fit_labels >= 0).sum())

    @property
    def each_clock(self) -> list[np.ndarray]:
        """The moments of every clock on its own: shape (n, steps)."""
        return [self.clock] if len(self.clocks) == 1 else list(np.moveaxis(self.clock, -1, 0))

    def from_steps(self, values: np.ndarray) -> np.ndarray:
        """Values of shape (n, steps, ...) as (all steps, ...): each from the window to which its step belongs."""
        return values.reshape(-1, *values.shape[2:])[self.flat_index]

    @property
    def belongs(self) -> np.ndarray:
        """Which positions hold a step that belongs to their window: bool of shape (n, steps)."""
        belongs = np.zeros(self.index.size, dtype=bool)
        belongs[self.flat_index] = True
        return belongs.reshape(self.index.shape)

    @property
    def sequence_of_step(self) -> np.ndarray:
        """The sequence of every step: int64 of shape (all steps,), rising."""
        return self.from_steps(np.broadcast_to(self.groups[:, None], self.index.shape))

    def signal(self, feature: int) -> np.ndarray:
        """A feature in the user's own unit, gaps filled: shape (all steps,)."""
        owners = [(encoder, number) for encoder in self.encoders for number in range(len(encoder.names))]
        values = self.from_steps(self.features[..., feature])
        encoder, number = owners[feature] if owners else (None, 0)
        return values if encoder is None or number or encoder.levels else encoder.original(values)

    def first_lines(self) -> np.ndarray:
        """The first line of every step: int64 of shape (all steps,)."""
        first = np.empty(len(self.flat_index), dtype=np.int64)
        first[self.line_step[::-1]] = np.arange(len(self.line_step))[::-1]
        return first


def decode(codes: np.ndarray, names: tuple[str | None, ...]) -> pa.Array:
    """Names in place of codes, null in place of -1."""
    return pa.array(names, pa.string()).take(pa.array(codes.astype(np.int64), mask=codes < 0))


MAX_ROWS = 2_000_000  # of a table that is read into memory
MAX_BYTES = 200_000_000  # of CSV files that are


def choose_source(table: Any) -> Any:
    """The table as it is, several small files as one table, or the files of a table that is read in parts."""
    if isinstance(table, str | Path) and not is_address(table):
        path = Path(table)
        found = format_of(path.name)
        if not path.is_file() or found is None or not found.in_parts:
            return table  # the reader of single files says what is wrong with it
        if not _may_be_large(path):
            return table
    elif not is_address(table):
        return table
    files = open_files(table)
    if files.n_rows > MAX_ROWS or (files.kind == "csv" and sum(files.sizes) > MAX_BYTES):
        return files
    return open_all(files) if is_address(table) else table


def open_whole(table: str) -> OpenTable:
    """A file, a folder or a glob as one table, whatever its size."""
    source = choose_source(table)
    return open_all(source) if isinstance(source, FileSet) else open_table(source)


def read_all(files: FileSet) -> pa.Table:
    """The rows of all files, in the order of their paths."""
    from labeltide.auditing.survey import ROW, read_batches

    batches = list(read_batches(files, files.schema.names))
    return pa.Table.from_batches(batches).drop_columns([ROW]) if batches else files.schema.empty_table()


def open_all(files: FileSet) -> OpenTable:
    """The rows of all files as one table, with the names of CSV files as they are written."""

    def written(names: list[str]) -> pa.Table:
        texts = files.with_names(dict.fromkeys(names, pa.string()))
        return pa.Table.from_batches(csv_batches(texts, names), pa.schema([(name, pa.string()) for name in names]))

    return open_table(read_all(files))._replace(written=written if files.kind == "csv" else None)


def _may_be_large(path: Path) -> bool:
    """Whether a single file can hold so many rows: those of few bytes are read by the usual reader alone."""
    if path.name.lower().endswith(".parquet"):
        return path.stat().st_size > MAX_ROWS  # less than a byte for each row
    return path.stat().st_size > MAX_BYTES // 10
