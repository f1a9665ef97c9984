"""Columns of numbers with decimal commas, as most of Europe writes them: "3,14" is 3.14."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.intake import is_text, whole
from labeltide.tables.wording import quoted

COMMAS = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?\s*$"
THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*$"  # also a number with commas between thousands
FIRST = 100  # texts that are looked at before all


@dataclass
class CommaCount:
    """Whether the texts of a column, which may come part by part, are numbers with decimal commas.

    Attributes
    ----------
    are_numbers : all texts so far are numbers or blank
    are_thousands : all texts with a comma so far may be numbers with commas between thousands
    example : the first text with a comma; "" where there is none
    """

    are_numbers: bool = True
    are_thousands: bool = True
    example: str = ""

    def add(self, array: pa.Array) -> None:
        """Look at more texts."""
        if self.are_numbers:
            texts = array.drop_null()
            self.are_numbers = _are_numbers(texts[:FIRST]) and _are_numbers(texts)
        if self.are_numbers:
            with_comma = texts.filter(pc.match_substring(texts, ","))
            if len(with_comma):
                self.example = self.example or with_comma[0].as_py().strip()
                self.are_thousands &= _match(with_comma, THOUSANDS)

    @property
    def has_commas(self) -> bool:
        """Whether all texts are numbers, one at least with a comma."""
        return self.are_numbers and bool(self.example)


def choose_commas(counts: Mapping[str, CommaCount]) -> tuple[list[str], list[str]]:
    """The columns of numbers with decimal commas, and what to say.

    A column whose numbers all have three digits behind the comma, as 1,234, may be of thousands: it stays text.
    """
    read = [name for name, count in counts.items() if count.has_commas and not count.are_thousands]
    open_ = [name for name, count in counts.items() if count.has_commas and count.are_thousands]
    said = [f'I read {quoted(read)} as numbers with decimal commas: "3,14" is 3.14.'] if read else []
    if open_:
        example = counts[open_[0]].example
        said.append(
            f"Whether {quoted([example])} in {quoted(open_)} is {example.replace(',', '.')} or "
            f"{example.replace(',', '')} is not plain, so it stays text. Write such numbers without commas."
        )
    return read, said


def read_decimal_commas(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with those of some columns as numbers whose texts have decimal commas."""
    counts = {name: CommaCount() for name in names if name in table.column_names and is_text(table[name].type)}
    for name, count in counts.items():
        count.add(whole(table[name]))
    return with_numbers(table, choose_commas(counts)[0])


def with_numbers(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with some columns of texts with decimal commas as numbers."""
    for name in names:
        if name in table.column_names and is_text(table[name].type):
            table = table.set_column(table.column_names.index(name), name, comma_numbers(whole(table[name])))
    return table


def comma_numbers(array: pa.Array) -> pa.Array:
    """Texts with decimal commas as numbers, null where nothing stands."""
    plain = pc.replace_substring(pc.replace_substring(pc.utf8_trim_whitespace(array), ".", ""), ",", ".")
    return pc.if_else(pc.equal(plain, ""), pa.scalar(None, plain.type), plain).cast(pa.float64())


def _are_numbers(texts: pa.Array) -> bool:
    return _match(texts.filter(pc.not_equal(pc.utf8_trim_whitespace(texts), "")), COMMAS)


def _match(texts: pa.Array, pattern: str) -> bool:
    """Whether all texts, if there are any, match a pattern."""
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False
