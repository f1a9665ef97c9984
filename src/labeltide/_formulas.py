"""Texts that no spreadsheet program runs as a formula; every CSV file of ours is written with them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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


def bare_text(text: str) -> str:
    """A text without the apostrophe that `safe_texts` put before it."""
    if not text.startswith("'"):
        return text
    return text[1:] if safe_texts(pa.array([text[1:]]))[0].as_py() == text else text


def csv_text(rows: Iterable[Iterable[Any]], separator: str = ",") -> str:
    """Rows as CSV with safe texts; other values, and None as nothing, as `csv.writer` writes them."""
    cells = [list(row) for row in rows]
    texts = list(dict.fromkeys(cell for row in cells for cell in row if isinstance(cell, str)))
    safe = dict(zip(texts, safe_texts(pa.array(texts, pa.string())).to_pylist(), strict=True))
    sink = io.StringIO()
    writer = csv.writer(sink, delimiter=separator, lineterminator="\n")
    writer.writerows([safe[cell] if isinstance(cell, str) else cell for cell in row] for row in cells)
    return sink.getvalue()
