"""CSV that spreadsheet programs show and never run."""

from __future__ import annotations

import codecs
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from labeltide.tables.intake import is_text

# What starts a formula, also in the wide forms of East Asian keyboards; blanks, marks of direction and quotes before
# it do not help. A plain number such as -5 is none.
_WIDE = "\uff1d\uff0b\uff0d\uff20"
_QUOTES = "\"'`\u201c\u201d\u2018\u2019"
RISKY = rf"^[\s\p{{Z}}\p{{C}}{_QUOTES}]*[=+\-@{_WIDE}]|^[ ]*[\t\r\n]"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
# After one of these, a program that takes them for the end of a cell starts a new one. A sign alone, as in "a, -b",
# starts a formula that does nothing: for harm it needs a call, a pipe or the name of a sheet.
_ENDS = r"([,;\t\r\n|\"'][\s\p{Z}\p{C}\"']*)"
INSIDE = rf"{_ENDS}([=@{_WIDE[0]}{_WIDE[3]}])"
INSIDE_WITH_SIGNS = rf"{_ENDS}([=+\-@{_WIDE}])"
HARMFUL = "[(|!\uff08\uff5c\uff01]"


VERDICT = "verdict"  # the last column of issues.csv, in which people type


def with_verdicts(issues: pa.Table) -> pa.Table:
    """The issues with an empty column in which people type what is right."""
    return issues.append_column(VERDICT, pa.nulls(len(issues), pa.string()))


def write_safe_csv(table: pa.Table, path: Path) -> None:
    """Write a table as CSV in which no text starts a formula; numbers stay numbers.

    It starts with a byte-order mark, as the page's downloads do: without one Excel reads UTF-8 as something else.
    """
    with path.open("wb") as file:
        file.write(codecs.BOM_UTF8)
        csv.write_csv(guarded(table), file)


def guarded(table: pa.Table) -> pa.Table:
    """The table with safe texts and titles."""
    for place, field in enumerate(table.schema):
        if is_text(field.type):
            table = table.set_column(place, field.name, safe_texts(table.column(place)))
    return table.rename_columns(safe_texts(pa.array(table.column_names, pa.string())).to_pylist())


def safe_texts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The texts, with an apostrophe before whatever a spreadsheet program would run."""
    risky = pc.match_substring_regex(column, RISKY)
    number = pc.match_substring_regex(column, NUMBER)
    inside = pc.if_else(
        pc.match_substring_regex(column, HARMFUL),
        pc.replace_substring_regex(column, INSIDE_WITH_SIGNS, r"\1'\2"),
        pc.replace_substring_regex(column, INSIDE, r"\1'\2"),
    )
    guarded = pc.binary_join_element_wise(pa.scalar("'", column.type), inside, pa.scalar("", column.type))
    return pc.if_else(pc.and_not(risky, number), guarded, pc.if_else(number, column, inside))


class SafeCsvWriter:
    """Writes a table part by part as `write_safe_csv` writes a whole one."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("wb")
        self._file.write(codecs.BOM_UTF8)
        try:
            self._writer = csv.CSVWriter(self._file, guarded(_plain(schema.empty_table())).schema)
        except BaseException:
            self._file.close()
            raise

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(guarded(_plain(table)))

    def close(self) -> None:
        self._writer.close()
        self._file.close()


def _plain(table: pa.Table) -> pa.Table:
    """The table without dictionary encoding, whose texts could not be guarded."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table[field.name].cast(field.type.value_type))
    return table
