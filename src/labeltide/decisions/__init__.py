"""Decisions of reviewers, kept in `decisions.sqlite` in the folder of an audit."""

from labeltide.decisions.identity import audit_identity, file_digest
from labeltide.decisions.records import Decision, Item
from labeltide.decisions.settle import Settled, disputed_items, settled_labels, standing_decisions
from labeltide.decisions.store import DECISIONS, DecisionStore

__all__ = [
    "DECISIONS",
    "Decision",
    "DecisionStore",
    "Item",
    "Settled",
    "audit_identity",
    "disputed_items",
    "file_digest",
    "settled_labels",
    "standing_decisions",
]
