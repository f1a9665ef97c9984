"""Recorded and trusted labels of every step, as codes into one list of classes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import UnanswerableError, encode_labels, find_classes
from labeltide.auditing.intake import is_text, whole
from labeltide.auditing.rows import Rows
from labeltide.auditing.words import quoted, texts
from labeltide.tables.columns import factorize_labels, name_rows
from labeltide.tables.layout import Steps


@dataclass(frozen=True)
class Labels:
    """The labels of all rows.

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
        return tuple(texts(self.classes))


def read_labels(table: pa.Table, columns: Sequence[str]) -> Labels:
    """Read one label column, or one for each annotator."""
    said: list[str] = []
    parts = [_factorize(table, name, said) for name in columns]
    known = np.concatenate([distinct for _, distinct in parts])
    subject = f"The label column {quoted(columns)}" if len(columns) == 1 else f"The label columns {quoted(columns)}"
    if not len(known):
        raise UnanswerableError(f"{subject} must hold labels. Every row is empty or -1.")
    try:
        classes = find_classes(known, np.ones(len(known), dtype=bool), subject)
    except ValueError as error:
        raise UnanswerableError(str(error)) from None
    codes = [_encode(own, distinct, classes, subject) for own, distinct in parts]
    return Labels(np.stack(codes, axis=1), classes, tuple(said))


def read_trusted(table: pa.Table, name: str, labels: Labels, steps: Steps) -> tuple[np.ndarray, str]:
    """Labels known to be right, int8 of shape (steps,) with -1 elsewhere, and a sentence about them."""
    own, distinct = _factorize(table, name, [])
    codes = _encode(own, distinct, labels.classes, f"The trusted column {quoted([name])}")
    given = np.flatnonzero(codes >= 0)
    if not len(given):
        raise ValueError(f"The trusted column {quoted([name])} must hold some labels. Every row is empty or -1.")
    merged = np.full(len(steps.rows), -1, dtype=np.int8)
    merged[steps.step_of_row[given]] = codes[given]
    differs = given[merged[steps.step_of_row[given]] != codes[given]]
    if len(differs):
        raise ValueError(
            f"The trusted column {quoted([name])} must agree among annotators of the same sequence and time. "
            f"It differs in {name_rows(differs)}."
        )
    count = int((merged >= 0).sum())
    return merged, f"I trust {count} label{'s' if count > 1 else ''} in {quoted([name])}."


def labels_of_steps(labels: Labels, rows: Rows) -> np.ndarray:
    """Recorded labels, int8 of shape (steps, annotators)."""
    steps = rows.steps
    if labels.codes.shape[1] > 1:
        return labels.codes[steps.rows]
    recorded = np.full((len(steps.rows), rows.n_annotators), -1, dtype=np.int8)
    known = rows.annotator >= 0
    recorded[steps.step_of_row[known], rows.annotator[known]] = labels.codes[known, 0]
    return recorded


def _factorize(table: pa.Table, name: str, said: list[str]) -> tuple[np.ndarray, np.ndarray]:
    array = whole(table[name])
    if pa.types.is_null(array.type):
        return np.full(len(array), -1), np.empty(0, dtype=object)
    if is_text(array.type):
        empty = pc.equal(pc.utf8_trim_whitespace(array), "").fill_null(False)
        count = pc.sum(empty).as_py()
        if count:
            array = pc.if_else(empty, pa.scalar(None, array.type), array)
            said.append(f"{count} label{'s' if count > 1 else ''} of {quoted([name])} are blank: not recorded.")
    return factorize_labels(nw.from_native(pa.table({name: array}))[name])


def _encode(own: np.ndarray, distinct: np.ndarray, classes: tuple[Hashable, ...], subject: str) -> np.ndarray:
    codes = encode_labels(distinct, np.ones(len(distinct), dtype=bool), classes, subject)
    return np.append(codes, np.int8(-1))[own]
