"""Open any table once, and load its columns as Arrow arrays, whatever library or file it came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide._validation import UnanswerableError, listed
from labeltide.tables.files import format_of, list_extensions, open_file, read_as_written
from labeltide.tables.words import quoted


class OpenTable(NamedTuple):
    """The names of the columns, and functions that load some of them; `written` gives those of CSV files as texts."""

    names: list[str]
    load: Callable[[list[str]], nw.DataFrame]
    written: Callable[[list[str]], pa.Table] | None = None


@dataclass(frozen=True)
class Column:
    """One column: an Arrow array, or Python objects where Arrow has no type for them.

    Attributes
    ----------
    array : Arrow array without dictionary encoding, or None where the column holds Python objects
    kind : the name of its type, for sentences
    to_list : gives the values as Python objects
    """

    name: str
    array: pa.Array | None
    kind: str
    to_list: Callable[[], list[Any]]

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
