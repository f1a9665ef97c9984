"""Tables for tests and benchmarks: the arrays of an audit with options by name, and spans of labels on a grid."""

from typing import Any

import numpy as np
import pyarrow as pa

from labeltide.auditing.reading import AuditInput, read_audit_steps
from labeltide.recordings.recordings import Grid
from labeltide.recordings.spans.table import make_spans
from labeltide.tables.roles import Labels, Reading, Request


def read_audit_table(
    table: Any,
    *,
    window: int | None = None,
    drop_bad_rows: bool = False,
    timezone: str | None = None,
    missing: Labels = None,
    **columns: Any,
) -> AuditInput:
    """Read a table with one row per step, or per step and annotator, in any order of rows."""
    return read_audit_steps(table, Request(**columns), Reading(drop_bad_rows, timezone, missing)).cut(window)


def grid_to_spans(
    labels: list[str | None], grid: Grid, annotator: str | None = None, recording: str | None = None
) -> pa.Table:
    """Spans of equal labels in a row; steps without a label belong to none."""
    _, codes = np.unique(
        np.array(["" if text is None else "+" + text for text in labels], dtype=str), return_inverse=True
    )
    first = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if len(codes) else np.empty(0, dtype=int)
    last = np.append(first[1:], len(labels))
    kept = [k for k, index in enumerate(first) if labels[index] is not None]
    first, last = first[kept], last[kept]
    onset = grid.start + first * grid.length
    texts = [labels[index] for index in first]
    return make_spans(onset, (last - first) * grid.length, texts, annotator, recording)[0]
