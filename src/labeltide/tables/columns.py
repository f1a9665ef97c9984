"""Columns as NumPy arrays: numbers, times, or codes into the distinct values (factorising)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._validation import missing_labels
from labeltide.tables.intake import Column, is_number
from labeltide.tables.wording import name_rows, quoted


def read_numbers(column: Column, role: str) -> np.ndarray:
    """A finite float64 column."""
    if column.array is None or not _is_numeric(column.array.type):
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


def read_times(column: Column, role: str = "time") -> tuple[np.ndarray, np.ndarray]:
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
    """Codes into the distinct labels, in order of appearance; -1 where nothing was recorded."""
    codes, distinct = factorize(column)
    # Whole numbers become floats in pandas as soon as one is missing; give them back their names.
    if (codes < 0).any() and all(isinstance(value, float) and value.is_integer() for value in distinct):
        distinct = _as_objects([int(value) for value in distinct])
    return _drop(codes, distinct, missing_labels(distinct))


def factorize(column: Column, role: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes into the distinct values, in order of appearance; nulls are -1, or an error in a named role."""
    codes, distinct = _factorize_arrow(column.array) or _factorize_objects(column)
    missing = np.array([v is None or (v != v) is not False for v in distinct], dtype=bool)
    codes, distinct = _drop(codes, distinct, missing)
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


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(is_number(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind))


def _factorize_arrow(array: pa.Array | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Dictionary encoding by Arrow; None where Arrow cannot do it."""
    if array is None:
        return None
    try:
        encoded = array.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy(), _as_objects(_to_python(encoded.dictionary))
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


def _drop(codes: np.ndarray, distinct: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the code -1 to some of the values, and to what had it before."""
    return np.append(np.where(missing, -1, np.cumsum(~missing) - 1), -1)[codes], distinct[~missing]


def _to_python(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":  # Python knows no nanoseconds
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    return array.to_pylist()


def _as_objects(values: Sequence[Any]) -> np.ndarray:
    return np.fromiter(values, dtype=object, count=len(values))  # np.array would unpack tuples


def _check_full(name: str, role: str, missing: np.ndarray) -> None:
    if missing.any():
        rows = name_rows(np.flatnonzero(missing))
        raise ValueError(f"The {role} column {quoted([name])} must be given in every row. It is null in {rows}.")
