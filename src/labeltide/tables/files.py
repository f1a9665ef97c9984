"""Files of tables: the registry of formats, several files as one table, and addresses (s3://, gs://)."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote
from zipfile import BadZipFile, ZipFile

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, feather, fs, ipc, parquet

from labeltide._files import import_extra, library_errors
from labeltide.tables.words import quoted

SEPARATORS = ",;\t|"
FIRST_LINE = 1 << 16  # bytes in which the first line of a text file ends
MAX_BYTES = 2**30  # of an Excel workbook, unpacked
MAX_CELLS = 50_000_000  # of its first sheet

# What pyarrow says when a later part of a file does not fit the type it saw in the first.
MISFIT = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to (\w+)")


def open_file(path: Path, names: Collection[str] = (), *, as_written: bool = False) -> parquet.ParquetFile | pa.Table:
    """A parquet file, of which some columns can be read, or a whole table.

    `names` are columns of names, which a CSV file keeps as written (see `number_type`); with `as_written` it keeps all
    but numbers with a fraction: 08:00, TRUE and 007 stay as they are.
    """
    found = format_of(path.name)
    if found is None:
        raise ValueError(f"The file of a table must end in {list_extensions()}. Got {str(path)!r}.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}. The path is read from {str(Path.cwd())!r}.")
    try:
        table = found.open(path)
        if found.in_parts == "csv" and (names or as_written):
            kept = [each.name for each in table.schema if as_written and not pa.types.is_floating(each.type)]
            written = read_as_written(path, [name for name in table.column_names if name in {*names, *kept}])
            for name, texts in zip(written.column_names, written.columns, strict=True):
                kind = number_type(texts.drop_null().unique().to_pylist()) or pa.string()
                table = table.set_column(table.column_names.index(name), name, read_names(texts, kind))
        return table
    except (pa.ArrowException, OSError, EOFError) as error:
        kind = path.name.lower().removesuffix(".gz").rsplit(".", 1)[-1]
        raise ValueError(f"The file {str(path)!r} cannot be read as {kind}: {str(error).rstrip('.')}.") from None


def format_of(name: str) -> TableFormat | None:
    """The format of a file, by the end of its name; None where no format has it."""
    return next((each for each in FORMATS if name.lower().endswith(each.extensions)), None)


def list_extensions() -> str:
    """The endings of all formats, for a sentence."""
    *most, last = [end for each in FORMATS for end in each.extensions]
    return f"{', '.join(most)} or {last}"


def _open_arrow(path: Path) -> pa.Table:
    """Arrow's file format and both kinds of Feather, or Arrow's stream."""
    try:
        table = feather.read_table(path)
    except pa.ArrowInvalid as error:
        with pa.memory_map(str(path)) as source:
            try:
                table = ipc.open_stream(source).read_all()
            except pa.ArrowException:
                raise error from None
    table.validate(full=True)  # offsets beyond the file would end the process when they are used
    return table


def _open_text(path: Path) -> pa.Table:
    parse = _parse_options(path)
    with suppress(UnicodeDecodeError):
        table = _read_widening(path, parse, "utf8")
        dict.fromkeys(table.column_names)  # names are decoded when asked for
        if not any(pa.types.is_binary(kind) for kind in table.schema.types):  # what is not UTF-8 stays bytes
            return table
    return _read_widening(path, parse, "latin-1")


def _read_widening(path: Path, parse: csv.ParseOptions, encoding: str) -> pa.Table:
    """Give a column a wider type (whole numbers, numbers, text) where a later part of the file asks for it."""
    read = csv.ReadOptions(encoding=encoding)
    types: dict[str, pa.DataType] = {}
    while True:
        options = csv.ConvertOptions(strings_can_be_null=True, column_types=types)
        try:
            table = csv.read_csv(path, read, parse, options)
            zoned = [each.name for each in table.schema if pa.types.is_timestamp(each.type) and each.type.tz]
            if not zoned:
                return table
            types |= dict.fromkeys(zoned, pa.string())  # pyarrow would give UTC, without the offset that was written
        except pa.ArrowInvalid as error:
            misfit = MISFIT.search(str(error))
            if not misfit:
                raise
            with csv.open_csv(path, read, parse, csv.ConvertOptions(column_types={})) as file:
                column = file.schema.names[int(misfit[1])]
            if types.get(column) == pa.string():
                raise
            types[column] = pa.float64() if misfit[2] in ("int64", "null") and column not in types else pa.string()


# Names in CSV files, which have no types: 007 and 7 are two names.

INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
NULLS = frozenset(csv.ConvertOptions().null_values)  # texts that are missing values in other columns


def read_as_written(path: Path, names: list[str] | None = None) -> pa.Table:
    """Some columns of a CSV file, or all, as texts; only empty cells are missing."""
    parse = _parse_options(path)
    for encoding in ("utf8", "latin-1"):
        read = csv.ReadOptions(encoding=encoding)
        try:
            with csv.open_csv(path, read, parse) as file:
                types = dict.fromkeys(file.schema.names, pa.string())
            options = csv.ConvertOptions(column_types=types, include_columns=names, strings_can_be_null=False)
            table = csv.read_csv(path, read, parse, options)
            break
        except (UnicodeDecodeError, pa.ArrowInvalid):
            if encoding == "latin-1":
                raise
    return pa.table({name: read_names(table[name], pa.string()) for name in table.column_names})


def number_type(texts: Iterable[str]) -> pa.DataType | None:
    """The type of a column of names that are all numbers in their canonical form; None where one is not.

    01, 1e5 and 3.50 are names: as numbers they would be written as 1, 100000 and 3.5, and 1 beside 1.0 would be one.
    """
    distinct = {text.strip() for text in texts}
    if all(INTEGER.fullmatch(text) for text in distinct):
        return pa.int64()
    try:
        numbers = {text: float(text) for text in distinct}
    except ValueError:
        return None
    for text, number in numbers.items():
        if not math.isfinite(number) or (text != repr(number) and not INTEGER.fullmatch(text)):
            return None
    return pa.float64() if len({*numbers.values()}) == len(numbers) else None


def read_names(column: Any, kind: pa.DataType, gaps: Collection[str] = ()) -> Any:
    """Texts as names of a type; empty ones are missing, and `gaps` are where names are numbers."""
    texts = [""] if pa.types.is_string(kind) else ["", *gaps]
    column = pc.if_else(pc.is_in(column, pa.array(texts, pa.string())), pa.scalar(None, pa.string()), column)
    return column if pa.types.is_string(kind) else pc.utf8_trim_whitespace(column).cast(kind)


def _parse_options(path: Path | str, filesystem: fs.FileSystem | None = None) -> csv.ParseOptions:
    """Cells end at a tab by the name of the file, else at the most frequent separator of its first line."""
    separator = "\t"
    if ".tsv" not in str(path).rpartition("/")[2].lower():
        with (filesystem or fs.LocalFileSystem()).open_input_stream(str(path)) as source:
            line = source.read(FIRST_LINE).split(b"\n")[0].decode("utf-8", "replace")
        separator = max(SEPARATORS, key=re.sub(r'"[^"]*"', "", line).count)
    return csv.ParseOptions(delimiter=separator, newlines_in_values=True)


def _open_excel(path: Path) -> pa.Table:
    """The first sheet of a workbook, read by openpyxl; its first row names the columns."""
    openpyxl = import_extra("openpyxl", "excel", "Reading Excel workbooks", "save the sheet as CSV")
    with library_errors(path, "xlsx"):  # warnings are about styles and extensions, which hold no data
        try:
            with ZipFile(path) as parts:
                size = sum(part.file_size for part in parts.infolist())
            if size > MAX_BYTES:  # more than memory should hold
                raise ValueError(f"it unpacks to more than {MAX_BYTES >> 30} GB. Save the sheet as CSV or Parquet")
            book = openpyxl.load_workbook(path, read_only=False, data_only=True)
        except BadZipFile:
            raise ValueError("it is not a workbook") from None
        if not book.worksheets:
            raise ValueError("it has no sheet")
        return _sheet_table(book.worksheets[0])


def _sheet_table(sheet: Any) -> pa.Table:
    merged = [str(cells) for cells in sheet.merged_cells.ranges]
    if merged:
        raise ValueError(
            f"cells of the sheet {sheet.title!r} are merged: {quoted(merged, 3)}. Unmerge them, or save as CSV"
        )
    if sheet.max_row * sheet.max_column > MAX_CELLS:
        raise ValueError("the sheet is too large. Save it as CSV or Parquet")
    rows = [row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)]
    if not rows:
        raise ValueError(f"the sheet {sheet.title!r} is empty. The table must lie in the first sheet")
    header = rows[0]
    used = [k for k in range(len(header)) if any(row[k] is not None for row in rows)]
    unnamed = [k for k in used if header[k] is None or not str(header[k]).strip()]
    if unnamed:
        letter = sheet.cell(1, unnamed[0] + 1).column_letter
        raise ValueError(
            f"column {letter} of the sheet {sheet.title!r} has no name in the first row. Name every column"
        )
    names = [str(header[k]).strip() for k in used]
    return pa.Table.from_arrays([_cells_array([row[k] for row in rows[1:]]) for k in used], names=names)


def _cells_array(cells: list[Any]) -> pa.Array:
    """Cells as Arrow's own type where they share one; whole numbers stay whole; else texts."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {date, datetime}:
        cells = [datetime.combine(cell, time()) if type(cell) is date else cell for cell in cells]
    elif len(kinds) > 1:
        change = float if kinds == {int, float} else str
        cells = [None if cell is None else change(cell) for cell in cells]
    return pa.array(cells)


class TableFormat(NamedTuple):
    """A format of tables."""

    extensions: tuple[str, ...]  # ends of file names, in small letters
    open: Callable[[Path], parquet.ParquetFile | pa.Table]  # to a file whose columns can be read, or to a whole table
    in_parts: str = ""  # "parquet" or "csv" where folders and large files are read in parts, by the reader of that name
    has_heading: bool = False  # whether a row of the file names the columns, so that people count its rows from 2


FORMATS = (
    TableFormat((".parquet",), parquet.ParquetFile, in_parts="parquet"),
    TableFormat((".csv", ".csv.gz", ".tsv", ".tsv.gz"), _open_text, in_parts="csv", has_heading=True),
    TableFormat((".arrow", ".feather", ".ipc"), _open_arrow),
    TableFormat((".xlsx",), _open_excel, has_heading=True),
)


# Several files as one table: a folder, a glob, or an address of any file system that pyarrow knows (s3://, gs://).

GLOB = re.compile(r"[*?\[]")
HEAD = 1 << 20  # bytes of a CSV file from which the types of its columns are inferred


@dataclass(frozen=True)
class FileSet:
    """Files of one format, sorted by their paths, and the schema that they share."""

    filesystem: fs.FileSystem
    paths: tuple[str, ...]
    kind: str  # "parquet" or "csv"
    schema: pa.Schema
    n_rows: int  # for CSV an estimate from the size of the first rows
    sizes: tuple[int, ...]
    separator: str = ","  # between the cells of a CSV file
    # Columns of names in CSV files, which are kept as written unless `schema` says that they are numbers:
    names: frozenset[str] = frozenset()
    gaps: frozenset[str] = frozenset()  # texts that stand for a missing one among names that are numbers

    def with_names(self, kinds: Mapping[str, pa.DataType], gaps: frozenset[str] = frozenset()) -> FileSet:
        """The same files with columns of names, which are texts or numbers."""
        fields = [pa.field(each.name, kinds.get(each.name, each.type)) for each in self.schema]
        return replace(self, schema=pa.schema(fields), names=frozenset(kinds), gaps=gaps)


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
    if len({end.removesuffix(".gz") for end in ends}) > 1:
        raise ValueError(
            f"The files of a table must be of one kind. {str(table)!r} names {quoted(sorted(ends))}. Name the files of "
            "one kind with a glob, such as 'folder/*.parquet'."
        )
    found = sorted((info for info in found if info.size), key=lambda info: info.path)  # files of no bytes hold no rows
    if not found:
        raise ValueError(f"The files of a table must hold rows. All files of {str(table)!r} are empty.")
    paths, sizes = tuple(info.path for info in found), tuple(info.size for info in found)
    if format_of(paths[0]).in_parts == "parquet":  # type: ignore[union-attr]
        schemas, n_rows = [], 0
        for path in paths:
            with file_errors(path), filesystem.open_input_file(path) as source:
                file = parquet.ParquetFile(source, pre_buffer=False)
                schemas.append(file.schema_arrow.remove_metadata())
                n_rows += file.metadata.num_rows
            if not schemas[-1].equals(schemas[0]):
                raise ValueError(_difference(schemas[0], paths[0], schemas[-1], path))
        return FileSet(filesystem, paths, "parquet", schemas[0], n_rows, sizes)
    return _open_csv_files(filesystem, paths, sizes)


def csv_batches(files: FileSet, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of CSV files in batches."""
    types = {each.name: pa.string() if each.name in files.names else each.type for each in files.schema}
    convert = csv.ConvertOptions(column_types=types, include_columns=columns, strings_can_be_null=not files.names)
    parse = csv.ParseOptions(delimiter=files.separator, newlines_in_values=True)
    for path in files.paths:
        try:
            with (
                file_errors(path, "csv", OSError),
                files.filesystem.open_input_stream(path) as source,
                csv.open_csv(source, parse_options=parse, convert_options=convert) as reader,
            ):
                yield from (_with_names(batch, files) for batch in reader if len(batch))
        except pa.ArrowException as error:
            raise ValueError(
                f"The file {path!r} cannot be read as the first rows of all files suggest: {str(error).rstrip('.')}. "
                "Write it as parquet, where columns have types."
            ) from None


def _with_names(batch: pa.RecordBatch, files: FileSet) -> pa.RecordBatch:
    """A batch whose names have their types; other texts are missing where pyarrow would take them so."""
    if not files.names:
        return batch
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name in files.names:
            array = read_names(array, files.schema.field(name).type, files.gaps)
        elif pa.types.is_string(array.type):
            is_null = pc.is_in(array, pa.array(sorted(NULLS), pa.string()))
            array = pc.if_else(is_null, pa.scalar(None, array.type), array)
        arrays.append(array)
    return pa.record_batch(arrays, names=batch.schema.names)


def _find(text: str) -> tuple[fs.FileSystem, list[fs.FileInfo]]:
    try:
        filesystem, path = open_address(text) if ADDRESS.match(text) else (fs.LocalFileSystem(), text)
        if GLOB.search(path) and filesystem.get_file_info(path).type == fs.FileType.NotFound:
            base = path[: GLOB.search(path).start()].rpartition("/")[0]  # type: ignore[union-attr]
            selector = fs.FileSelector(
                base or ("/" if path.startswith("/") else "."), recursive="/" in path[len(base) + 1 :]
            )
            pattern = path if base or path.startswith("/") else f"./{path}"
            infos = filesystem.get_file_info(selector)
            found = [info for info in infos if fnmatch.fnmatch(info.path, path) or fnmatch.fnmatch(info.path, pattern)]
        elif filesystem.get_file_info(path).type == fs.FileType.Directory:
            found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
        else:
            found = [filesystem.get_file_info(path)]
    except (OSError, pa.ArrowException) as error:
        cause = f"{_in_short(error)}. {_way_out(error)}"
        raise ValueError(f"The address {without_secrets(text)!r} cannot be opened: {cause}") from None
    files = [info for info in found if info.type == fs.FileType.File and _ending(info.path)]
    if not files:
        ends = ", ".join(end for each in FORMATS if each.in_parts for end in each.extensions)
        raise FileNotFoundError(f"There are no table files at {without_secrets(text)!r}. They must end in {ends}.")
    return filesystem, files


def _ending(path: str) -> str:
    """The end of the name of a file that can be read in parts; empty for other files."""
    name = path.rpartition("/")[2].lower()
    found = None if name.startswith((".", "_")) else format_of(name)  # other programs leave hidden files
    return next((end for end in found.extensions if name.endswith(end)), "") if found and found.in_parts else ""


def _open_csv_files(filesystem: fs.FileSystem, paths: tuple[str, ...], sizes: tuple[int, ...]) -> FileSet:
    """The first rows of each file decide on its columns; of their types in all files the widest counts."""
    with file_errors(paths[0], "csv"):
        parse = _parse_options(paths[0], filesystem)
    joined, n_rows = pa.schema([]), 0
    for path, size in zip(paths, sizes, strict=True):
        with file_errors(path, "csv"):
            with filesystem.open_input_stream(path) as source:
                raw = source.read(HEAD)
            cut = raw if len(raw) < HEAD else raw[: raw.rfind(b"\n") + 1]
            head = pa.table({})
            if raw.strip():
                options = csv.ConvertOptions(strings_can_be_null=True)
                head = csv.read_csv(pa.BufferReader(cut), None, parse, options)
        n_bytes = len(cut) // 10 if path.lower().endswith(".gz") else len(cut)  # what was read of the file, about
        n_rows += int(len(head) * max(1.0, size / max(n_bytes, 1)))
        if not joined.names:
            joined = head.schema
        elif head.column_names and head.schema != joined:
            try:
                if head.column_names != joined.names:
                    raise pa.ArrowInvalid
                joined = pa.unify_schemas([joined, head.schema], promote_options="permissive")
            except pa.ArrowException:  # also where neither of two types is wider
                raise ValueError(_difference(joined, paths[0], head.schema, path)) from None
    fields = [pa.field(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in joined]
    return FileSet(filesystem, paths, "csv", pa.schema(fields), n_rows, sizes, parse.delimiter)


def _difference(first: pa.Schema, first_path: str, schema: pa.Schema, path: str) -> str:
    """A sentence that names the file that differs, and in what."""
    rule = "All files of a table must have the same columns of the same types."
    if sorted(first.names) == sorted({*schema.names}):
        kinds = [
            f"{f.name!r} ({schema.field(f.name).type}, not {f.type})"
            for f in first
            if schema.field(f.name).type != f.type
        ]
        what = f"differs in {', '.join(kinds[:5])}" if kinds else "has its columns in a different order"
    else:
        lacks = [name for name in first.names if name not in schema.names]
        more = [name for name in schema.names if name not in first.names]
        parts = [f"has no {quoted(lacks)}" if lacks else "", f"also has {quoted(more)}" if more else ""]
        what = " and ".join(part for part in parts if part) or "repeats a column"
    return f"{rule} {path!r} {what}, unlike {first_path!r}. Leave it out, or write it again."


# Addresses of files (s3://, gs://, hdfs://): opened by pyarrow, refused within seconds, shown without secrets.

ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
ADDRESS_AS_PATH = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:[/\\]")  # Path leaves out the second slash
PASSWORD = re.compile(r"(?<=:/)(/?)[^/?#@]*:[^/?#@]*@")
SECRET = re.compile(r"([?&][^=&#]*(?:secret|key|token|password|ticket|sig)[^=&#]*=)[^&#]*", re.IGNORECASE)

# pyarrow's own limits are a quarter of an hour for gs:// and, where an S3 server accepts a call and then is silent,
# above a hundred seconds.
GCS_RETRIES = "retry_limit_seconds"
GCS_SECONDS = 10
S3_CONNECT, S3_SILENCE, S3_ATTEMPTS = 3.0, 5.0, 4  # seconds, seconds, calls
S3_REBUILT = {"region", "scheme", "endpoint_override", "tls_ca_file_path"}  # what S3FileSystem can be asked for again
SIGNS = "/:@%*!$&'()+,;=~"  # of an address as they are; blanks and brackets are escaped
MAX_LENGTH = 300  # characters of what a file system says

CREDENTIALS = (
    "Check the credentials, which come from the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "GOOGLE_APPLICATION_CREDENTIALS) or a profile; buckets open to all are gs://anonymous@bucket."
)
WAYS_OUT = (  # what a file system says, and what to do
    (r"libhdfs|libjvm|HDFS", "hdfs:// needs Java and Hadoop's libhdfs: set JAVA_HOME, HADOOP_HOME and CLASSPATH."),
    (r"Unrecognized filesystem", "Addresses begin with s3://, gs://, abfs://, hdfs:// or file://. Download the files."),
    (r"ACCESS_DENIED|ACCESS_KEY|SIGNATURE|UNAUTH|PERMISSION|OAuth2|[Cc]redential|\b40[13]\b", CREDENTIALS),
    (r"NETWORK|UNAVAILABLE|CURL|curl|[Tt]imeout|DEADLINE", "Check the network and the server (endpoint_override=...)."),
)
WAY_OUT = "Check it, or copy the files to this machine."
Errors = type[Exception] | tuple[type[Exception], ...]


class UnreadableFileError(ValueError):
    """A file of a table cannot be read, or no longer."""


def open_address(text: str) -> tuple[fs.FileSystem, str]:
    """The file system of an address, which gives up within seconds, and the path in it."""
    if text.startswith(("gs://", "gcs://")) and GCS_RETRIES not in text:
        text += f"{'&' if '?' in text else '?'}{GCS_RETRIES}={GCS_SECONDS}"
    address, mark, query = text.partition("?")
    filesystem, path = fs.FileSystem.from_uri(quote(address, safe=SIGNS) + mark + query)
    asked = {name for name, _ in parse_qsl(query)}
    if isinstance(filesystem, getattr(fs, "S3FileSystem", ())) and asked <= S3_REBUILT:
        reduced: Any = filesystem.__reduce__()  # an address has no words for timeouts, pickling has
        options = reduced[1][0] | {"connect_timeout": S3_CONNECT, "request_timeout": S3_SILENCE}
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS)
        filesystem = fs.S3FileSystem(**options, retry_strategy=retries)
    return filesystem, path


def address_path(table: str | Path) -> str:
    """What an address names, without its query (which says how a server is reached); paths as they are."""
    text = str(table)
    return without_secrets(text).partition("?")[0] if ADDRESS.match(text) else text


def without_secrets(text: str) -> str:
    """Any text with passwords and keys of the addresses in it replaced by stars."""
    return SECRET.sub(r"\1***", PASSWORD.sub(r"\1***@", text))


def check_local(path: Path) -> None:
    """Refuse an address where results are written."""
    if ADDRESS_AS_PATH.match(str(path)):
        raise ValueError(
            f"Results are written to a disk of this machine. Got the address {without_secrets(str(path))!r}. Name a "
            "folder or file here, and copy it to its place afterwards."
        )


def check_new_file(path: Path, *endings: str) -> None:
    """Refuse a file to write that is there already, that is not on this machine, or that has another ending."""
    check_local(path)
    if not path.name.lower().endswith(endings):
        named = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise ValueError(f"The file must end in {named}. Got {str(path)!r}.")
    if path.exists():
        raise ValueError(f"The file must be new. {str(path)!r} is there already; remove it or name another.")


@contextmanager
def file_errors(path: str, kind: str = "parquet", errors: Errors = (pa.ArrowException, OSError)) -> Iterator[None]:
    """Turn errors of a file system or of pyarrow while a file is read into a sentence that names the file."""
    try:
        yield
    except MemoryError:
        raise
    except errors as error:
        words = f"The file {path!r} cannot be read as {kind}: {_in_short(error)}. {_way_out(error)}"
        raise UnreadableFileError(words) from None


def _in_short(error: Exception) -> str:
    """What a file system says, without the traces of its libraries."""
    text = without_secrets(str(error)).split("\n")[0]
    text = re.sub(r"^google::cloud::Status\(|\s*error_info=.*|\s*\(Request ID: [^)]*\)", "", text)
    return (text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "...").rstrip(".: ")


def _way_out(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "Check whether it is still there."
    found = [way for pattern, way in WAYS_OUT if re.search(pattern, str(error))]
    return found[0] if found else WAY_OUT
