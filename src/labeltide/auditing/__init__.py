"""From a table to a folder of results: which labels are likely wrong, when, and how sure we are."""

from labeltide._validation import UnanswerableError
from labeltide.auditing.reading import AuditInput, read_audit_table, read_new_table
from labeltide.auditing.results import check_folder, new_results
from labeltide.data.studies import simulate_study

__all__ = [
    "AuditInput",
    "UnanswerableError",
    "check_folder",
    "new_results",
    "read_audit_table",
    "read_new_table",
    "simulate_study",
]
