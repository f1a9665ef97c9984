"""How the columns of a table are tidied as it is read: decimal commas, and one spelling for each class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from labeltide.tables.column_counts import TableCounts, label_columns, number_columns
from labeltide.tables.decimal_commas import choose_commas, comma_numbers, with_numbers
from labeltide.tables.intake import is_text, whole
from labeltide.tables.overview import Content, words_of_type
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.spellings import choose_spellings, respell
from labeltide.tables.text_numbers import text_numbers


@dataclass(frozen=True)
class Tidying:
    """What is changed in a table, or in any part of it; done twice, it changes nothing more.

    Attributes
    ----------
    as_numbers : columns of numbers with decimal commas
    labels : columns in which spellings are joined
    spelled : the spelling to take for each that is replaced
    plain : columns that are read without dictionary encoding
    in_text : columns of text that are read as numbers, with gaps in place of other texts; of tables in parts alone
    """

    as_numbers: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    spelled: Mapping[str, str] = field(default_factory=dict)
    plain: tuple[str, ...] = ()
    in_text: tuple[str, ...] = ()

    def __call__(self, table: pa.Table) -> pa.Table:
        """The table with these changes."""
        for name in self.plain:
            if name in table.column_names and pa.types.is_dictionary(table[name].type):
                values = table[name].cast(table[name].type.value_type)
                table = table.set_column(table.column_names.index(name), name, values)
        for name in self.in_text:
            if name in table.column_names and is_text(table[name].type):
                values = text_numbers(whole(table[name]))
                table = table.set_column(table.column_names.index(name), name, values)
        return respell(with_numbers(table, self.as_numbers), self.labels, self.spelled)


NOTHING = Tidying()


def choose_tidying(counts: TableCounts, roles: RoleColumns) -> tuple[Tidying, list[str]]:
    """What to change in a table whose columns were counted, and what to say."""
    by_name = {name: counts.commas[name] for name in number_columns(roles) if name in counts.commas}
    as_numbers, commas_said = choose_commas(by_name)
    labels = label_columns(roles)
    spellings: Counter[str] = Counter()
    for name in labels:
        spellings += counts.spellings.get(name, Counter())
    spelled, spelling_said = choose_spellings(spellings)
    plain = tuple(name for name in number_columns(roles) if name in counts.columns)
    return Tidying(tuple(as_numbers), tuple(labels), spelled, plain), [*commas_said, *spelling_said]


def tidy_contents(counts: TableCounts, tidying: Tidying) -> dict[str, Content]:
    """Type, missing values and levels of every column that was counted, once it is tidied."""
    contents = {}
    for name, count in counts.columns.items():
        kind, levels = count.kind, count.levels
        if name in tidying.as_numbers:
            kind = pa.float64()
            levels = None if levels is None else len(comma_numbers(count.values).unique())
        elif name in tidying.labels and tidying.spelled and levels is not None and count.values is not None:
            levels = len({tidying.spelled.get(value, value) for value in count.values.to_pylist()})
        contents[name] = Content(words_of_type(kind), count.missing, levels)
    return contents
