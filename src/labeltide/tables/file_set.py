"""Several files as one table: a folder, a glob, or an address of any file system that pyarrow knows (s3://, gs://)."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, fs, parquet

from labeltide.tables.addresses import ADDRESS, open_address, reading, refusal, without_secrets
from labeltide.tables.files import TEXT
from labeltide.tables.wording import quoted

KINDS = (".parquet", *TEXT)
GLOB = re.compile(r"[*?\[]")
HEAD = 1 << 20  # bytes of a CSV file from which the types of its columns are told
MOST_ROWS_TOLD = 20_000  # rows of the head


@dataclass(frozen=True)
class FileSet:
    """Files of one kind, sorted by their paths, and the schema that they share.

    Attributes
    ----------
    kind : "parquet" or "csv"
    rows : number of rows of every file; for CSV an estimate from the size of its first rows
    separator : between the cells of a CSV file
    """

    filesystem: fs.FileSystem
    paths: tuple[str, ...]
    kind: str
    schema: pa.Schema
    rows: tuple[int, ...]
    sizes: tuple[int, ...]
    separator: str = ","

    @property
    def n_rows(self) -> int:
        return sum(self.rows)

    @property
    def n_bytes(self) -> int:
        return sum(self.sizes)


def is_address(table: object) -> bool:
    """Whether a table is named by more than the path of one file: a folder, a glob or an address."""
    if not isinstance(table, str | Path):
        return False
    text = str(table)
    path = Path(text)
    return bool(ADDRESS.match(text)) or path.is_dir() or (bool(GLOB.search(text)) and not path.exists())


def open_files(table: str | Path) -> FileSet:
    """Find the files of an address, and check that all have the same columns."""
    filesystem, found = _find(str(table))
    ends = {_ending(info.path) for info in found}
    if len({"parquet" if end == ".parquet" else end.removesuffix(".gz") for end in ends}) > 1:
        raise ValueError(
            f"The files of a table must be of one kind. {str(table)!r} names {quoted(sorted(ends))}. Name the files of "
            "one kind with a glob, such as 'folder/*.parquet'."
        )
    found = sorted((info for info in found if info.size), key=lambda info: info.path)  # files of no bytes hold no rows
    if not found:
        raise ValueError(f"The files of a table must hold rows. All files of {str(table)!r} are empty.")
    paths, sizes = tuple(info.path for info in found), tuple(info.size for info in found)
    if ".parquet" in ends:
        schema, rows = _parquet_schema(filesystem, paths)
        return FileSet(filesystem, paths, "parquet", schema, rows, sizes)
    separator = "\t" if any(".tsv" in end for end in ends) else _separator(filesystem, paths[0])
    schema, rows = _csv_schema(filesystem, paths, sizes, separator)
    return FileSet(filesystem, paths, "csv", schema, rows, sizes, separator)


def csv_options(separator: str, schema: pa.Schema | None = None) -> dict[str, object]:
    """The options with which pyarrow reads CSV here."""
    types = None if schema is None else {field.name: field.type for field in schema}
    return {
        "parse_options": csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        "convert_options": csv.ConvertOptions(strings_can_be_null=True, column_types=types),
    }


def _find(text: str) -> tuple[fs.FileSystem, list[fs.FileInfo]]:
    try:
        filesystem, path = open_address(text) if ADDRESS.match(text) else (fs.LocalFileSystem(), text)
        if GLOB.search(path) and filesystem.get_file_info(path).type == fs.FileType.NotFound:
            base = path[: GLOB.search(path).start()].rpartition("/")[0]  # type: ignore[union-attr]
            selector = fs.FileSelector(
                base or ("/" if path.startswith("/") else "."), recursive="/" in path[len(base) + 1 :]
            )
            pattern = path if base or path.startswith("/") else f"./{path}"
            found = [info for info in filesystem.get_file_info(selector) if _matches(info.path, path, pattern)]
        elif filesystem.get_file_info(path).type == fs.FileType.Directory:
            found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
        else:
            found = [filesystem.get_file_info(path)]
    except (OSError, pa.ArrowException) as error:
        raise refusal(text, error) from None
    files = [info for info in found if info.type == fs.FileType.File and _ending(info.path)]
    if not files:
        ends = ", ".join(KINDS)
        raise FileNotFoundError(
            f"No file of a table is found at {without_secrets(text)!r}. Its files must end in {ends}."
        )
    return filesystem, files


def _matches(path: str, *patterns: str) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def _ending(path: str) -> str:
    name = path.rpartition("/")[2].lower()
    if name.startswith((".", "_")):  # what other programs leave beside their files
        return ""
    return next((end for end in sorted(KINDS, key=len, reverse=True) if name.endswith(end)), "")


def _parquet_schema(filesystem: fs.FileSystem, paths: tuple[str, ...]) -> tuple[pa.Schema, tuple[int, ...]]:
    first: pa.Schema | None = None
    rows = []
    for path in paths:
        with reading(path), filesystem.open_input_file(path) as source:
            file = parquet.ParquetFile(source, pre_buffer=False)
            schema, count = file.schema_arrow.remove_metadata(), file.metadata.num_rows
        first = first or schema
        if not schema.equals(first):
            raise ValueError(_difference(first, paths[0], schema, path))
        rows.append(count)
    assert first is not None
    return first, tuple(rows)


def _csv_schema(
    filesystem: fs.FileSystem, paths: tuple[str, ...], sizes: tuple[int, ...], separator: str
) -> tuple[pa.Schema, tuple[int, ...]]:
    """The schema of all files: whole numbers are numbers, and what is empty is anything, where another file says so."""
    joined: pa.Schema | None = None
    rows = []
    for path, size in zip(paths, sizes, strict=True):
        head = _csv_head(filesystem, path, separator)
        rows.append(int(len(head) * max(1.0, size / max(head.nbytes_read, 1))) if len(head.table) else 0)
        joined = head.table.schema if joined is None else _join(joined, paths[0], head.table.schema, path)
    assert joined is not None
    fields = [pa.field(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in joined]
    return pa.schema(fields), tuple(rows)


@dataclass(frozen=True)
class _Head:
    table: pa.Table
    nbytes_read: int

    def __len__(self) -> int:
        return len(self.table)


def _csv_head(filesystem: fs.FileSystem, path: str, separator: str) -> _Head:
    """The first rows of a CSV file, and how many of its bytes they take; a compressed file is taken as ten times."""
    packed = path.lower().endswith(".gz")
    with reading(path, "csv"):
        with filesystem.open_input_stream(path) as source:
            raw = source.read(HEAD)
        cut = raw if len(raw) < HEAD else raw[: raw.rfind(b"\n") + 1]
        if not raw.strip():
            return _Head(pa.table({}), len(raw))
        table = csv.read_csv(pa.BufferReader(cut), **csv_options(separator))
    return _Head(table, len(cut) // 10 if packed else len(cut))


def _join(first: pa.Schema, first_path: str, schema: pa.Schema, path: str) -> pa.Schema:
    if not schema.names:
        return first
    if first.names != schema.names:
        raise ValueError(_difference(first, first_path, schema, path))
    fields = []
    for one, other in zip(first, schema, strict=True):
        kind = _wider(one.type, other.type)
        if kind is None:
            raise ValueError(_difference(first, first_path, schema, path))
        fields.append(pa.field(one.name, kind))
    return pa.schema(fields)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    numbers = {pa.int64(), pa.float64()}
    if {one, other} == numbers:
        return pa.float64()
    moments = pa.types.is_timestamp(one) and pa.types.is_timestamp(other)
    return pa.timestamp("ns") if moments and one.tz == other.tz is None else None


def _difference(first: pa.Schema, first_path: str, schema: pa.Schema, path: str) -> str:
    """A sentence that names the file that differs, and in what."""
    rule = "All files of a table must have the same columns of the same types."
    if sorted(first.names) == sorted(schema.names):
        kinds = [
            f"{f.name!r} ({schema.field(f.name).type}, not {f.type})"
            for f in first
            if schema.field(f.name).type != f.type
        ]
        what = f"differs in {', '.join(kinds[:5])}" if kinds else "has its columns in another order"
    else:
        lacks = [name for name in first.names if name not in schema.names]
        more = [name for name in schema.names if name not in first.names]
        parts = [f"has no {quoted(lacks)}" if lacks else "", f"also has {quoted(more)}" if more else ""]
        what = " and ".join(part for part in parts if part) or "repeats a column"
    return f"{rule} {path!r} {what}, unlike {first_path!r}. Leave it out, or write it anew."


def _separator(filesystem: fs.FileSystem, path: str) -> str:
    with reading(path, "csv"), filesystem.open_input_stream(path) as source:
        line = source.read(1 << 16).split(b"\n")[0].decode("utf-8", "replace")
    return max(",;\t|", key=re.sub(r'"[^"]*"', "", line).count)
