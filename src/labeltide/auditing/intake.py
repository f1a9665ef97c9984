"""Any table as Arrow columns of plain types, whatever library or file it came from."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import UnanswerableError
from labeltide.auditing.words import quoted
from labeltide.tables.columns import check_unique, open_table, to_arrow


def load_table(table: Any, wanted: set[str] | None = None) -> pa.Table:
    """The wanted columns, or all, as plain Arrow arrays in the table's own order."""
    names, load = open_table(table)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ValueError(f"Every column must be named by a text. Got {quoted(odd)}. Rename these columns.")
    if any("\0" in name for name in names):  # Arrow's own interface would end a name there
        raise ValueError("No name of a column may hold the character NUL. Rename such columns.")
    check_unique(names)
    if not names:
        raise ValueError("The table must have columns. Got none.")
    frame = load([name for name in names if wanted is None or name in wanted])
    if not len(frame):
        raise UnanswerableError("The table must hold at least one row. Got none.")
    return pa.table({name: _plain(frame[name]) for name in frame.columns})


def column_names(table: Any) -> list[str]:
    """The names of the columns, without reading them."""
    return [str(name) for name in open_table(table)[0]]


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


def _plain(series: nw.Series) -> pa.Array:
    try:
        array = to_arrow(series)
    except (pa.ArrowException, TypeError, OverflowError, NotImplementedError):
        array = _from_objects(series.to_list())
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
