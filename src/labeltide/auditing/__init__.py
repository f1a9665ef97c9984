"""From a table to a folder of results: which labels are likely wrong, when, and how sure we are."""

from labeltide._validation import UnanswerableError
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.folder import check_folder, write_results
from labeltide.auditing.reading import read_audit_table, read_new_table
from labeltide.auditing.wearable_study import simulate_study

__all__ = [
    "AuditInput",
    "UnanswerableError",
    "check_folder",
    "read_audit_table",
    "read_new_table",
    "simulate_study",
    "write_results",
]
