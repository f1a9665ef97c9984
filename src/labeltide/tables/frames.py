"""Tables for the user: pandas, polars or Arrow."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._validation import check_choice

KINDS = ("pandas", "polars", "pyarrow")


def as_frame(table: pa.Table | dict[str, Any], kind: str = "pandas") -> Any:
    """An Arrow table, or columns by name, as a frame of the kind asked for."""
    check_choice("kind of frame", kind, KINDS)
    arrow = table if isinstance(table, pa.Table) else pa.table(table)
    if kind == "pyarrow":
        return arrow
    try:
        if kind == "pandas":
            return arrow.to_pandas()
        import polars

        return polars.from_arrow(arrow)
    except ImportError:
        raise ValueError(
            f"to_frame({kind!r}) needs {kind}, which is not installed. Install it with: pip install {kind}. Without "
            "it, to_frame('pyarrow') works."
        ) from None


def frame_index(given: Any) -> Any:
    """The index of a pandas frame; None of anything else."""
    pandas = sys.modules.get("pandas")
    return given.index if pandas is not None and isinstance(given, pandas.DataFrame) else None


def like_given(values: np.ndarray, given: Any) -> Any:
    """Values as a pandas frame with the index and columns of the one given; as they are where it was none."""
    index = frame_index(given)
    return values if index is None else type(given)(values, index=index, columns=given.columns)


def like_table(lines: pa.Table, given: Any) -> Any:
    """A table with a column `row` in the kind of the frame given, in pandas with its index; else as Arrow."""
    index = frame_index(given)
    if index is not None:
        frame = as_frame(lines, "pandas")
        frame.index = index.take(lines["row"].to_numpy())
        return frame
    polars = sys.modules.get("polars")
    is_polars = polars is not None and isinstance(given, polars.DataFrame)
    return as_frame(lines, "polars") if is_polars else lines
