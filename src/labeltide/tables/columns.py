"""Columns of any table as plain arrays: opening the table, reading a column, refusing what cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from labeltide._validation import missing_labels
from labeltide.tables.files import open_file

ROLES = ("sequence", "time", "label", "features", "annotator", "clock", "clean", "zscore")
OPTIONAL = ("annotator", "clock", "clean", "zscore")
SEVERAL = ("sequence", "features", "zscore")  # roles that several columns can share among them
# A time may also be a clock or a feature. Any other column with two roles leaks a label or is a slip.
MAY_SHARE = [{"time", "clock"}, {"time", "features"}, {"clock", "features"}, {"sequence", "zscore"}]


def open_table(table: Any) -> tuple[list[str], Callable[[list[str]], nw.DataFrame]]:
    """The names of the columns, and a function that loads some of them."""
    if isinstance(table, str | Path):
        table = open_file(Path(table))
    if isinstance(table, parquet.ParquetFile):
        return table.schema_arrow.names, lambda names: nw.from_native(table.read(columns=names))
    try:
        frame = nw.from_native(table).lazy()
    except TypeError:
        raise ValueError(
            "table must be a data frame (pandas, polars, pyarrow or another that narwhals reads) or the path "
            f"of a .parquet, .csv or .arrow file. Got {type(table).__name__}."
        ) from None
    except ValueError:  # narwhals refuses repeated names, also of columns that nobody asked for
        check_unique(getattr(table, "column_names", getattr(table, "columns", ())))
        raise
    return frame.collect_schema().names(), lambda names: frame.select(names).collect()


def columns_of_role(role: str, given: str | Sequence[str] | None) -> list[str]:
    """The columns of a role, after a check that they are named as they should be."""
    if given is None and role in OPTIONAL:
        return []
    names = list(given) if isinstance(given, list | tuple) and role in SEVERAL else [given]
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        rule = (
            "the name of a column, or a list of such names without repeats"
            if role in SEVERAL
            else "one column, by its name"
        )
        raise ValueError(f"{role} must be {rule}. Got {given!r}.")
    return [str(name) for name in names]


def check_roles(roles: dict[str, list[str]], there: list[str]) -> None:
    """Columns that are there, once, each in one role or in two that may share it."""
    absent = [name for names in roles.values() for name in names if name not in there]
    if absent:
        raise ValueError(f"The table has no column {name_all(absent)}. It has: {name_all(there)}.")
    check_unique(name for name in there if any(name in names for names in roles.values()))
    for one, other in combinations(roles, 2):
        shared = set(roles[one]) & set(roles[other])
        if shared and {one, other} not in MAY_SHARE:
            raise ValueError(f"A column can play one role. Got {name_all(sorted(shared))} for both {one} and {other}.")


def check_repeats(rows: np.ndarray, with_annotator: bool) -> None:
    """No rows that repeat the key of an earlier one."""
    if not len(rows):
        return
    key, hint = "sequence, time and annotator", "Drop the repeats."
    if not with_annotator:
        key, hint = (
            "sequence and time",
            "Give annotator= if several people labelled a step, or drop repeats.",
        )
    raise ValueError(f"Every {key} may occur once. An earlier row is repeated in {name_rows(rows)}. {hint}")


def read_numbers(series: nw.Series, role: str) -> np.ndarray:
    """A finite float64 column."""
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        ways = "numbers or datetimes" if role == "clock" else "numbers"
        raise ValueError(f"The {role} column {series.name!r} must hold {ways}. Got {series.dtype}.")
    values = to_arrow(series).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(values.astype(np.float32))
    if wrong.any():
        raise ValueError(
            f"The {role} column {series.name!r} must be finite. It is null, NaN, infinite or too large for "
            f"float32 in {name_rows(np.flatnonzero(wrong))}. Fill or drop these."
        )
    return values


def read_times(series: nw.Series, role: str = "time") -> tuple[np.ndarray, np.ndarray]:
    """The user's own moments, and whole numbers in the same order."""
    if not (series.dtype.is_integer() or series.dtype.is_float() or series.dtype.is_temporal()):
        codes, distinct = factorize(series, role)
        codes, distinct = sort_codes(series.name, codes, distinct)
        return distinct[codes], codes
    array = to_arrow(series)
    _check_full(series.name, role, array.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))
    values = array.to_numpy(zero_copy_only=False)
    return values, np.unique(values, return_inverse=True)[1].reshape(-1)


def factorize_labels(series: nw.Series) -> tuple[np.ndarray, np.ndarray]:
    """Codes into the distinct labels, in order of appearance; -1 where nothing was recorded."""
    codes, distinct = factorize(series)
    # Whole numbers become floats in pandas as soon as one is missing; give them back their names.
    if (codes < 0).any() and all(isinstance(value, float) and value.is_integer() for value in distinct):
        distinct = _as_objects([int(value) for value in distinct])
    return _drop(codes, distinct, missing_labels(distinct))


def factorize(series: nw.Series, role: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes into the distinct values, in order of appearance; nulls are -1, or an error in a given role."""
    try:
        encoded = to_arrow(series).dictionary_encode(null_encoding="encode")
        codes, distinct = encoded.indices.to_numpy(), _as_objects(_to_python(encoded.dictionary))
    except pa.ArrowException:  # tuples, mixed types and other Python objects
        codes, distinct = _factorize_objects(series)
    gaps = np.array([v is None or (v != v) is not False for v in distinct], dtype=bool)
    codes, distinct = _drop(codes, distinct, gaps)
    if role:
        _check_full(series.name, role, codes < 0)
    return codes, distinct


def group_rows(frame: nw.DataFrame, names: list[str], role: str) -> tuple[np.ndarray, list[tuple]]:
    """Codes and keys of the distinct combinations of the columns, in order of appearance."""
    parts = [factorize(frame[name], role) for name in names]
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
        raise ValueError(f"Column {name!r} must hold values of one kind, which can be sorted.") from None
    return np.argsort(order)[codes], distinct[order]


def name_rows(rows: np.ndarray, most: int = 5) -> str:
    """Rows by their number, counted from 0."""
    shown = ", ".join(str(row) for row in rows[:most])
    more = f", ... ({len(rows)} in all)" if len(rows) > most else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"


def _factorize_objects(series: nw.Series) -> tuple[np.ndarray, np.ndarray]:
    index: dict[Any, int] = {}
    try:
        codes = [index.setdefault(value, len(index)) for value in series.to_list()]
    except TypeError:
        rule = "must hold hashable values: numbers, strings, tuples and the like"
        raise ValueError(f"Column {series.name!r} {rule}. Got {series.dtype}.") from None
    return np.array(codes), _as_objects([v.item() if isinstance(v, np.generic) else v for v in index])


def _drop(codes: np.ndarray, distinct: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the code -1 to some of the values, and to what had it before."""
    return np.append(np.where(gaps, -1, np.cumsum(~gaps) - 1), -1)[codes], distinct[~gaps]


def to_arrow(series: nw.Series) -> pa.Array:
    """One Arrow array with plain values, no dictionary; Python objects are refused."""
    if series.dtype == nw.Object:
        raise pa.ArrowInvalid("Python objects stay Python objects.")
    array = series.to_arrow()
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _to_python(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":  # Python knows no nanoseconds
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    return array.to_pylist()


def _as_objects(values: Sequence[Any]) -> np.ndarray:
    return np.fromiter(values, dtype=object, count=len(values))  # np.array would unpack tuples


def check_unique(names: Iterable[Hashable]) -> None:
    """No two columns of one name."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"Every column of a table must have its own name. Got {name_all(repeated)} more than once. "
            "Rename or drop the repeats."
        ) from None  # narwhals' own words for it


def _check_full(name: str, role: str, gaps: np.ndarray) -> None:
    if gaps.any():
        rows = name_rows(np.flatnonzero(gaps))
        raise ValueError(f"The {role} column {name!r} must be given in every row. It is null in {rows}.")


def name_all(names: Sequence[Hashable], most: int = 20) -> str:
    """Names in quotes, the first of them where there are many."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")
