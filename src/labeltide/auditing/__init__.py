"""From a table to a folder of results: which labels are likely wrong, when, and how sure we are."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Loaded when first used: the command line reads `options` from this folder whenever it starts.
_HOMES = {
    "AuditInput": "labeltide.auditing.reading",
    "UnanswerableError": "labeltide._validation",
    "check_folder": "labeltide.auditing.results",
    "new_results": "labeltide.auditing.results",
    "read_audit_table": "labeltide.auditing.reading",
    "read_new_table": "labeltide.auditing.reading",
    "simulate_study": "labeltide.data.studies",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
