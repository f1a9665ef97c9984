"""The times of rows of a large table as numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from labeltide.tables.intake import whole
from labeltide.tables.wording import quoted


def time_numbers(name: str, column: pa.ChunkedArray) -> np.ndarray:
    """Times as numbers in their order: microseconds, or the numbers of the column."""
    kind = column.type
    if column.null_count:
        raise ValueError(
            f"The time column {quoted([name])} must be given in every row. {column.null_count} rows have none."
        )
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        column = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ValueError(
            f"In a table of this size the time column {quoted([name])} must hold moments or numbers. Got {kind}. Write "
            "moments as in 2026-11-15 10:30."
        )
    return whole(column).to_numpy(zero_copy_only=False)
