"""Columns of numbers with decimal commas, as most of Europe writes them: "3,14" is 3.14."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.intake import is_text, whole
from labeltide.tables.wording import quoted

COMMAS = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?\s*$"
THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*$"  # also a number with commas between thousands


def read_decimal_commas(table: pa.Table, names: Sequence[str]) -> tuple[pa.Table, list[str], list[str]]:
    """The table with such columns as numbers, the names of these columns, and what to say.

    A column whose numbers all have three digits behind the comma, as 1,234, may be of thousands: it stays text.
    """
    read, open_ = [], []
    for name in names:
        if name not in table.column_names or not is_text(table.schema.field(name).type):
            continue
        array = whole(table[name])
        if not _has_commas(array):
            continue
        if _may_be_thousands(array):
            open_.append(name)
            continue
        place = table.column_names.index(name)
        table = table.set_column(place, name, _numbers(array))
        read.append(name)
    said = [f'I read {quoted(read)} as numbers with decimal commas: "3,14" is 3.14.'] if read else []
    if open_:
        example = next(text for text in whole(table[open_[0]]).to_pylist() if text and "," in text).strip()
        said.append(
            f"Whether {quoted([example])} in {quoted(open_)} is {example.replace(',', '.')} or "
            f"{example.replace(',', '')} is not plain, so it stays text. Write such numbers without commas."
        )
    return table, read, said


def _has_commas(array: pa.Array) -> bool:
    """Whether all texts are numbers, one at least with a comma."""
    texts = array.drop_null()
    if not len(texts) or not pc.any(pc.match_substring(texts, ",")).as_py():
        return False
    blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
    return bool(pc.all(pc.or_(blank, pc.match_substring_regex(texts, COMMAS))).as_py())


def _may_be_thousands(array: pa.Array) -> bool:
    with_comma = array.drop_null().filter(pc.match_substring(array.drop_null(), ","))
    return bool(pc.all(pc.match_substring_regex(with_comma, THOUSANDS)).as_py())


def _numbers(array: pa.Array) -> pa.Array:
    plain = pc.replace_substring(pc.replace_substring(pc.utf8_trim_whitespace(array), ".", ""), ",", ".")
    return pc.if_else(pc.equal(plain, ""), pa.scalar(None, plain.type), plain).cast(pa.float64())
