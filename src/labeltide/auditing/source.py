"""Whether a table is read into memory or in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from labeltide.tables.file_set import FileSet, is_address, open_files

MOST_ROWS = 2_000_000  # of a table that is read into memory
MOST_BYTES = 200_000_000  # of CSV files that are


def choose_source(table: Any) -> Any:
    """The table as it is, several small files as one table, or the files of a table that is read in parts."""
    if isinstance(table, str | Path) and not is_address(table):
        path = Path(table)
        if not path.is_file() or not path.name.lower().endswith((".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")):
            return table  # the reader of single files says what is wrong with it
        if not _may_be_large(path):
            return table
    elif not is_address(table):
        return table
    files = open_files(table)
    if is_large(files):
        return files
    return read_all(files) if is_address(table) else table


def is_large(files: FileSet) -> bool:
    """Whether the rows of files are read in parts."""
    return files.n_rows > MOST_ROWS or (files.kind == "csv" and files.n_bytes > MOST_BYTES)


def read_all(files: FileSet) -> pa.Table:
    """The rows of all files, in the order of their paths."""
    from labeltide.auditing.streaming.sorting import ROW, read_batches

    batches = list(read_batches(files, files.schema.names))
    if not batches:
        return files.schema.empty_table()
    return pa.Table.from_batches(batches).drop_columns([ROW])


def _may_be_large(path: Path) -> bool:
    """Whether a single file can hold so many rows: those of few bytes are read by the usual reader alone."""
    if path.name.lower().endswith(".parquet"):
        return path.stat().st_size > MOST_ROWS  # less than a byte for each row
    return path.stat().st_size > MOST_BYTES // 10
