"""A review that is open: the audit, the decisions, the queue and the signals."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labeltide.decisions import Decision, DecisionStore, Item
from labeltide.decisions.settle import disputed_items
from labeltide.reviewing.audit_folder import AuditFolder
from labeltide.reviewing.queue import prepare_queue
from labeltide.reviewing.signals import Signals


@dataclass
class Session:
    """What the server answers from.

    Attributes
    ----------
    queue : items in their order
    signals : None where the table cannot be read
    is_blind : whether everything of the model is hidden
    reviewer : the name with which the page begins
    """

    audit: AuditFolder
    store: DecisionStore
    queue: list[Item]
    signals: Signals | None
    is_blind: bool = False
    reviewer: str = "reviewer"
    turn: threading.Lock = field(default_factory=threading.Lock)  # Arrow's readers take one call at a time

    def describe(self) -> dict[str, Any]:
        """What the page needs to know once."""
        return {
            "table": str(self.audit.table.get("name")),
            "classes": self.audit.classes,
            "blind": self.is_blind,
            "reviewer": self.reviewer,
            "total": len(self.queue),
            "signals": [] if self.signals is None else self.signals.names,
        }

    def progress(self, reviewer: str) -> dict[str, Any]:
        """How far a reviewer is, who else decided how much, and on how many items they differ."""
        standing = self.store.standing()
        queued = {item.item_id: item.position for item in self.queue}
        mine = {queued[d.item_id]: d for d in standing if d.reviewer == reviewer and d.item_id in queued}
        open_items = [position for position in range(len(self.queue)) if position not in mine]
        others = Counter(d.reviewer for d in standing if d.reviewer != reviewer and d.item_id in queued)
        return {
            "total": len(self.queue),
            "done": len(mine),
            "left": len(open_items),
            "skipped": sum(decision.action == "skip" for decision in mine.values()),
            "next": open_items[0] if open_items else None,
            "open": open_items[:500],
            "others": [{"reviewer": name, "done": count} for name, count in sorted(others.items())],
            "disputed": sorted(queued[item] for item in disputed_items(standing) if item in queued),
        }

    def decisions_on(self, item: Item, reviewer: str) -> dict[str, Any]:
        """A reviewer's own decision, and those of others once there is one."""
        standing = [decision for decision in self.store.standing() if decision.item_id == item.item_id]
        mine = next((decision for decision in standing if decision.reviewer == reviewer), None)
        others = [decision for decision in standing if decision.reviewer != reviewer] if mine else []
        return {
            "mine": None if mine is None else _describe(mine) | {"is_step": mine.first_row == mine.last_row},
            "others": [_describe(decision) for decision in others],
            "is_disputed": mine is not None and item.item_id in disputed_items(standing),
        }


def open_session(
    folder: Path,
    *,
    table: Path | None = None,
    items: int | None = None,
    sample: int | None = None,
    is_blind: bool = False,
    reviewer: str = "reviewer",
) -> Session:
    """Open the review of an audit's folder: check its table, make or read the queue."""
    audit = AuditFolder.open(folder)
    signals = audit.open_table(table)
    store = DecisionStore.open(audit.folder, create=True)
    try:
        queue = prepare_queue(store, audit, items, sample)
    except BaseException:
        store.close()
        raise
    return Session(audit, store, queue, signals, is_blind, reviewer)


def _describe(decision: Decision) -> dict[str, Any]:
    """A decision without its rows, which would tell suspects from the sample."""
    names = ("reviewer", "action", "label", "comment", "decided_at")
    return {name: getattr(decision, name) for name in names}
