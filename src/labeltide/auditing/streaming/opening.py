"""Open a large table: find its columns, put its rows in order where they are not, and survey them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from labeltide.auditing.options import AuditOptions
from labeltide.auditing.streaming.chunks import plan_chunks
from labeltide.auditing.streaming.layout import Layout
from labeltide.auditing.streaming.sorting import ROW, read_batches, write_in_order, write_sorted
from labeltide.auditing.streaming.survey import UnsortedError, survey
from labeltide.tables.column_counts import TableCounts
from labeltide.tables.file_set import FileSet, open_files
from labeltide.tables.intake import is_text, load_table, open_table
from labeltide.tables.role_guesses import RoleColumns, find_columns
from labeltide.tables.roles import Reading, Request
from labeltide.tables.row_stream import RowStream
from labeltide.tables.tidying import NOTHING, Tidying

HEAD_ROWS = 100_000  # from which columns are found
OnRows = Callable[[int], None]


def check_options(files: FileSet, options: AuditOptions) -> None:
    """Refuse what is only for tables that are read into memory."""
    if options.decisions is not None or options.baseline is not None:
        raise ValueError(
            f"Decisions and a baseline are for tables that are read into memory. This one has {files.n_rows:,} rows: "
            "audit a part of it, or compare the two folders afterwards with `labeltide compare`."
        )
    if options.reading != Reading():
        raise ValueError(
            "drop_bad_rows (--drop-bad-rows) and timezone (--timezone) are for tables that are read into memory. This "
            f"one has {files.n_rows:,} rows: leave bad rows out and convert times beforehand."
        )


def find_roles(files: FileSet, request: Request, *, labelled: bool = True) -> RoleColumns:
    """Which column plays which role, from the first rows."""
    head, held = [], 0
    for batch in read_batches(files, files.schema.names):
        head.append(batch)
        held += len(batch)
        if held >= HEAD_ROWS:
            break
    table = pa.Table.from_batches(head).drop_columns([ROW]) if head else files.schema.empty_table()
    return find_columns(load_table(open_table(table)), request, labelled=labelled)


def count_columns(files: FileSet, roles: RoleColumns, names: set[str] | None, on_rows: OnRows) -> TableCounts:
    """Count what some columns hold, or all, in one pass over the files as they were given."""
    counts, done = TableCounts(), 0
    for batch in read_batches(files, [name for name in files.schema.names if names is None or name in names]):
        table = pa.Table.from_batches([batch]).drop_columns([ROW])
        if len(table):
            counts.add(load_table(open_table(table)), roles)
        done += len(table)
        on_rows(done)
    return counts


def used_columns(files: FileSet, roles: RoleColumns, more: list[str] | None = None) -> list[str]:
    """The columns to read, in the order of the files."""
    single = [roles.time, roles.annotator, roles.trusted]
    wanted = {*roles.sequence, *roles.label, *roles.clock, *roles.features, *single, *(more or [])}
    return [name for name in files.schema.names if name in wanted]


def needs_copy(files: FileSet) -> bool:
    """Whether ranges of rows cannot be read from the files as they are: CSV, or parquet with huge row groups."""
    return files.kind == "csv" or not RowStream.of_files(files, [], []).is_fine


def open_layout(
    files: FileSet,
    roles: RoleColumns,
    columns: list[str],
    window: int | None,
    work: Path,
    on_rows: OnRows,
    tidy: Tidying = NOTHING,
) -> tuple[Layout, list[str]]:
    """The rows in order, surveyed and cut into chunks, and sentences about what had to be done."""
    said: list[str] = []
    files = _with_numbers(files, roles)
    sorted_path, copy_path = work / "sorted.parquet", work / "table.parquet"
    coded = [name for name in (*roles.sequence, *roles.label, roles.annotator) if name and is_text(_kind(files, name))]
    if not sorted_path.exists() and needs_copy(files):
        if not copy_path.exists():
            _write_whole(copy_path, lambda path: write_in_order(files, columns, path, on_rows))
        files = open_files(copy_path)
    copied = files.paths == (str(copy_path),)
    stream = RowStream.of_files(files, [*columns, ROW] if copied else columns, coded, tidy)
    try:
        if sorted_path.exists():
            raise UnsortedError("It has been sorted before.")
        found = survey(stream, roles, on_rows)
    except UnsortedError:
        if not sorted_path.exists():
            wanted = [*columns, ROW] if copied else columns
            _write_whole(sorted_path, lambda path: write_sorted(files, wanted, roles, path, work / "sort", tidy))
        said.append("The rows were not in the order of sequences and times and were sorted on disk.")
        stream = RowStream.of_path(sorted_path, [*columns, ROW], coded, tidy)
        found = survey(stream, roles, on_rows)
        copied = True
    layout = Layout(stream, roles, found, plan_chunks(found, window), row_column=ROW if copied else None)
    return layout, said


def _write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write to another name first: what bears this one is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".partial")
    draft.unlink(missing_ok=True)
    write(draft)
    draft.rename(path)


def _kind(files: FileSet, name: str) -> pa.DataType:
    return files.schema.field(name).type


def _with_numbers(files: FileSet, roles: RoleColumns) -> FileSet:
    """Whole numbers of features in CSV files as numbers: later rows may hold fractions."""
    if files.kind != "csv":
        return files
    fields = [
        pa.field(each.name, pa.float64() if each.name in roles.features and each.type == pa.int64() else each.type)
        for each in files.schema
    ]
    return replace(files, schema=pa.schema(fields))
