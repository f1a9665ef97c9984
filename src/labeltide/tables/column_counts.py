"""What the columns of a table hold, counted in one pass and bounded memory: of the whole table, or part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.decimal_commas import CommaCount
from labeltide.tables.intake import is_text, whole
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.spellings import count_spellings
from labeltide.tables.text_numbers import LEAST_NUMBERS, MOST_LEVELS, count_numbers

MANY, SAMPLE = 1000, 20_000  # distinct values among the first that are not counted further
MOST_COUNTED = 20_000  # distinct values of any column that are


@dataclass
class ColumnCount:
    """Type, missing values and distinct values of a column.

    Attributes
    ----------
    missing : rows in which nothing stands, blank texts among them
    blank : rows with a text of blanks alone
    present : rows in which something stands
    values : distinct values without blank texts; None where there are very many
    blanks : distinct blank texts
    numbers : texts that are numbers, in columns that may be features
    is_many : whether the first values differ so much that their number says nothing
    """

    kind: pa.DataType
    missing: int = 0
    blank: int = 0
    present: int = 0
    values: pa.Array | None = None
    blanks: set[str] = field(default_factory=set)
    numbers: int = 0
    is_many: bool = False

    def __post_init__(self) -> None:
        if not pa.types.is_nested(self.kind):
            self.values = pa.array([], self.kind)

    def add(self, array: pa.Array) -> None:
        """Count more rows."""
        missing = array.is_null(nan_is_null=pa.types.is_floating(array.type))
        if is_text(array.type):
            blank = pc.equal(pc.utf8_trim_whitespace(array), "").fill_null(False)
            self.blank += int(pc.sum(blank).as_py() or 0)
            self.blanks |= set(array.filter(blank).unique()[:MANY].to_pylist())
            missing = pc.or_(missing, blank)
        count = int(pc.sum(missing).as_py() or 0)
        present = array.filter(pc.invert(missing)) if count else array
        self._add_values(present)
        self.missing += count
        self.present += len(present)

    @property
    def levels(self) -> int | None:
        """How many distinct values there are; None where there are very many."""
        return None if self.is_many or self.values is None else len(self.values)

    @property
    def texts(self) -> list[str] | None:
        """The distinct texts of a column, blank ones among them; None where there are very many."""
        return None if self.values is None else [*self.values.to_pylist(), *self.blanks]

    def _add_values(self, present: pa.Array) -> None:
        first = present[: max(0, SAMPLE - self.present)]
        self._join(first)
        self.is_many |= self.values is not None and len(first) > 0 and len(self.values) > MANY
        if self.is_many and not is_text(self.kind):
            self.values = None
        self._join(present[len(first) :])

    def _join(self, array: pa.Array) -> None:
        if self.values is not None and len(array):
            joined = pa.concat_arrays([self.values, array.unique()]).unique()
            self.values = joined if len(joined) <= MOST_COUNTED else None


@dataclass
class TableCounts:
    """What is known of the columns of a table, as it was given.

    Attributes
    ----------
    commas : of columns of text that may be numbers with decimal commas
    spellings : how often each text stands in a column of labels
    """

    columns: dict[str, ColumnCount] = field(default_factory=dict)
    commas: dict[str, CommaCount] = field(default_factory=dict)
    spellings: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, table: pa.Table, roles: RoleColumns) -> None:
        """Count more rows: Arrow arrays of simple types (`intake.load_table`)."""
        numeric, labels = number_columns(roles), label_columns(roles)
        for name in table.column_names:
            array = whole(table[name])
            self.columns.setdefault(name, ColumnCount(array.type)).add(array)
            if is_text(array.type) and name in numeric:
                self.commas.setdefault(name, CommaCount()).add(array)
                self.columns[name].numbers += count_numbers(array)
            if is_text(array.type) and name in labels:
                counts = self.spellings.setdefault(name, Counter())
                if len(counts) <= MOST_COUNTED:  # with more, the labels are refused
                    counts += count_spellings(array)

    def numbers_in_text(self, roles: RoleColumns) -> list[str]:
        """The features of many texts, nearly all of which are numbers."""
        found = []
        for name in roles.features:
            count = self.columns[name]
            is_many = is_text(count.kind) and (count.texts is None or len(count.texts) > MOST_LEVELS)
            if is_many and count.numbers >= LEAST_NUMBERS * (count.present + count.blank):
                found.append(name)
        return found

    def of_whole(self, as_numbers: Sequence[str], in_text: Sequence[str], is_drawn: bool) -> WholeColumns:
        """What a part of the table is to know; some columns of text are read as numbers."""
        known = self.columns.items()
        texts = {name: count.texts for name, count in known if is_text(count.kind) and name not in as_numbers}
        still = {name for name, count in known if count.levels == 0 or (count.levels == 1 and not count.missing)}
        return WholeColumns(texts, set(self.columns) - still, in_text, is_drawn)


@dataclass(frozen=True)
class WholeColumns:
    """What is known of the columns of a whole table, of which a part is encoded.

    Attributes
    ----------
    texts : the distinct texts of a column; None where there are very many
    varying : columns that hold several values
    in_text : columns of text that are read as numbers, with gaps in place of other texts
    is_drawn : whether the part is a sample of the table
    """

    texts: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    varying: Collection[str] = ()
    in_text: Collection[str] = ()
    is_drawn: bool = False


WHOLE = WholeColumns()  # the table is not a part


def number_columns(roles: RoleColumns) -> Sequence[str]:
    """The columns that can hold numbers: features, clocks and the time, in this order."""
    return list(dict.fromkeys([*roles.features, *roles.clock, *([roles.time] if roles.time else [])]))


def label_columns(roles: RoleColumns) -> Sequence[str]:
    """The columns that hold labels: recorded ones and trusted ones."""
    return [*roles.label, *([roles.trusted] if roles.trusted else [])]
