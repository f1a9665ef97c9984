"""The rows of an audited table: their steps, their times and their annotators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.intake import Column, whole
from labeltide.tables.moments import Moments, read_moments
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.steps import Steps, find_steps
from labeltide.tables.wording import quoted, unique_texts

MOST_ANNOTATORS = 64  # labels have an axis for them
UNNAMED = "(not named)"


@dataclass(frozen=True)
class GivenRows:
    """The rows that were kept of a table, by their places in the table as it was given."""

    rows: np.ndarray  # int64 of shape (kept rows,), rising
    total: int

    def spread(self, values: pa.Array) -> pa.Array:
        """Values of kept rows at their places among all rows, null elsewhere."""
        place = np.full(self.total, -1, dtype=np.int64)
        place[self.rows] = np.arange(len(self.rows))
        return values.take(pa.array(place, mask=place < 0))


@dataclass(frozen=True)
class TableRows:
    """The rows of a table, by step.

    Attributes
    ----------
    steps : which rows make up which step
    moments : the time of every row; None where steps follow the order of the rows
    annotator : int64 array of shape (rows,)
        A place in `annotators`, 0 without annotators, -1 in rows that name none and hold no label.
    annotators : names, or None
    given : which rows of the table as given these are; None where they are all
    """

    table: pa.Table
    columns: RoleColumns
    steps: Steps
    moments: Moments | None
    annotator: np.ndarray
    annotators: tuple[str, ...] | None
    given: GivenRows | None = None

    @property
    def n_annotators(self) -> int:
        return len(self.annotators) if self.annotators else 1

    @property
    def times(self) -> pa.Array:
        return self.moments.texts if self.moments else pa.array(np.arange(len(self.table))).cast(pa.string())

    def lines(self) -> dict[str, Any]:
        """Row, step and annotator of every line: a row or, with a column for each annotator, a row and one of them."""
        n_columns = max(len(self.columns.label), 1)
        rows = np.repeat(np.arange(len(self.table)), n_columns)
        annotator = self.annotator if n_columns == 1 else np.tile(np.arange(n_columns), len(self.table))
        given = rows if self.given is None else self.given.rows[rows]
        return {"line_row": given, "line_step": self.steps.step_of_row[rows], "line_annotator": annotator}

    def step_of_given(self, rows: np.ndarray) -> np.ndarray:
        """The steps of rows of the table as it was given: int64, -1 where a row was left out."""
        if self.given is None:
            return self.steps.step_of_row[rows]
        steps = np.full(self.given.total, -1, dtype=np.int64)
        steps[self.given.rows] = self.steps.step_of_row
        return steps[rows]

    def of_given(self, values: pa.Array) -> pa.Array:
        """Values of the rows as values of the table as it was given, null in rows that were left out."""
        return values if self.given is None else self.given.spread(values)


def find_rows(
    table: pa.Table,
    columns: RoleColumns,
    codes: np.ndarray,
    timezone: str | None = None,
    given: GivenRows | None = None,
) -> TableRows:
    """Order rows by sequence and time; `codes` are their labels, of shape (rows, columns of labels)."""
    moments = read_moments(columns.time, whole(table[columns.time]), timezone) if columns.time else None
    steps = _find_steps(table, columns, moments)
    annotator, annotators = steps.annotator_of_row, None
    if len(columns.label) > 1:
        annotators = tuple(unique_texts(columns.label))
    elif steps.annotators is not None:
        annotator, annotators = _people(steps, codes[:, 0])
    if annotators and len(annotators) > MOST_ANNOTATORS:
        raise ValueError(
            f"There can be at most {MOST_ANNOTATORS} annotators. Got {len(annotators)}: {quoted(annotators)}."
        )
    return TableRows(table, columns, steps, moments, annotator, annotators or None, given)


def _find_steps(table: pa.Table, columns: RoleColumns, moments: Moments | None) -> Steps:
    order = columns.time or _new_name("order of rows", table)
    whole_table = _new_name("whole table", table)
    parts = {name: table[name] for name in columns.sequence} or {whole_table: pa.array(["table"] * len(table))}
    parts[order] = moments.order if moments else pa.array(np.arange(len(table)))
    roles = {"sequence": list(parts)[:-1], "time": [order], "annotator": []}
    if columns.annotator:
        roles["annotator"] = [columns.annotator]
        parts[columns.annotator] = _name_annotators(table[columns.annotator])
    loaded = {name: Column.of_array(name, array) for name, array in parts.items()}
    try:
        return find_steps(loaded, roles, len(roles["sequence"]) == 1)
    except ValueError as error:
        if "may occur once" not in str(error):
            raise
        told = str(error).replace(
            "Give annotator= if several people labelled a step",
            "Name the column of annotators with the option annotator (--annotator COLUMN) if several people labelled a "
            "step",
        )
        more = "" if columns.sequence else " Or name the column of the sequences with the option sequence."
        if moments is not None and moments.local is not None and moments.order.type.tz is None:
            more += " If clocks went back an hour there, name the place with the option timezone (--timezone "
            more += "Europe/Berlin)."
        raise ValueError(told + more) from None


def _people(steps: Steps, codes: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Annotators who recorded something; rows that name none and hold no label belong to nobody."""
    assert steps.annotators is not None
    names, people = unique_texts(steps.annotators), steps.annotator_of_row
    nobody = names.index(UNNAMED) if UNNAMED in names else -1
    if nobody >= 0 and not (codes[people == nobody] >= 0).any():
        people = np.where(people == nobody, -1, people - (people > nobody))
        names.remove(UNNAMED)
    return people, tuple(names)


def _name_annotators(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_null(column.type):
        return pa.array([UNNAMED] * len(column))
    return pc.fill_null(column.cast(pa.string()), UNNAMED) if column.null_count else column


def _new_name(wish: str, table: pa.Table) -> str:
    while wish in table.column_names:
        wish += "_"
    return wish
