"""Tables for the user: pandas, polars or Arrow."""

from __future__ import annotations

from typing import Any

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
