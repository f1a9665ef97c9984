"""From a table to a folder of results: which labels are likely wrong, when, and how sure we are."""

from labeltide._validation import UnanswerableError
from labeltide.auditing.files import check_folder, write_results
from labeltide.auditing.read import read_audit_table, read_new_table
from labeltide.auditing.simulate import simulate_study
from labeltide.auditing.table import AuditTable

__all__ = [
    "AuditTable",
    "UnanswerableError",
    "check_folder",
    "read_audit_table",
    "read_new_table",
    "simulate_study",
    "write_results",
]
