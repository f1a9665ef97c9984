"""Columns of a part of a table as codes into values that were collected from the whole of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._validation import encode_labels
from labeltide.tables.columns import factorize_labels
from labeltide.tables.intake import Column, is_text, whole


def code_values(column: pa.ChunkedArray | pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Codes into the distinct values, -1 for nulls, and the values: also of columns that are dictionary-encoded."""
    array = whole(column) if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = array.indices.fill_null(-1) if array.null_count else array.indices
    return codes.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), array.dictionary


def label_values(column: pa.ChunkedArray | pa.Array) -> tuple[np.ndarray, np.ndarray, list[Hashable]]:
    """Codes of rows, the label of each code (-1 where it stands for none), and the distinct labels of a column."""
    codes, values = code_values(column)
    if pa.types.is_null(values.type):
        return codes, np.full(len(values), -1), []
    used = np.bincount(codes[codes >= 0], minlength=len(values)) > 0
    if not used.all():  # levels of a categorical column that no row has
        codes, values = np.append(np.cumsum(used) - 1, -1)[codes], values.filter(pa.array(used))
    if is_text(values.type):
        empty = pc.equal(pc.utf8_trim_whitespace(values), "").fill_null(False)
        values = pc.if_else(empty, pa.scalar(None, values.type), values)
    of_value, distinct = factorize_labels(Column.of_array("label", values))
    return codes, of_value, list(distinct)


def encode_column(column: pa.ChunkedArray | pa.Array, classes: Sequence[Hashable], subject: str) -> np.ndarray:
    """Labels as codes into the classes of the whole table: int8 of shape (rows,), -1 where nothing was recorded."""
    codes, of_value, distinct = label_values(column)
    known = np.fromiter(distinct, dtype=object, count=len(distinct))
    class_of = np.append(encode_labels(known, np.ones(len(known), dtype=bool), tuple(classes), subject), np.int8(-1))
    return np.append(class_of[of_value], np.int8(-1))[codes].astype(np.int8, copy=False)


def find_places(column: pa.ChunkedArray | pa.Array, names: pa.Array) -> np.ndarray:
    """The place of each row's value among `names`, -1 where it is none of them: int32 of shape (rows,)."""
    codes, values = code_values(column)
    places = pc.index_in(values, names.cast(values.type)).fill_null(-1).to_numpy(zero_copy_only=False)
    return np.append(places, -1).astype(np.int32)[codes]
