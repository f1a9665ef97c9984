"""Label columns as codes into one list of classes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import UnanswerableError, find_classes
from labeltide.tables.columns import (
    Column,
    FactorizedLabels,
    RepeatedRowsError,
    Steps,
    find_steps,
    is_text,
    read_recorded,
    whole,
)
from labeltide.tables.roles import Reading, RoleColumns
from labeltide.tables.times import Moments, read_moments
from labeltide.tables.words import is_number_of_row, name_rows, quoted, unique_texts


def common_classes(columns: Sequence[FactorizedLabels], subject: str) -> tuple[Hashable, ...]:
    """The sorted distinct values of all columns together."""
    known = np.concatenate([column.distinct for column in columns])
    return find_classes(known, np.ones(len(known), dtype=bool), subject)


@dataclass(frozen=True)
class TableLabels:
    """The labels of all rows of an audited table."""

    codes: np.ndarray  # int8 of shape (rows, columns of labels)
    classes: tuple[Hashable, ...]  # the user's own values

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(unique_texts(self.classes))

    def of_steps(self, rows: TableRows) -> np.ndarray:
        """Recorded labels, int8 of shape (steps, annotators)."""
        if self.codes.shape[1] > 1:
            return self.codes[rows.steps.rows]
        return rows.steps.spread(self.codes[:, 0], rows.annotator, rows.n_annotators)


def read_table_labels(
    table: pa.Table, columns: Sequence[str], classes: tuple[Hashable, ...] | None = None
) -> TableLabels:
    """Read one label column, or one for each annotator; without any, nothing is recorded.

    `classes` are those of a whole table, where this is a part of it.
    """
    if not columns:
        return TableLabels(np.full((len(table), 1), -1, dtype=np.int8), ())
    parts = [read_recorded(table[name]) for name in columns]
    subject = f"The label column {quoted(columns)}" if len(columns) == 1 else f"The label columns {quoted(columns)}"
    if classes is None:
        if not any(len(part.distinct) for part in parts):
            raise UnanswerableError(f"{subject} must hold labels. Every row is empty.")
        try:
            classes = common_classes(parts, subject)
        except ValueError as error:
            raise UnanswerableError(str(error)) from None
    return TableLabels(np.stack([part.encode(classes, subject) for part in parts], axis=1), classes)


def read_trusted(table: pa.Table, name: str, classes: Sequence[Hashable], steps: Steps) -> np.ndarray:
    """Labels known to be right: int8 of shape (steps,), -1 elsewhere."""
    codes = read_recorded(table[name]).encode(classes, f"The trusted column {quoted([name])}")
    return merge_trusted(name, codes, steps.step_of_row)


def merge_trusted(name: str, codes: np.ndarray, step_of_row: np.ndarray, first_row: int = 0) -> np.ndarray:
    """Trusted labels of rows as those of steps: shape (steps,), -1 elsewhere; rows of one step must agree."""
    rows = np.flatnonzero(codes >= 0)
    merged = np.full(int(step_of_row.max()) + 1, -1, dtype=codes.dtype)
    merged[step_of_row[rows]] = codes[rows]
    differs = rows[merged[step_of_row[rows]] != codes[rows]]
    if len(differs):
        raise ValueError(
            f"The trusted column {quoted([name])} must agree among annotators of the same sequence and time. "
            f"It differs in {name_rows(differs + first_row)}."
        )
    return merged


def describe_trusted(count: int, name: str) -> str:
    """A sentence on labels known to be right; a column without any is refused."""
    if not count:
        raise ValueError(f"The trusted column {quoted([name])} must hold some labels. Every row is empty.")
    return f"Trusted: {count} label{'s' if count > 1 else ''} in {quoted([name])}."


# The rows of an audited table: their steps, their times and their annotators.

MAX_ANNOTATORS = 64  # labels have an axis for them
UNNAMED = "(not named)"


@dataclass(frozen=True)
class TableRows:
    """The rows of a table, by step."""

    table: pa.Table
    columns: RoleColumns
    steps: Steps
    moments: Moments | None  # the time of every row; None where steps follow the order of the rows
    # Indices into `annotators`, 0 without annotators, -1 in rows that name none and hold no label:
    annotator: np.ndarray  # int64 of shape (rows,)
    annotators: tuple[str, ...] | None
    # Of each row of the table as given, its index among these, -1 where it was left out; None where all are here:
    given: np.ndarray | None = None

    @property
    def n_annotators(self) -> int:
        return len(self.annotators) if self.annotators else 1

    @property
    def times(self) -> pa.Array:
        return self.moments.texts if self.moments else pa.array(np.arange(len(self.table))).cast(pa.string())

    def lines(self, kept: np.ndarray) -> dict[str, Any]:
        """Row, step and annotator of every line: a row or, with a column for each annotator, a row and one of them.

        Steps that are not `kept`, (steps,), have no lines.
        """
        n_columns = max(len(self.columns.label), 1)
        rows = np.repeat(np.flatnonzero(kept[self.steps.step_of_row]), n_columns)
        annotator = self.annotator[rows]
        if n_columns > 1:
            annotator = np.tile(np.arange(n_columns), len(rows) // n_columns)
        given = rows if self.given is None else np.flatnonzero(self.given >= 0)[rows]
        return {"line_row": given, "line_step": self.steps.step_of_row[rows], "line_annotator": annotator}

    def step_of_given(self, rows: np.ndarray) -> np.ndarray:
        """The steps of rows of the table as it was given: int64, -1 where a row was left out."""
        return np.append(self.steps.step_of_row, -1)[rows if self.given is None else self.given[rows]]

    def of_given(self, values: pa.Array) -> pa.Array:
        """Values of the rows as values of the table as it was given, null in rows that were left out."""
        return values if self.given is None else values.take(pa.array(self.given, mask=self.given < 0))


def find_rows(
    table: pa.Table,
    columns: RoleColumns,
    codes: np.ndarray,
    timezone: str | None = None,
    given: np.ndarray | None = None,
) -> TableRows:
    """Order rows by sequence and time; `codes` are their labels, of shape (rows, columns of labels)."""
    moments = read_moments(columns.time, whole(table[columns.time]), timezone) if columns.time else None
    steps = _find_steps(table, columns, moments)
    annotator, annotators = steps.annotator_of_row, None
    if len(columns.label) > 1:
        annotators = tuple(unique_texts(columns.label))
    elif steps.annotators is not None:
        names, annotator = unique_texts(steps.annotators), steps.annotator_of_row
        nobody = names.index(UNNAMED) if UNNAMED in names else -1
        if nobody >= 0 and not (codes[annotator == nobody, 0] >= 0).any():  # these rows belong to nobody
            annotator = np.where(annotator == nobody, -1, annotator - (annotator > nobody))
            names.remove(UNNAMED)
        annotators = tuple(names)
    if annotators and len(annotators) > MAX_ANNOTATORS:
        raise ValueError(
            f"There can be at most {MAX_ANNOTATORS} annotators. Got {len(annotators)}: {quoted(annotators)}."
        )
    return TableRows(table, columns, steps, moments, annotator, annotators or None, given)


def _find_steps(table: pa.Table, columns: RoleColumns, moments: Moments | None) -> Steps:
    order = columns.time or "\0order"  # no column of a table has such a name (`load_table`)
    parts = {name: table[name] for name in columns.sequence} or {"\0table": pa.array(["table"] * len(table))}
    parts[order] = moments.order if moments else pa.array(np.arange(len(table)))
    roles = {"sequence": list(parts)[:-1], "time": [order], "annotator": []}
    if columns.annotator:
        roles["annotator"] = [columns.annotator]
        people = table[columns.annotator]
        if people.null_count:
            people = pc.fill_null(people.cast(pa.string()), UNNAMED)
        parts[columns.annotator] = people
    loaded = {name: Column.of_array(name, array) for name, array in parts.items()}
    try:
        return find_steps(loaded, roles, len(roles["sequence"]) == 1)
    except RepeatedRowsError as error:
        way_out = "Drop the repeats." if columns.annotator else f"{NAME_ANNOTATOR} Otherwise drop the repeats."
        if not columns.sequence:
            way_out = f"{NAME_SEQUENCE} {way_out}"
        if moments is not None and moments.local is not None and not moments.has_hours:
            way_out = (
                f"{quoted([order])} holds dates alone: put the date and the time of day into one column. {way_out}"
            )
        elif moments is not None and moments.local is not None and moments.order.type.tz is None:
            way_out += " If clocks went back an hour there, name the place with the option timezone (--timezone "
            way_out += "Europe/Berlin)."
        raise RepeatedRowsError(error.rows, bool(columns.annotator), way_out) from None


# Rows that cannot be placed: without a time or a sequence, or exact repeats of an earlier row.

DROP = "the option drop_bad_rows (--drop-bad-rows)"
NAME_ANNOTATOR = "If several people labelled a step, name their column with the option annotator (--annotator COLUMN)."
NAME_SEQUENCE = (
    "No column of persons, nights or recordings was recognised, so the table was read as one sequence: if there are "
    "several, name their column with the option sequence (--sequence COLUMN)."
)


def keep_rows(
    table: pa.Table, columns: RoleColumns, reading: Reading
) -> tuple[pa.Table, np.ndarray | None, tuple[str, ...]]:
    """The table without rows that cannot be placed, `TableRows.given`, and sentences; or an error that says how."""
    if columns.time is None:
        return table, None, ()
    timed = table
    if reading.timezone is not None:  # where the hour that a clock shows twice is no repeat
        order = read_moments(columns.time, whole(table[columns.time]), reading.timezone).order
        timed = table.set_column(table.column_names.index(columns.time), columns.time, order)
    empty = {name: _missing(timed[name], with_blanks=False) for name in columns.sequence}
    empty[columns.time] = _missing(timed[columns.time], with_blanks=True)
    bad = np.logical_or.reduce(list(empty.values()))
    exact, differ = _repeats(timed, columns, ~bad)
    rule = f"Every sequence{', time and annotator' if columns.annotator else ' and time'} may occur once."
    if not reading.drop_bad_rows:
        for name, missing in empty.items():
            if missing.any():
                role = "time" if name == columns.time else "sequence"
                raise ValueError(
                    f"The {role} column {quoted([name])} must be given in every row. It is null in "
                    f"{name_rows(np.flatnonzero(missing))}. Fill these, or leave them out with {DROP}."
                )
        if len(exact) and not len(differ):
            raise ValueError(
                f"{rule} An earlier row is repeated exactly in {name_rows(exact)}. "
                f"{'' if columns.sequence else NAME_SEQUENCE + ' '}Leave the repeats out with {DROP}."
            )
        return table, None, ()
    is_named = columns.annotator or len(columns.label) > 1
    if len(differ):
        raise ValueError(
            f"{rule} {len(differ)} rows repeat an earlier one with other values: {name_rows(differ)}. "
            "drop_bad_rows (--drop-bad-rows) leaves out exact repeats only, because it is unknown which of two "
            f"different rows is right. Remove one of each. {'' if is_named else NAME_ANNOTATOR}".rstrip()
        )
    bad[exact] = True
    if not bad.any():
        return table, None, ()
    if bad.all():
        raise UnanswerableError("The table must hold at least one row with a sequence and a time. Got none.")
    left_out = {f"without {quoted([name])}": int(missing.sum()) for name, missing in empty.items()}
    left_out[f"that repeat{'s' if len(exact) == 1 else ''} an earlier one exactly"] = len(exact)
    messages = [f"Left out: {n:,} row{'s' if n != 1 else ''} {which}." for which, n in left_out.items() if n]
    messages.append("Row numbers in the results are those of the table as it was given.")
    given = np.where(bad, -1, np.cumsum(~bad) - 1)
    return table.filter(pa.array(~bad)), given, tuple(messages)


def _repeats(table: pa.Table, columns: RoleColumns, placed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that have the sequence, time and annotator of an earlier one: those alike in all columns, and the others."""
    assert columns.time is not None
    indices = np.flatnonzero(placed)
    names = [*columns.sequence, columns.time, *([columns.annotator] if columns.annotator else [])]
    key = _codes(table, names, indices)
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    some = indices[counts[inverse.reshape(-1)] > 1]
    if not len(some):
        return some, some
    is_odd = {field.name: pa.types.is_nested(field.type) or pa.types.is_null(field.type) for field in table.schema}
    telling = [name for name in table.column_names if not is_number_of_row(name) and not is_odd[name]]
    is_repeat, is_exact = np.ones((2, len(some)), dtype=bool)
    for later, each in ((is_repeat, names), (is_exact, telling)):
        later[np.unique(_codes(table, each, some), return_index=True)[1]] = False
    return some[is_exact], some[is_repeat & ~is_exact]


def _codes(table: pa.Table, names: list[str], rows: np.ndarray) -> np.ndarray:
    """A number for each combination of values of some columns: int64 of shape (rows,)."""
    joined = np.zeros(len(rows), dtype=np.int64)
    for name in names:
        array = whole(table[name]).take(pa.array(rows))
        codes = array.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        joined = joined * (int(codes.max(initial=0)) + 1) + codes
        joined = np.unique(joined, return_inverse=True)[1].reshape(-1)
    return joined


def _missing(column: pa.ChunkedArray, *, with_blanks: bool) -> np.ndarray:
    """Where nothing stands: null or NaN, and with_blanks a text of blanks alone."""
    array = whole(column)
    missing = array.is_null(nan_is_null=True)
    if with_blanks and is_text(array.type):
        missing = pc.or_(missing, pc.equal(pc.utf8_trim_whitespace(array), "").fill_null(False))
    return missing.to_numpy(zero_copy_only=False)
