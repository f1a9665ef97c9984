"""How the rows of a table become steps: their order, their moments and their annotators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing.columns import Columns
from labeltide.auditing.intake import whole
from labeltide.auditing.moments import Moments, read_moments
from labeltide.auditing.words import quoted, texts
from labeltide.tables.layout import Steps, find_steps

MOST_ANNOTATORS = 64  # labels have an axis for them
UNNAMED = "(not named)"


@dataclass(frozen=True)
class Rows:
    """The rows of a table, by step.

    Attributes
    ----------
    steps : which rows make up which step
    moments : the time of every row; None where steps follow the order of the rows
    annotator : int64 array of shape (rows,)
        A place in `annotators`, 0 without annotators, -1 in rows that name none and hold no label.
    annotators : names, or None
    """

    table: pa.Table
    columns: Columns
    steps: Steps
    moments: Moments | None
    annotator: np.ndarray
    annotators: tuple[str, ...] | None

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
        return {"line_row": rows, "line_step": self.steps.step_of_row[rows], "line_annotator": annotator}


def find_rows(table: pa.Table, columns: Columns, codes: np.ndarray) -> Rows:
    """Order rows by sequence and time; `codes` are their labels, of shape (rows, columns of labels)."""
    moments = read_moments(columns.time, whole(table[columns.time])) if columns.time else None
    steps = _find_steps(table, columns, moments)
    annotator, annotators = steps.annotator_of_row, None
    if len(columns.label) > 1:
        annotators = tuple(texts(columns.label))
    elif steps.annotators is not None:
        annotator, annotators = _people(steps, codes[:, 0])
    if annotators and len(annotators) > MOST_ANNOTATORS:
        raise ValueError(
            f"There can be at most {MOST_ANNOTATORS} annotators. Got {len(annotators)}: {quoted(annotators)}."
        )
    return Rows(table, columns, steps, moments, annotator, annotators or None)


def _find_steps(table: pa.Table, columns: Columns, moments: Moments | None) -> Steps:
    order = columns.time or _new_name("order of rows", table)
    whole_table = _new_name("whole table", table)
    parts = {name: table[name] for name in columns.sequence} or {whole_table: pa.array(["table"] * len(table))}
    parts[order] = moments.order if moments else pa.array(np.arange(len(table)))
    roles = {"sequence": list(parts)[:-1], "time": [order], "annotator": []}
    if columns.annotator:
        roles["annotator"] = [columns.annotator]
        parts[columns.annotator] = _name_annotators(table[columns.annotator])
    try:
        return find_steps(nw.from_native(pa.table(parts)), roles, len(roles["sequence"]) == 1)
    except ValueError as error:
        if "may occur once" not in str(error) or columns.sequence:
            raise
        raise ValueError(f"{error} Or name the column of the sequences with the option sequence.") from None


def _people(steps: Steps, codes: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Annotators who recorded something; rows that name none and hold no label belong to nobody."""
    assert steps.annotators is not None
    names, people = texts(steps.annotators), steps.annotator_of_row
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
