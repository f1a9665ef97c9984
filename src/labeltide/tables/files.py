"""Files of tables: Parquet, CSV and TSV (also compressed), Arrow IPC and Feather, Excel."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, feather, ipc, parquet

from labeltide.tables.excel import read_excel

TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
ARROW = (".arrow", ".feather", ".ipc")
EXCEL = ".xlsx"
SEPARATORS = ",;\t|"
FIRST_LINE = 1 << 16

# What pyarrow says when a later part of a file does not fit the type it saw in the first.
MISFIT = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to (\w+)")


def open_file(path: Path) -> parquet.ParquetFile | pa.Table:
    """A parquet file, of which some columns can be read, or a whole table."""
    name = path.name.lower()
    if not name.endswith((".parquet", *TEXT, *ARROW, EXCEL)):
        ends = ".parquet, .csv or .csv.gz, .tsv or .tsv.gz, .arrow, .feather, .ipc or .xlsx"
        raise ValueError(f"The file of a table must end in {ends}. Got {str(path)!r}.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}. The path is read from {str(Path.cwd())!r}.")
    if name.endswith(EXCEL):
        return read_excel(path)
    try:
        if name.endswith(".parquet"):
            return parquet.ParquetFile(path)
        if not name.endswith(ARROW):
            return _read_text(path, name)
        table = _read_arrow(path)
        table.validate(full=True)  # offsets beyond the file would end the process when they are used
        return table
    except (pa.ArrowException, OSError, EOFError) as error:
        kind = name.removesuffix(".gz").rsplit(".", 1)[-1]
        raise ValueError(f"The file {str(path)!r} cannot be read as {kind}: {str(error).rstrip('.')}.") from None


def _read_arrow(path: Path) -> pa.Table:
    """Arrow's file format and both kinds of Feather, or Arrow's stream."""
    try:
        return feather.read_table(path)
    except pa.ArrowInvalid as error:
        with pa.memory_map(str(path)) as source:
            try:
                return ipc.open_stream(source).read_all()
            except pa.ArrowException:
                raise error from None


def _read_text(path: Path, name: str) -> pa.Table:
    separator = _separator(path, name)
    try:
        table = _read_widening(path, separator, "utf8")
        dict.fromkeys(table.column_names)  # names are decoded when asked for
    except UnicodeDecodeError:
        return _read_widening(path, separator, "latin-1")
    if any(pa.types.is_binary(kind) for kind in table.schema.types):  # what is no UTF-8 stays bytes
        return _read_widening(path, separator, "latin-1")
    return table


def _read_widening(path: Path, separator: str, encoding: str) -> pa.Table:
    """Give a column a wider type (whole numbers, numbers, text) where a later part of the file asks for it."""
    read = csv.ReadOptions(encoding=encoding)
    parse = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
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


def _separator(path: Path, name: str) -> str:
    """The character between cells: a tab by the name of the file, else the most frequent in the first line."""
    if ".tsv" in name:
        return "\t"
    with pa.input_stream(str(path)) as source:
        line = source.read(FIRST_LINE).split(b"\n")[0].decode("utf-8", "replace")
    bare = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=bare.count)
