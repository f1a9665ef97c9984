"""A review that is open: the audit, the decisions, the queue and the signals."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from labeltide import _validation
from labeltide._files import to_json
from labeltide.auditing.decisions import Decision, DecisionStore, Item, disputed_items
from labeltide.reviewing.folder import AuditFolder, Signals
from labeltide.reviewing.queue import REACH, prepare_queue, same_label_run


@dataclass
class Session:
    """What the server answers from; without signals where the table cannot be read."""

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
    """Open the review of an audit's folder: check its table, make or read the queue.

    Parameters
    ----------
    table : the table of the audit, where it is no longer where it was
    items, sample : how many stretches that are likely wrong, and how many labels of the probability sample, to queue
    is_blind : whether everything of the model is hidden
    reviewer : the name with which the page begins
    """
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


# One item as the page shows it: signals, recorded labels and, unless blind, what the model thinks.

CONTEXT, MAX_CONTEXT = 60, 1000  # steps on each side
MODEL_COLUMNS = ["probability_contested", "reason"]


def view_item(session: Session, position: int, reviewer: str, context: int = CONTEXT) -> dict[str, Any]:
    """All that is shown of an item; in blind mode nothing of the model, nor of the kind of the item."""
    item = find_item(session, position)
    _validation.check_number("context", context, REACH, MAX_CONTEXT, whole=True)
    lines, index = session.audit.lines, target_index(session, item)
    first_row, last_row = stretch_of(session, item)
    start, stop = (int(step) for step in lines.sequence_steps[lines.sequence[index]])
    ends = [int(lines.step[index])]
    if not session.is_blind:  # where kinds are hidden, steps are shown around the mark alone
        indices = [lines.find(row, item.annotator) for row in (first_row, last_row)]
        ends += [int(lines.step[found]) for found in indices if found is not None]
    first, end = max(start, min(ends) - context), min(stop, max(ends) + context + 1)
    around = lines.between(first, end)
    is_inside = (lines.row[around] >= first_row) & (lines.row[around] <= last_row)
    for codes in (lines.annotator, lines.sequence):
        is_inside &= codes[around] == codes[index]
    inside = around[is_inside]
    model = None
    if not session.is_blind:
        present = [name for name in MODEL_COLUMNS if name in parquet.read_schema(lines.path).names]
        texts = lines.texts(np.array([index]), present)
        model = {
            "kind": item.kind,
            "suggested": int(lines.suggested[index]),
            "sure": float(lines.sure[index]),
            "right": float(lines.right[index]),
            **{name.removeprefix("probability_"): texts.get(name, [None])[0] for name in MODEL_COLUMNS},
        }
    view = {
        "position": position,
        "sequence": item.sequence,
        "annotator": item.annotator,
        "unit": "stretch" if item.kind == "suspect" and not session.is_blind else "step",
        "target": int(lines.step[index]) - first,
        "stretch": [int(lines.step[inside].min()) - first, int(lines.step[inside].max()) - first],
        "recorded": int(lines.recorded[index]),
        "window": _describe_window(session, item, around, first, end),
        "model": model,
        "context": context,
        **session.decisions_on(item, reviewer),
    }
    return to_json(view)


def find_item(session: Session, position: Any) -> Item:
    """The item at a position of the queue."""
    _validation.check_number("position", position, 0, len(session.queue) - 1, whole=True)
    return session.queue[position]


def target_index(session: Session, item: Item) -> int:
    """The index of the marked label in the lines."""
    index = session.audit.lines.find(int(item.target if item.target is not None else item.first_row), item.annotator)
    if index is None:
        raise ValueError("The item does not belong to a label of this audit.")
    return index


def stretch_of(session: Session, item: Item) -> tuple[int, int]:
    """First and last table row of the stretch: that of a suspect or, where kinds are hidden, the run of one label."""
    if item.kind == "suspect" and not session.is_blind:
        return item.first_row, item.last_row
    return same_label_run(session.audit.lines, target_index(session, item))


def _describe_window(session: Session, item: Item, around: np.ndarray, first: int, end: int) -> dict[str, Any]:
    lines, n = session.audit.lines, end - first
    step = lines.step[around] - first
    representative = np.full(n, -1, np.int64)
    representative[step[::-1]] = around[::-1]  # the first line of each step
    tracks: list[dict[str, Any]] = []
    for code in np.unique(lines.annotator[around]).tolist():
        own = lines.annotator[around] == code
        recorded, rows = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
        recorded[step[own]], rows[step[own]] = lines.recorded[around[own]], lines.row[around[own]]
        name = lines.annotator_names[code] if code >= 0 else None
        track: dict[str, Any] = {"annotator": name, "recorded": recorded, "is_own": name == item.annotator}
        if name == item.annotator:
            track["rows"] = rows
        if not session.is_blind:
            right = np.full(n, np.nan)
            right[step[own]] = lines.right[around[own]].round(4)
            track["right"] = right
        if name is not None or not lines.annotator_names:  # rows of nobody hold no label
            tracks.append(track)
    signals: list[dict[str, Any]] = []
    if session.signals is not None:
        with session.turn:
            values = session.signals.read(lines.row[representative])
        for name, column in values.items():
            signals.append({"name": name, "values": [float(f"{value:.6g}") for value in column.tolist()]})
    window = {"times": lines.texts(representative, ["time"])["time"], "tracks": tracks, "signals": signals}
    return window if session.is_blind else window | {"suggested": lines.suggested[representative]}
