"""Columns as NumPy arrays: numbers, times, or codes into the distinct values (factorising)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import encode_labels, null_values
from labeltide.tables.intake import Column, is_number, is_text, whole
from labeltide.tables.words import name_rows, quoted


def read_numbers(column: Column, role: str) -> np.ndarray:
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
    codes, distinct = _factorize_arrow(column.array) or _factorize_objects(column)
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


def _factorize_arrow(array: pa.Array | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Dictionary encoding by Arrow; None where Arrow cannot do it."""
    if array is None:
        return None
    try:
        encoded = array.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary
        if pa.types.is_timestamp(values.type) and values.type.unit == "ns":  # Python knows no nanoseconds
            values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
        return encoded.indices.to_numpy(), _as_objects(values.to_pylist())
    except pa.ArrowException:
        return None


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
        way_out = "Drop the repeats."
        if not roles["annotator"]:
            way_out = "Give annotator= if several people labelled a step, or drop repeats."
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
