"""What the page asks to be kept: checked, and turned into a decision."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from labeltide.decisions import Decision, Item
from labeltide.decisions.records import ACTIONS, MOST_ROWS, MOST_TEXT
from labeltide.reviewing.session import Session
from labeltide.reviewing.views import find_item, stretch_of, target_place

MOST_NAME = 200  # characters of a reviewer's name
MOST_SHOWN = 40  # characters of a wrong number that are repeated


def decide(session: Session, body: Any) -> Item:
    """Keep a decision that the page sent; returns the item that it is about."""
    if not isinstance(body, Mapping):
        raise ValueError("A decision must be a JSON object.")
    item = find_item(session, body.get("position"))
    decided, (first, last) = _unit(session, item, body)
    action, label = _outcome(session, body)
    decision = Decision(
        item_id=decided.item_id,
        audit=session.audit.identity,
        reviewer=check_reviewer(body.get("reviewer")),
        action=action,
        label=label,
        first_row=first,
        last_row=last,
        sequence=item.sequence,
        annotator=item.annotator,
        comment=_text(body.get("comment") or "", "comment", MOST_TEXT),
        shown=_shown(session, decided, body),
        probability=decided.probability,
        request=_check_request(body.get("request")),
    )
    session.store.add(decision, decided)
    return decided


def whole_number(text: Any) -> Any:
    """A number that was written in an address; what is none, or too long to be one, stays as it is, cut short."""
    is_number = isinstance(text, str) and len(text) < 19 and text.isascii() and text.isdigit()
    return int(text) if is_number else text[:MOST_SHOWN] if isinstance(text, str) else text


def check_reviewer(name: Any) -> str:
    """A reviewer's name that is not empty and not too long."""
    text = _text(name, "reviewer", MOST_NAME).strip()
    if not text:
        raise ValueError("A decision must name its reviewer. Write a name into the field at the top.")
    return text


def _check_request(request: Any) -> str:
    text = _text(request, "request", 100)
    if not text:
        raise ValueError("A decision must have a request, a text by which it is known when sent again. Got none.")
    return text


def _unit(session: Session, item: Item, body: Mapping[str, Any]) -> tuple[Item, tuple[int, int]]:
    """What is decided: the item, over its stretch or its marked step, or another step as an item of its own."""
    unit = body.get("unit")
    if unit == "stretch":
        return item, stretch_of(session, item)
    if unit != "step":
        raise ValueError(f"Unknown unit {unit!r}. Choose one of: stretch, step.")
    row = body.get("row", item.target)
    lines = session.audit.lines
    is_row = isinstance(row, int) and not isinstance(row, bool) and 0 <= row < MOST_ROWS
    place = lines.find(row, item.annotator) if is_row else None
    if place is None or lines.sequence[place] != lines.sequence[target_place(session, item)]:
        raise ValueError(f"A step must be a table row of the item's sequence and annotator. Got {row!r}.")
    if row == item.target:
        return item, (row, row)
    name = hashlib.sha256(f"{session.audit.identity} step {row} {item.annotator}".encode()).hexdigest()[:16]
    split = Item(name, item.audit, "suspect", item.sequence, item.annotator, row, row, target=row)
    return split, (row, row)


def _outcome(session: Session, body: Mapping[str, Any]) -> tuple[str, str | None]:
    action, code = body.get("action"), body.get("class")
    if action not in ACTIONS:
        raise ValueError(f"Unknown action {action!r}. Choose one of: {', '.join(ACTIONS)}.")
    if action != "label":
        return action, None
    classes = session.audit.classes
    if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code < len(classes):
        raise ValueError(f"There is no class number {code!r}. The audit has {len(classes)} classes, numbered from 0.")
    return action, classes[code]


def _shown(session: Session, item: Item, body: Mapping[str, Any]) -> str:
    """What was on the screen, as JSON."""
    lines, place = session.audit.lines, target_place(session, item)

    def name(code: int) -> str | None:
        return lines.classes[code] if code >= 0 else None

    shown: dict[str, Any] = {
        "blind": session.is_blind,
        "unit": body.get("unit"),
        "position": item.position,
        "recorded": name(int(lines.recorded[place])),
        "signals": [] if session.signals is None else session.signals.names,
    }
    if not session.is_blind:
        shown |= {"suggested": name(int(lines.suggested[place])), "quality": round(float(lines.right[place]), 6)}
    return json.dumps(shown)


def _text(value: Any, name: str, most: int) -> str:
    if not isinstance(value, str):
        raise ValueError(f"The {name} must be a text. Got {type(value).__name__}.")
    if len(value) > most:
        raise ValueError(f"The {name} must have at most {most} characters. Got {len(value)}.")
    return value.encode("utf-8", "replace").decode()
