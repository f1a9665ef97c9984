"""An overview of the columns of a table: type, missing values, levels, role, and why a column is not used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.intake import is_text, whole
from labeltide.tables.role_guesses import RoleColumns

LEFT_OUT = "left out"
MANY, SAMPLE = 1000, 20_000  # distinct values among the first that are not counted further


@dataclass(frozen=True)
class ColumnOverview:
    """What is known of one column.

    Attributes
    ----------
    name : of the column
    type : in words; "" where the column was not read
    missing : rows in which nothing stands; None where the column was not read
    levels : distinct values; None where there are very many, or where the column was not read
    role : sequence, time, label, annotator, clock, trusted, feature, or left out; several with commas
    why : why it is left out, or how it was read
    """

    name: str
    type: str
    missing: int | None
    levels: int | None
    role: str
    why: str = ""


def describe_columns(
    table: pa.Table,
    names: Sequence[str],
    columns: RoleColumns,
    used: Sequence[str],
    why: Mapping[str, str],
    as_numbers: Sequence[str] = (),
) -> tuple[ColumnOverview, ...]:
    """The overview of a table.

    Parameters
    ----------
    table : the columns that were read, as they were read
    names : of all columns of the table
    used : columns that became features
    why : reasons by column for those that were left out
    as_numbers : columns of numbers with decimal commas
    """
    roles = _roles(columns, used)
    rows = []
    for name in map(str, names):
        role = ", ".join(roles.get(name, [])) or LEFT_OUT
        if name not in table.column_names:
            rows.append(ColumnOverview(name, "", None, None, role, "not named among the features, so not read"))
            continue
        reason = why.get(name, "") if role == LEFT_OUT else ""
        if role == LEFT_OUT and not reason:
            reason = "not named among the features"
        if name in as_numbers:
            reason = "numbers with decimal commas"
        rows.append(ColumnOverview(name, *_content(table[name]), role, reason))
    return tuple(rows)


def _roles(columns: RoleColumns, used: Sequence[str]) -> dict[str, list[str]]:
    """The roles of every column that has one."""
    named: dict[str, Sequence[str | None]] = {
        "sequence": columns.sequence,
        "time": [columns.time],
        "label": columns.label,
        "annotator": [columns.annotator],
        "clock": columns.clock,
        "trusted": [columns.trusted],
        "feature": used,
    }
    roles: dict[str, list[str]] = {}
    for role, names in named.items():
        for name in names:
            if name is not None:
                roles.setdefault(name, []).append(role)
    return roles


def _content(column: pa.ChunkedArray) -> tuple[str, int, int | None]:
    """Type in words, missing values and distinct values."""
    array = whole(column)
    missing = array.is_null(nan_is_null=pa.types.is_floating(array.type))
    if is_text(array.type):
        missing = pc.or_(missing, pc.equal(pc.utf8_trim_whitespace(array), "").fill_null(False))
    count = int(pc.sum(missing).as_py() or 0)
    if pa.types.is_nested(array.type):
        return "nested", count, None
    present = array.filter(pc.invert(missing)) if count else array
    is_many = len(present[:SAMPLE].unique()) > MANY
    return _type_in_words(array.type), count, None if is_many else len(present.unique())


def _type_in_words(kind: pa.DataType) -> str:
    tests = {
        "whole number": pa.types.is_integer,
        "number": pa.types.is_floating,
        "yes or no": pa.types.is_boolean,
        "text": is_text,
        "date": pa.types.is_date,
        "date and time": pa.types.is_timestamp,
        "time of day": pa.types.is_time,
        "duration": pa.types.is_duration,
        "empty": pa.types.is_null,
    }
    return next((words for words, test in tests.items() if test(kind)), str(kind))
