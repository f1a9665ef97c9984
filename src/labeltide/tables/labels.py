"""Label columns as codes into one list of classes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import UnanswerableError, encode_labels, find_classes
from labeltide.tables.columns import factorize_labels
from labeltide.tables.intake import Column, is_text, whole
from labeltide.tables.steps import Steps
from labeltide.tables.table_rows import TableRows
from labeltide.tables.wording import name_rows, quoted, unique_texts


class FactorizedLabels(NamedTuple):
    """A label column: codes into its distinct values, -1 where nothing was recorded."""

    codes: np.ndarray  # (rows,)
    distinct: np.ndarray

    def encode(self, classes: tuple[Hashable, ...], subject: str = "y") -> np.ndarray:
        """Codes into a list of classes that holds every value: int8 of shape (rows,)."""
        known = np.ones(len(self.distinct), dtype=bool)
        return np.append(encode_labels(self.distinct, known, classes, subject), np.int8(-1))[self.codes]


def common_classes(columns: Sequence[FactorizedLabels], subject: str) -> tuple[Hashable, ...]:
    """The sorted distinct values of all columns together."""
    known = np.concatenate([column.distinct for column in columns])
    return find_classes(known, np.ones(len(known), dtype=bool), subject)


@dataclass(frozen=True)
class TableLabels:
    """The labels of all rows of an audited table.

    Attributes
    ----------
    codes : int8 array of shape (rows, columns of labels)
    classes : the user's own values
    """

    codes: np.ndarray
    classes: tuple[Hashable, ...]
    said: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(unique_texts(self.classes))

    def of_steps(self, rows: TableRows) -> np.ndarray:
        """Recorded labels, int8 of shape (steps, annotators)."""
        if self.codes.shape[1] > 1:
            return self.codes[rows.steps.rows]
        return rows.steps.spread(self.codes[:, 0], rows.annotator, rows.n_annotators)


def read_table_labels(table: pa.Table, columns: Sequence[str]) -> TableLabels:
    """Read one label column, or one for each annotator."""
    said: list[str] = []
    parts = [_factorize_without_blanks(table, name, said) for name in columns]
    subject = f"The label column {quoted(columns)}" if len(columns) == 1 else f"The label columns {quoted(columns)}"
    if not any(len(part.distinct) for part in parts):
        raise UnanswerableError(f"{subject} must hold labels. Every row is empty or -1.")
    try:
        classes = common_classes(parts, subject)
    except ValueError as error:
        raise UnanswerableError(str(error)) from None
    return TableLabels(np.stack([part.encode(classes, subject) for part in parts], axis=1), classes, tuple(said))


def read_trusted(table: pa.Table, name: str, labels: TableLabels, steps: Steps) -> tuple[np.ndarray, str]:
    """Labels known to be right, int8 of shape (steps,) with -1 elsewhere, and a sentence about them."""
    codes = _factorize_without_blanks(table, name, []).encode(labels.classes, f"The trusted column {quoted([name])}")
    trusted_rows = np.flatnonzero(codes >= 0)
    if not len(trusted_rows):
        raise no_trusted(name)
    merged = np.full(len(steps.rows), -1, dtype=np.int8)
    merged[steps.step_of_row[trusted_rows]] = codes[trusted_rows]
    differs = trusted_rows[merged[steps.step_of_row[trusted_rows]] != codes[trusted_rows]]
    if len(differs):
        raise trusted_differ(name, differs)
    return merged, say_trusted(int((merged >= 0).sum()), name)


def no_trusted(name: str) -> ValueError:
    """The error for a trusted column without labels."""
    return ValueError(f"The trusted column {quoted([name])} must hold some labels. Every row is empty or -1.")


def trusted_differ(name: str, rows: np.ndarray) -> ValueError:
    """The error for rows of one step with different trusted labels."""
    return ValueError(
        f"The trusted column {quoted([name])} must agree among annotators of the same sequence and time. "
        f"It differs in {name_rows(rows)}."
    )


def say_trusted(count: int, name: str) -> str:
    """A sentence on labels known to be right."""
    return f"I trust {count} label{'s' if count > 1 else ''} in {quoted([name])}."


def say_blank(count: int, name: str) -> str:
    """A sentence on texts of blanks alone in a column of labels."""
    return f"{count} label{'s' if count > 1 else ''} of {quoted([name])} are blank: not recorded."


def _factorize_without_blanks(table: pa.Table, name: str, said: list[str]) -> FactorizedLabels:
    """Factorise a column; texts of blanks alone are missing labels."""
    array = whole(table[name])
    if pa.types.is_null(array.type):
        return FactorizedLabels(np.full(len(array), -1), np.empty(0, dtype=object))
    if is_text(array.type):
        empty = pc.equal(pc.utf8_trim_whitespace(array), "").fill_null(False)
        count = pc.sum(empty).as_py()
        if count:
            array = pc.if_else(empty, pa.scalar(None, array.type), array)
            said.append(say_blank(count, name))
    return FactorizedLabels(*factorize_labels(Column.of_array(name, array)))
