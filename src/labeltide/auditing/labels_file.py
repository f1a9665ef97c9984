"""labels.parquet as it is read: columns of the types that an audit writes, or a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide.auditing.folder import LABELS

NUMBERS = ("probability_right", "suggested_probability", "clock")
MOST_ROWS = 2**53


def read_labels(source: pa.Table | Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of the labels of an audit, of a table in memory or of the file in a folder."""
    if isinstance(source, pa.Table):
        return source.select(list(columns))
    path = source / LABELS if source.is_dir() else source
    if not path.is_file():
        raise ValueError(f"{str(path.parent)!r} must hold {path.name}. Audit again to write it.")
    try:
        table = parquet.read_table(path, columns=list(columns))
        table.validate(full=True)
        names = parquet.read_schema(path).names
        odd = [name for name in {*columns, *names} if names.count(name) != 1]
        if odd:
            raise ValueError(f"it must have the column {odd[0]!r} once. It has it {names.count(odd[0])} times")
        return pa.table({name: _check_column(name, table[name]) for name in columns})
    except (pa.ArrowException, OSError, ValueError) as error:
        why = " ".join(str(error).split())[:300].rstrip(".")
        raise ValueError(f"{str(path)!r} is not what an audit of this version writes: {why}. Audit again.") from None


def _check_column(name: str, column: pa.ChunkedArray) -> Any:
    kind = column.type
    if name == "row":
        _expect(pa.types.is_integer(kind) and not column.null_count, name, "whole numbers")
        column = column.cast(pa.int64())
        ends = pc.min_max(column).as_py()
        _expect(not len(column) or (ends["min"] >= 0 and ends["max"] < MOST_ROWS), name, "rows of a table")
        return column
    if name == "is_issue":
        _expect(pa.types.is_boolean(kind), name, "true or false")
        return column
    if name in NUMBERS:
        _expect(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind), name, "numbers")
        column = column.cast(pa.float64())
        _expect(_is_within(column, 1.0 if name != "clock" else float("inf")), name, "finite numbers, chances in [0, 1]")
        return column
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    _expect(is_text or pa.types.is_dictionary(kind), name, "texts")
    _expect(name != "sequence" or not column.null_count, name, "texts without gaps")
    return column.cast(pa.string())


def _is_within(column: pa.ChunkedArray, most: float) -> bool:
    """Whether all numbers are finite or missing and, where there is a limit, from 0 to it."""
    values = column.to_numpy()
    known = values[~np.isnan(values)]
    if not np.isfinite(known).all():
        return False
    return most == float("inf") or not len(known) or (known.min() >= -1e-6 and known.max() <= most + 1e-6)


def _expect(is_right: bool, name: str, rule: str) -> None:
    if not is_right:
        raise ValueError(f"its column {name!r} must hold {rule}")
