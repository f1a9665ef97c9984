"""Columns of tables: loaded as Arrow arrays, turned into numbers or codes, grouped into steps, written for users."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from labeltide._files import safe_texts
from labeltide._validation import MAX_CLASSES, UnanswerableError, check_choice, encode_labels, listed, null_values
from labeltide.tables.files import format_of, list_extensions, open_file, read_as_written
from labeltide.tables.words import name_rows, quoted


class OpenTable(NamedTuple):
    """The names of the columns, and functions that load some of them; `written` gives those of CSV files as texts."""

    names: list[str]
    load: Callable[[list[str]], nw.DataFrame]
    written: Callable[[list[str]], pa.Table] | None = None


@dataclass(frozen=True)
class Column:
    """One column: an Arrow array, or Python objects where Arrow has no type for them."""

    name: str
    array: pa.Array | None  # without dictionary encoding; None where the column holds Python objects
    kind: str  # the name of its type, for sentences
    to_list: Callable[[], list[Any]]  # gives the values as Python objects

    @classmethod
    def of_series(cls, series: nw.Series) -> Column:
        """A column of a data frame, without dictionary encoding."""
        array = None
        with suppress(pa.ArrowException, TypeError, OverflowError, NotImplementedError):
            if series.dtype != nw.Object:
                found = series.to_arrow()
                found = found.cast(found.type.value_type) if pa.types.is_dictionary(found.type) else found
                array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        return cls(series.name, array, str(series.dtype), series.to_list)

    @classmethod
    def of_array(cls, name: str, array: pa.Array | pa.ChunkedArray) -> Column:
        """A column that is in Arrow already."""
        joined = whole(array) if isinstance(array, pa.ChunkedArray) else array
        kind = nw.from_native(pa.chunked_array([joined]), series_only=True).dtype
        return cls(name, joined, str(kind), joined.to_pylist)


def open_table(table: Any) -> OpenTable:
    """Open a data frame or the path of a file; a table that is open stays as it is."""
    if isinstance(table, OpenTable):
        return table
    if isinstance(table, str | Path):
        path = Path(table)
        found = format_of(path.name)
        opened = open_table(open_file(path))
        is_text_file = found is not None and found.in_parts == "csv"
        return opened._replace(written=lambda names: read_as_written(path, names)) if is_text_file else opened
    if isinstance(table, parquet.ParquetFile):
        return OpenTable(table.schema_arrow.names, lambda names: nw.from_native(table.read(columns=names)))
    try:
        frame = nw.from_native(table).lazy()
    except TypeError:
        raise ValueError(
            "table must be a data frame (pandas, polars, pyarrow or another that narwhals reads) or the path of a file "
            f"that ends in {list_extensions()}. Got {type(table).__name__}."
        ) from None
    except ValueError:  # narwhals refuses repeated names, also of columns that nobody asked for
        check_unique(getattr(table, "column_names", getattr(table, "columns", ())))
        raise
    return OpenTable(frame.collect_schema().names(), lambda names: frame.select(names).collect())


def join_tables(table: OpenTable, other: OpenTable, path: str) -> OpenTable:
    """A table with the columns of a second file beside its own."""
    return open_table(add_columns(load_table(table), load_table(other), path))._replace(written=table.written)


def add_columns(table: pa.Table, more: pa.Table, path: str, start: int = 0) -> pa.Table:
    """Rows with the columns of a second file, which must have the same rows; `start` rows came before."""
    shared = min(len(table), len(more))
    found = "" if len(table) == len(more) else f"Row {start + shared + 1:,} stands in one of them alone."
    for name in () if found else more.column_names:
        if name not in table.column_names:
            table = table.append_column(name, more[name])
        elif not whole(table[name]).equals(whole(more[name])):
            pairs = zip(table[name].to_pylist(), more[name].to_pylist(), strict=True)
            differ = ((start + row, *pair) for row, pair in enumerate(pairs, 1) if pair[0] != pair[1])
            for row, ours, theirs in differ:
                found = f"In row {row:,} {name!r} is {ours!r} in the table and {theirs!r} in {path!r}."
                break
    if found:
        raise ValueError(
            f"A file of probabilities must have the rows of the table, in the same order. {found} Sort both alike, or "
            "merge them into one table."
        )
    return table


def load_columns(table: OpenTable, names: list[str]) -> dict[str, Column]:
    """Some columns by name, each with the values that it holds."""
    frame = table.load(names)
    if not len(frame):
        raise UnanswerableError("The table must hold at least one row. Got none.")
    return {name: Column.of_series(frame[name]) for name in frame.columns}


def load_table(table: OpenTable, wanted: set[str] | None = None) -> pa.Table:
    """The wanted columns, or all, as Arrow arrays of simple types in the table's own order.

    Columns that have no such type become text.
    """
    odd = [name for name in table.names if not isinstance(name, str)]
    if odd:
        raise ValueError(f"Every column must be named by a text. Got {quoted(odd)}. Rename these columns.")
    if any("\0" in name for name in table.names):  # Arrow's own interface would end a name there
        raise ValueError("No name of a column may hold the character NUL. Rename such columns.")
    check_unique(table.names)
    if not table.names:
        raise ValueError("The table must have columns. Got none.")
    columns = load_columns(table, [name for name in table.names if wanted is None or name in wanted])
    return pa.table({name: _simple_array(column) for name, column in columns.items()})


def check_unique(names: Iterable[Hashable]) -> None:
    """No two columns of one name."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"Every column of a table must have its own name. Got {listed(repeated, 20)} more than once. "
            "Rename or drop the repeats."
        ) from None  # narwhals' own words for it


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds numbers; true and false are none."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_moment(kind: pa.DataType) -> bool:
    """Whether a column holds dates, or dates with times."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _simple_array(column: Column) -> pa.Array:
    array = _from_objects(column.to_list()) if column.array is None else column.array
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_decode(array)
    if pa.types.is_float16(kind):
        return array.cast(pa.float32())
    if pa.types.is_decimal(kind):
        return array.cast(pa.float64(), safe=False)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _from_objects([None if value is None else str(value) for value in array.to_pylist()])
    return array.cast(pa.large_string()) if kind == pa.string_view() else array


def _from_objects(values: list[Any]) -> pa.Array:
    """Python objects: of one kind where they are, else their texts."""
    values = [None if value is None or (value != value) is not False else value for value in values]
    try:
        array = pa.array(values)
        if not pa.types.is_nested(array.type):
            return array
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError):
        pass
    return pa.array([None if value is None else str(value).encode("utf-8", "replace").decode() for value in values])


# Columns as NumPy arrays: numbers, times, or codes into the distinct values (factorising).


def number_column(column: Column, role: str) -> np.ndarray:
    """A finite float64 column."""
    tests = (is_number, pa.types.is_decimal, pa.types.is_boolean)
    if column.array is None or not any(test(column.array.type) for test in tests):
        ways = "numbers or datetimes" if role == "clock" else "numbers"
        raise ValueError(f"The {role} column {quoted([column.name])} must hold {ways}. Got {column.kind}.")
    values = column.array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(values.astype(np.float32))
    if wrong.any():
        raise ValueError(
            f"The {role} column {quoted([column.name])} must be finite. It is null, NaN, infinite or too large for "
            f"float32 in {name_rows(np.flatnonzero(wrong))}. Fill or drop these."
        )
    return values


def factorize_times(column: Column, role: str = "time") -> tuple[np.ndarray, np.ndarray]:
    """The user's own moments, and whole numbers in the same order."""
    array = column.array
    if array is None or not (is_number(array.type) or pa.types.is_temporal(array.type)):
        codes, distinct = factorize(column, role)
        codes, distinct = sort_codes(column.name, codes, distinct)
        return distinct[codes], codes
    _check_full(column.name, role, array.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))
    values = array.to_numpy(zero_copy_only=False)
    return values, np.unique(values, return_inverse=True)[1].reshape(-1)


def factorize_labels(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Codes into the distinct labels, in order of appearance; -1 where the column is null or NaN.

    Which other values stand for a missing label is for `tidy.choose_missing` to say.
    """
    if column.array is not None and is_text(column.array.type):
        column = Column.of_array(column.name, pc.utf8_normalize(column.array, "NFC"))
    codes, distinct = factorize(column)
    # Whole numbers become floats in pandas as soon as one is missing; give them back their names.
    if (codes < 0).any() and all(isinstance(value, float) and value.is_integer() for value in distinct):
        distinct = _as_objects([int(value) for value in distinct])
    return codes, distinct


def factorize(column: Column, role: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes into the distinct values, in order of appearance; nulls are -1, or an error in a named role."""
    try:
        if column.array is None:
            raise pa.ArrowNotImplementedError
        encoded = column.array.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary
        if pa.types.is_timestamp(values.type) and values.type.unit == "ns":  # Python knows no nanoseconds
            values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
        codes, distinct = encoded.indices.to_numpy(), _as_objects(short_floats(values).to_pylist())
    except pa.ArrowException:
        codes, distinct = _factorize_objects(column)
    codes, distinct = drop_values(codes, distinct, null_values(distinct))
    if role:
        _check_full(column.name, role, codes < 0)
    return codes, distinct


def group_rows(columns: Mapping[str, Column], names: list[str], role: str) -> tuple[np.ndarray, list[tuple]]:
    """Codes and keys of the distinct combinations of the columns, in order of appearance."""
    parts = [factorize(columns[name], role) for name in names]
    joined = parts[0][0]
    for codes, distinct in parts[1:]:
        joined = np.unique(joined, return_inverse=True)[1].reshape(-1) * len(distinct) + codes
    _, first, inverse = np.unique(joined, return_index=True, return_inverse=True)
    order = np.argsort(first)
    keys = [tuple(distinct[codes[row]] for codes, distinct in parts) for row in first[order]]
    return np.argsort(order)[inverse.reshape(-1)], keys


def sort_codes(name: str, codes: np.ndarray, distinct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same values, with codes in their sorted order."""
    try:
        order = np.array(sorted(range(len(distinct)), key=distinct.__getitem__))
    except TypeError:
        raise ValueError(f"Column {quoted([name])} must hold values of one kind, which can be sorted.") from None
    return np.argsort(order)[codes], distinct[order]


def _factorize_objects(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Tuples, mixed types and other Python objects."""
    index: dict[Any, int] = {}
    try:
        codes = [index.setdefault(value, len(index)) for value in column.to_list()]
    except TypeError:
        rule = "must hold hashable values: numbers, strings, tuples and the like"
        raise ValueError(f"Column {quoted([column.name])} {rule}. Got {column.kind}.") from None
    return np.array(codes), _as_objects([v.item() if isinstance(v, np.generic) else v for v in index])


def drop_values(codes: np.ndarray, distinct: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the code -1 to some of the distinct values, and to rows that had it before."""
    return np.append(np.where(missing, -1, np.cumsum(~missing) - 1), -1)[codes], distinct[~missing]


def short_floats(array: pa.Array) -> pa.Array:
    """Single precision as the double of the same shortest text: 0.2, not 0.20000000298023224."""
    return array.cast(pa.string()).cast(pa.float64()) if pa.types.is_float32(array.type) else array


def _as_objects(values: Sequence[Any]) -> np.ndarray:
    return np.fromiter(values, dtype=object, count=len(values))  # np.array would unpack tuples


def _check_full(name: str, role: str, missing: np.ndarray) -> None:
    if missing.any():
        rows = name_rows(np.flatnonzero(missing))
        raise ValueError(f"The {role} column {quoted([name])} must be given in every row. It is null in {rows}.")


# Table rows grouped into steps: by sequence and time, one row for each annotator of a step.

NO_LABEL = np.int8(-1)


@dataclass(frozen=True)
class Steps:
    """How table rows become steps: several rows, one for each annotator, may describe the same step."""

    rows: np.ndarray  # (steps,) the row that stands for each step; steps ordered by sequence, then time
    sequence: np.ndarray  # (steps,) codes into ids
    ids: list[Hashable]
    times: np.ndarray  # (steps,)
    step_of_row: np.ndarray  # (rows,)
    annotator_of_row: np.ndarray  # (rows,) codes into annotators
    annotators: tuple[Hashable, ...] | None = None  # sorted; None without a column of annotators
    # Of steps that are a part of a table:
    offset: np.ndarray | int = 0  # how many steps of each sequence come before these
    totals: np.ndarray | None = None  # (sequences,), the steps of each in the whole table

    @property
    def counts(self) -> np.ndarray:
        """The number of steps of every sequence."""
        return np.bincount(self.sequence)

    @property
    def first(self) -> np.ndarray:
        """The first step of the sequence to which each step belongs: shape (steps,)."""
        counts = self.counts
        return np.repeat(np.cumsum(counts) - counts, counts)

    @property
    def positions(self) -> np.ndarray:
        """From 0 at the start of each sequence to 1 at its end: shape (steps,)."""
        totals = self.counts if self.totals is None else self.totals
        offset = np.broadcast_to(self.offset, totals.shape)[self.sequence]
        return (np.arange(len(self.sequence)) - self.first + offset) / np.maximum(totals - 1, 1)[self.sequence]

    def pick(self, name: str, values: np.ndarray) -> np.ndarray:
        """One value for each step, after a check that its rows agree."""
        differs = values != values[self.rows[self.step_of_row]]
        if differs.any():
            raise ValueError(
                f"Column {quoted([name])} must agree among annotators of the same sequence and time. "
                f"It differs in {name_rows(np.flatnonzero(differs))}. Clocks of annotators that differ are for "
                "compare_annotators (labeltide consensus)."
            )
        return values[self.rows]

    def spread(
        self, values: np.ndarray, annotator: np.ndarray, n_annotators: int, missing: Any = NO_LABEL
    ) -> np.ndarray:
        """Values of table rows as (steps, annotators), labels in int8; rows of annotator -1 are left out."""
        spread = np.full((len(self.rows), n_annotators), missing)
        named = annotator >= 0
        spread[self.step_of_row[named], annotator[named]] = values[named]
        return spread


class RepeatedRowsError(ValueError):
    """Rows that repeat the sequence and time, and the annotator where there is one, of an earlier row."""

    def __init__(self, rows: np.ndarray, with_annotator: bool, way_out: str) -> None:
        key = "sequence, time and annotator" if with_annotator else "sequence and time"
        super().__init__(f"Every {key} may occur once. An earlier row is repeated in {name_rows(rows)}. {way_out}")
        self.rows = rows


def find_steps(columns: Mapping[str, Column], roles: Mapping[str, list[str]], single_key: bool) -> Steps:
    """Group rows by sequence and time, and refuse those that say the same thing twice.

    With `single_key` the ids are the values of the one sequence column, else tuples.
    """
    sequence, ids = group_rows(columns, roles["sequence"], "sequence")
    times, moment = factorize_times(columns[roles["time"][0]])
    n_rows = len(sequence)
    annotator, annotators = np.zeros(n_rows, dtype=np.int64), None
    for name in roles["annotator"]:
        annotator, people = sort_codes(name, *factorize(columns[name], "annotator"))
        annotators = tuple(people)
    order = np.lexsort((annotator, moment, sequence))
    keys = np.stack([sequence, moment, annotator])[:, order]
    same_step = np.append(False, (keys[:2, 1:] == keys[:2, :-1]).all(0))
    repeats = same_step & np.append(False, keys[2, 1:] == keys[2, :-1])
    if repeats.any():
        several = "Give annotator= if several people labelled a step, or drop repeats."
        way_out = "Drop the repeats." if roles["annotator"] else several
        raise RepeatedRowsError(np.sort(order[repeats]), bool(roles["annotator"]), way_out)
    rows = order[~same_step]
    step_of_row = np.empty(n_rows, dtype=np.int64)
    step_of_row[order] = np.cumsum(~same_step) - 1
    names: list[Hashable] = [key[0] if single_key else key for key in ids]
    return Steps(rows, sequence[rows], names, times[rows], step_of_row, annotator, annotators)


# Columns of a table, or of a part of one, that may be dictionary-encoded.


class FactorizedLabels(NamedTuple):
    """A label column: codes into its distinct values, -1 where nothing was recorded."""

    codes: np.ndarray  # (rows,)
    distinct: np.ndarray

    def encode(self, classes: Sequence[Hashable], subject: str = "y") -> np.ndarray:
        """Codes into a list of classes that holds every value: int8 of shape (rows,)."""
        known = np.ones(len(self.distinct), dtype=bool)
        return np.append(encode_labels(self.distinct, known, tuple(classes), subject), np.int8(-1))[self.codes]


def code_values(column: pa.ChunkedArray | pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Codes into the distinct values, -1 for nulls, and the values."""
    array = whole(column) if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = array.indices.fill_null(-1) if array.null_count else array.indices
    return codes.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), array.dictionary


def read_recorded(column: pa.ChunkedArray | pa.Array) -> FactorizedLabels:
    """Factorise a label column; texts of blanks alone, and levels of a category that no row has, are no labels."""
    if pa.types.is_nested(column.type):
        return FactorizedLabels(*factorize_labels(Column.of_array("label", column)))
    codes, values = code_values(column)
    if pa.types.is_null(values.type):
        return FactorizedLabels(np.full(len(codes), -1), np.empty(0, dtype=object))
    is_used = np.bincount(codes[codes >= 0], minlength=len(values)) > 0
    if is_text(values.type):
        is_blank = pc.equal(pc.utf8_trim_whitespace(values), "").fill_null(False)
        is_used &= ~is_blank.to_numpy(zero_copy_only=False)
    values = pc.if_else(pa.array(is_used), values, pa.scalar(None, values.type))
    if (codes < 0).any():
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])  # to which the code -1 points
    of_value, distinct = factorize_labels(Column.of_array("label", values))
    return FactorizedLabels(of_value[codes], distinct)


SAME_LABELS = 0.5  # agreement, from which on a column may be a second one of labels; by hand


def agreement(values: np.ndarray, codes: np.ndarray) -> float:
    """How well a column of few values and labels predict each other: 1 if it follows, 0 as by the most frequent."""
    marked = np.flatnonzero(codes >= 0)
    is_few = len(np.unique(values[marked[:1000]])) <= MAX_CLASSES  # of a measurement, not all are sorted
    distinct, level = np.unique(values[marked] if is_few else [], return_inverse=True)
    if not 0 < len(distinct) <= MAX_CLASSES:
        return 0.0
    counts = np.zeros((len(distinct), int(codes.max()) + 1), dtype=np.int64)
    np.add.at(counts, (level.reshape(-1), codes[marked]), 1)
    if counts.max(0).sum() == len(marked) > counts.sum(1).max():  # each class has one value: codes, or one class of all
        return 1.0
    chance = max(counts.sum(0).max(), counts.sum(1).max())
    return float(min(counts.max(0).sum(), counts.max(1).sum()) - chance) / max(len(marked) - chance, 1)


# Tables for the user: pandas, polars or Arrow.

KINDS = ("pandas", "polars", "pyarrow")


def as_frame(table: pa.Table | dict[str, Any], kind: str = "pandas") -> Any:
    """An Arrow table, or columns by name, as a frame of the kind asked for."""
    check_choice("kind of frame", kind, KINDS)
    arrow = table if isinstance(table, pa.Table) else pa.table(table)
    try:
        return nw.from_arrow(arrow, backend=kind).to_native()  # type: ignore[arg-type]
    except ImportError:
        raise ValueError(
            f"to_frame({kind!r}) needs {kind}, which is not installed. Install it with: pip install {kind}. Without "
            "it, to_frame('pyarrow') works."
        ) from None


def frame_index(given: Any) -> Any:
    """The index of a pandas frame; None of anything else."""
    return given.index if nw.dependencies.is_pandas_dataframe(given) else None


def like_given(values: np.ndarray, given: Any) -> Any:
    """Values as a pandas frame with the index and columns of the one given; as they are where it was none."""
    index = frame_index(given)
    return values if index is None else type(given)(values, index=index, columns=given.columns)


def like_table(lines: pa.Table, given: Any) -> Any:
    """A table with a column `row` in the kind of the frame given, in pandas with its index; else as Arrow."""
    index = frame_index(given)
    if index is not None:
        frame = as_frame(lines, "pandas")
        frame.index = index.take(lines["row"].to_numpy())
        return frame
    return as_frame(lines, "polars") if nw.dependencies.is_polars_dataframe(given) else lines


# CSV that spreadsheet programs show and never run.

VERDICT = "verdict"  # the last column of issues.csv, in which people type


def with_verdicts(issues: pa.Table) -> pa.Table:
    """The issues with an empty column in which people type what is right."""
    return issues.append_column(VERDICT, pa.nulls(len(issues), pa.string()))


def write_safe_csv(table: pa.Table, path: Path) -> None:
    """Write a table as CSV in which no text starts a formula; numbers stay numbers.

    It starts with a byte-order mark, as the page's downloads do: without one Excel reads UTF-8 as something else.
    """
    with closing(SafeCsvWriter(path, table.schema)) as writer:
        writer.write_table(table)


def guarded(table: pa.Table) -> pa.Table:
    """The table with safe texts and titles; dictionary encoding and bytes become plain texts, which can be guarded."""
    for index, field in enumerate(table.schema):
        values = table.column(index)
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
            texts = [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
            values = pa.chunked_array([pa.array(texts, pa.string())])
        table = table.set_column(index, field.name, safe_texts(values) if is_text(values.type) else values)
    return table.rename_columns(safe_texts(pa.array(table.column_names, pa.string())).to_pylist())


class SafeCsvWriter:
    """Writes a table part by part as `write_safe_csv` writes a whole one."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("wb")
        self._file.write(codecs.BOM_UTF8)
        try:
            self._writer = csv.CSVWriter(self._file, guarded(schema.empty_table()).schema)
        except BaseException:
            self._file.close()
            raise

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(guarded(table))

    def close(self) -> None:
        self._writer.close()
        self._file.close()
