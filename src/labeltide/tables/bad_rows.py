"""Rows that cannot be placed: without a time or a sequence, or exact repeats of an earlier row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import UnanswerableError
from labeltide.tables.intake import is_text, whole
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.vocabulary import is_number_of_row
from labeltide.tables.wording import name_rows, quoted

DROP = "the option drop_bad_rows (--drop-bad-rows)"


class KeptRows(NamedTuple):
    """The rows of a table that are read.

    Attributes
    ----------
    rows : int64 array of shape (kept,), their places in the table as given; None where all are kept
    said : sentences about what was left out
    """

    rows: np.ndarray | None
    said: tuple[str, ...] = ()


def keep_rows(table: pa.Table, columns: RoleColumns, drop: bool) -> KeptRows:
    """Find rows that cannot be placed; leave them out with `drop`, else say how to."""
    if columns.time is None:
        return KeptRows(None)
    empty = {name: _missing(table[name], with_blanks=False) for name in columns.sequence}
    empty[columns.time] = _missing(table[columns.time], with_blanks=True)
    bad = np.logical_or.reduce(list(empty.values()))
    exact, differ = _repeats(table, columns, ~bad)
    if not drop:
        _refuse(columns, empty, exact, differ)
        return KeptRows(None)
    if len(differ):
        raise ValueError(
            f"{_rule(columns)} {len(differ)} rows repeat an earlier one with other values: {name_rows(differ)}. "
            "drop_bad_rows (--drop-bad-rows) leaves out exact repeats alone, for nothing says which of two rows is "
            f"right. {_annotators(columns)}Remove one of each."
        )
    bad[exact] = True
    if not bad.any():
        return KeptRows(None)
    if bad.all():
        raise UnanswerableError("The table must hold at least one row with a sequence and a time. Got none.")
    return KeptRows(np.flatnonzero(~bad), tuple(_say(empty, exact)))


def _say(empty: dict[str, np.ndarray], exact: np.ndarray) -> list[str]:
    said = [
        f"I left out {_rows(int(missing.sum()))} without {quoted([name])}."
        for name, missing in empty.items()
        if missing.any()
    ]
    if len(exact):
        said.append(
            f"I left out {_rows(len(exact))} that repeat{'s' if len(exact) == 1 else ''} an earlier one exactly."
        )
    return [*said, "Row numbers in the results are those of the table as it was given."]


def _refuse(columns: RoleColumns, empty: dict[str, np.ndarray], exact: np.ndarray, differ: np.ndarray) -> None:
    """Say what is wrong with the rows, in the words of the command line."""
    for name, missing in empty.items():
        if missing.any():
            role = "time" if name == columns.time else "sequence"
            raise ValueError(
                f"The {role} column {quoted([name])} must be given in every row. It is null in "
                f"{name_rows(np.flatnonzero(missing))}. Fill these, or leave them out with {DROP}."
            )
    if len(exact) and not len(differ):
        raise ValueError(
            f"{_rule(columns)} An earlier row is repeated exactly in {name_rows(exact)}. Leave the repeats out with "
            f"{DROP}.{_sequences(columns)}"
        )


def _rule(columns: RoleColumns) -> str:
    return f"Every sequence{', time and annotator' if columns.annotator else ' and time'} may occur once."


def _annotators(columns: RoleColumns) -> str:
    if columns.annotator or len(columns.label) > 1:
        return ""
    return "If several people labelled a step, name their column with the option annotator (--annotator COLUMN). "


def _sequences(columns: RoleColumns) -> str:
    return (
        "" if columns.sequence else " Or name the column of the sequences with the option sequence (--sequence COLUMN)."
    )


def _repeats(table: pa.Table, columns: RoleColumns, placed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that have the sequence, time and annotator of an earlier one: those alike in all columns, and the others."""
    assert columns.time is not None
    places = np.flatnonzero(placed)
    names = [*columns.sequence, columns.time, *([columns.annotator] if columns.annotator else [])]
    key = _codes(table, names, places)
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    some = places[counts[inverse.reshape(-1)] > 1]
    if not len(some):
        return some, some
    by_key, by_all = (_codes(table, each, some) for each in (names, _telling(table)))
    is_repeat, is_exact = (~_is_first(codes) for codes in (by_key, by_all))
    return some[is_exact], some[is_repeat & ~is_exact]


def _telling(table: pa.Table) -> list[str]:
    """Columns in which a copy of a row is the same: all but those that count rows."""
    return [
        name for name in table.column_names if not is_number_of_row(name) and not _is_odd(table.schema.field(name).type)
    ]


def _is_odd(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_null(kind))


def _codes(table: pa.Table, names: list[str], places: np.ndarray) -> np.ndarray:
    """A number for each combination of values of some columns: int64 of shape (places,)."""
    joined = np.zeros(len(places), dtype=np.int64)
    for name in names:
        array = whole(table[name]).take(pa.array(places))
        codes = array.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        joined = joined * (int(codes.max(initial=0)) + 1) + codes
        joined = np.unique(joined, return_inverse=True)[1].reshape(-1)
    return joined


def _is_first(codes: np.ndarray) -> np.ndarray:
    first = np.zeros(len(codes), dtype=bool)
    first[np.unique(codes, return_index=True)[1]] = True
    return first


def _missing(column: pa.ChunkedArray, *, with_blanks: bool) -> np.ndarray:
    """Where nothing stands: null or NaN, and with_blanks a text of blanks alone."""
    array = whole(column)
    missing = array.is_null(nan_is_null=True)
    if with_blanks and is_text(array.type):
        missing = pc.or_(missing, pc.equal(pc.utf8_trim_whitespace(array), "").fill_null(False))
    return missing.to_numpy(zero_copy_only=False)


def _rows(count: int) -> str:
    return f"{count:,} row{'s' if count != 1 else ''}"
