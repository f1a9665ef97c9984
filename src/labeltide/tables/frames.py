"""Tables for the user: pandas, polars or Arrow."""

from __future__ import annotations

import codecs
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from labeltide._files import safe_texts
from labeltide._validation import check_choice
from labeltide.tables.intake import is_text

KINDS = ("pandas", "polars", "pyarrow")


def as_frame(table: pa.Table | dict[str, Any], kind: str = "pandas") -> Any:
    """An Arrow table, or columns by name, as a frame of the kind asked for."""
    check_choice("kind of frame", kind, KINDS)
    arrow = table if isinstance(table, pa.Table) else pa.table(table)
    if kind == "pyarrow":
        return arrow
    try:
        if kind == "pandas":
            return arrow.to_pandas()
        import polars

        return polars.from_arrow(arrow)
    except ImportError:
        raise ValueError(
            f"to_frame({kind!r}) needs {kind}, which is not installed. Install it with: pip install {kind}. Without "
            "it, to_frame('pyarrow') works."
        ) from None


def frame_index(given: Any) -> Any:
    """The index of a pandas frame; None of anything else."""
    pandas = sys.modules.get("pandas")
    return given.index if pandas is not None and isinstance(given, pandas.DataFrame) else None


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
    polars = sys.modules.get("polars")
    is_polars = polars is not None and isinstance(given, polars.DataFrame)
    return as_frame(lines, "polars") if is_polars else lines


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
