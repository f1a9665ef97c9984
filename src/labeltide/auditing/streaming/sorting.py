"""Tables on disk in the order of sequences and times: sorted outside memory by DuckDB where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from labeltide._extras import import_extra
from labeltide.tables.addresses import reading
from labeltide.tables.file_set import FileSet, csv_options
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.row_stream import RowStream
from labeltide.tables.tidying import NOTHING, Tidying

ROW = "labeltide row number"  # added, so that results can name the rows of the user's own table
BATCH = 100_000
GROUP = 250_000  # rows of a row group that is written here
MEMORY = "1GB"  # that DuckDB may take before it sorts on disk


def read_batches(files: FileSet, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """All rows of parquet or CSV files in batches, with the number of each row."""
    first = 0
    source = _parquet_batches(files, columns) if files.kind == "parquet" else _csv_batches(files, columns)
    for batch in source:
        if ROW in batch.schema.names:  # it has been added before
            yield batch
            continue
        numbers = pa.array(np.arange(first, first + len(batch)))
        yield pa.record_batch([*batch.columns, numbers], names=[*batch.schema.names, ROW])
        first += len(batch)


def write_in_order(
    files: FileSet, columns: list[str], path: Path, on_rows: Callable[[int], None] = lambda rows: None
) -> None:
    """Write the rows as they come to a parquet file with small row groups, from which ranges can be read."""
    writer, waiting, held, done = None, list[pa.RecordBatch](), 0, 0
    for batch in read_batches(files, columns):
        waiting.append(batch)
        held += len(batch)
        writer = writer or parquet.ParquetWriter(path, batch.schema, compression="zstd", compression_level=1)
        if held >= GROUP:
            writer.write_table(pa.Table.from_batches(waiting))
            done, waiting, held = done + held, [], 0
            on_rows(done)
    if waiting and writer is not None:
        writer.write_table(pa.Table.from_batches(waiting))
    if writer is None:
        raise ValueError("The table must hold at least one row. Got none.")
    writer.close()


def write_sorted(
    files: FileSet, columns: list[str], roles: RoleColumns, path: Path, work: Path, tidy: Tidying = NOTHING
) -> None:
    """Sort by sequence, time and annotator with DuckDB, which uses disk where memory does not suffice.

    Columns are tidied first, because texts of numbers have another order.
    """
    purpose = "Sorting a table that does not fit into memory, and is not in the order of sequences and times,"
    duckdb = import_extra("duckdb", "sort", purpose, "sort it before")
    work.mkdir(parents=True, exist_ok=True)
    batches = (_tidy_batch(batch, tidy) for batch in read_batches(files, columns))
    head = next(batches, None)
    if head is None:
        raise ValueError("The table must hold at least one row. Got none.")

    def rows() -> Iterator[pa.RecordBatch]:
        yield head
        yield from batches

    reader = pa.RecordBatchReader.from_batches(head.schema, rows())
    keys = [
        *roles.sequence,
        *([roles.time] if roles.time else []),
        *([roles.annotator] if roles.annotator else []),
        ROW,
    ]
    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        connection.execute(f"SET temp_directory = {_quoted(str(work), chr(39))}")
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", reader)
        order = ", ".join(_quoted(key, '"') for key in dict.fromkeys(keys))
        options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {GROUP}"
        target = _quoted(str(path), chr(39))
        connection.execute(f"COPY (SELECT * FROM rows ORDER BY {order}) TO {target} ({options})")
    with suppress(OSError):
        work.rmdir()


def _tidy_batch(batch: pa.RecordBatch, tidy: Tidying) -> pa.RecordBatch:
    """A batch with the changes of a table."""
    return tidy(pa.Table.from_batches([batch])).combine_chunks().to_batches()[0] if len(batch) else batch


def _quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, 2 * mark) + mark


def _parquet_batches(files: FileSet, columns: list[str]) -> Iterator[pa.RecordBatch]:
    yield from RowStream.of_files(files, columns, []).batches(BATCH)


def _csv_batches(files: FileSet, columns: list[str]) -> Iterator[pa.RecordBatch]:
    options = csv_options(files.separator, files.schema)
    options["convert_options"].include_columns = columns  # type: ignore[attr-defined]
    for path in files.paths:
        try:
            with (
                reading(path, "csv", OSError),
                files.filesystem.open_input_stream(path) as source,
                csv.open_csv(source, **options) as reader,
            ):
                yield from (batch for batch in reader if len(batch))
        except pa.ArrowException as error:
            raise ValueError(
                f"The file {path!r} cannot be read as the first rows of all files suggest: {str(error).rstrip('.')}. "
                "Write it as parquet, where columns have types."
            ) from None
