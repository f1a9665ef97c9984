"""Columns of text that are nearly all numbers: they are read as numbers, texts among them as gaps."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
LEAST_NUMBERS = 0.9  # share of the texts
MOST_LEVELS = 20  # texts with fewer are encoded by their levels
NOTE = "read as numbers, texts among them as gaps"


def count_numbers(array: pa.Array) -> int:
    """How many texts are numbers."""
    return int(pc.sum(pc.match_substring_regex(array, NUMBER)).as_py() or 0)


def text_numbers(array: pa.Array) -> pa.Array:
    """The numbers among texts, null elsewhere."""
    kept = pc.if_else(pc.match_substring_regex(array, NUMBER), array, pa.scalar(None, array.type))
    return pc.utf8_trim_whitespace(kept).cast(pa.float64())
