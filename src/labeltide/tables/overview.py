"""An overview of the columns of a table: type, missing values, levels, role, and why a column is not used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from labeltide.tables.intake import is_text
from labeltide.tables.role_guesses import RoleColumns

LEFT_OUT = "left out"


class Content(NamedTuple):
    """What a column holds: its type in words, missing values, and distinct values or None where there are many."""

    type: str
    missing: int
    levels: int | None


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


def describe_overview(
    contents: Mapping[str, Content],
    names: Sequence[str],
    columns: RoleColumns,
    used: Sequence[str],
    why: Mapping[str, str],
    as_numbers: Sequence[str] = (),
) -> tuple[ColumnOverview, ...]:
    """The overview of a table.

    Parameters
    ----------
    contents : what the columns hold that were read, as they were read
    names : of all columns of the table
    used : columns that became features
    why : reasons by column for those that were left out
    as_numbers : columns of numbers with decimal commas
    """
    roles = _roles(columns, used)
    rows = []
    for name in map(str, names):
        role = ", ".join(roles.get(name, [])) or LEFT_OUT
        if name not in contents:
            rows.append(ColumnOverview(name, "", None, None, role, "not named among the features, so not read"))
            continue
        reason = why.get(name, "") if role == LEFT_OUT else ""
        if role == LEFT_OUT and not reason:
            reason = "not named among the features"
        if name in as_numbers:
            reason = "numbers with decimal commas"
        rows.append(ColumnOverview(name, *contents[name], role, reason))
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


def words_of_type(kind: pa.DataType) -> str:
    """The type of a column in words."""
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
        "nested": pa.types.is_nested,
    }
    return next((words for words, test in tests.items() if test(kind)), str(kind))
