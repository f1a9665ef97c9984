"""The arrays of an audit of a table, with options by name: for tests and benchmarks."""

from typing import Any

from labeltide.auditing.reading import AuditInput, read_audit_steps
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
