"""Items of a review and decisions on them, as the database holds them."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, fields
from typing import get_args, get_type_hints

ACTIONS = ("label", "keep", "skip")
KINDS = ("suspect", "sample")
MOST_ROWS = 2**53  # of a table
MOST_TEXT = 10_000  # characters of a comment, a name or a label


@dataclass(frozen=True)
class Item:
    """One stretch of labels of one annotator that is to be settled.

    Attributes
    ----------
    kind : "suspect", or "sample" for an item of the probability sample
    sequence, annotator : None where the table names none
    first_row, last_row : rows of the user's table from 0, both included
        The item is made of the rows between them that belong to its sequence and annotator.
    probability : inclusion probability of a sample item, None for a suspect
    draws : how many times it was drawn; 0 for a suspect
    target : the marked row, which a decision must cover; the drawn label of a sample item
    position : place in the queue; None for a single step that was split off a stretch
    draw : number of the draw, from 0; None for a suspect
    """

    item_id: str
    audit: str
    kind: str
    sequence: str | None
    annotator: str | None
    first_row: int
    last_row: int
    probability: float | None = None
    draws: int = 0
    target: int | None = None
    position: int | None = None
    draw: int | None = None


@dataclass(frozen=True)
class Decision:
    """What one reviewer decided about one item.

    Attributes
    ----------
    action : "label", "keep" for the recorded labels are right, or "skip"
    label : the label that is right; None unless the action is "label"
    first_row, last_row : rows of the user's table from 0, both included; they may be fewer than those of the item
    shown : JSON of what was on the screen
    request : random text that the browser made, by which a repeated request is known
    decided_at, undone_at : UTC in ISO 8601; `decided_at` is set by the store where it is empty
    """

    item_id: str
    audit: str
    reviewer: str
    action: str
    label: str | None
    first_row: int
    last_row: int
    sequence: str | None = None
    annotator: str | None = None
    comment: str = ""
    shown: str = "{}"
    probability: float | None = None
    request: str | None = None
    decided_at: str = ""
    undone_at: str | None = None
    decision_id: int | None = None

    @property
    def outcome(self) -> tuple[str, str | None]:
        """What two decisions on one item must share in order to agree."""
        return self.action, self.label


def check_decision(decision: Decision) -> None:
    """Refuse a decision that the database must not hold."""
    if decision.action not in ACTIONS:
        raise ValueError(f"Unknown action {decision.action!r}. Choose one of: {', '.join(ACTIONS)}.")
    if (decision.label is not None) != (decision.action == "label"):
        raise ValueError("A decision must have a label if its action is 'label', and none otherwise.")
    if not decision.reviewer.strip():
        raise ValueError("A decision must name its reviewer. Got an empty name.")
    for name in ("reviewer", "label", "comment"):
        length = len(getattr(decision, name) or "")
        if length > MOST_TEXT:
            raise ValueError(f"The {name} of a decision must have at most {MOST_TEXT} characters. Got {length}.")
    if not 0 <= decision.first_row <= decision.last_row:
        raise ValueError(
            "The rows of a decision must be whole numbers from 0, the first not after the last. "
            f"Got {decision.first_row} to {decision.last_row}."
        )


def check_stored(record: Item | Decision) -> Item | Decision:
    """Refuse a row of the database that the store did not write: SQLite itself keeps any value in any column."""
    for name, kinds in _FIELD_TYPES[type(record)]:
        value = getattr(record, name)
        if not (type(value) in kinds or (float in kinds and type(value) is int)):
            raise ValueError(f"the {name} of an entry is {reprlib.repr(value)}")
    if not 0 <= record.first_row <= record.last_row < MOST_ROWS:
        raise ValueError(f"an entry has the rows {record.first_row} to {record.last_row}")
    if isinstance(record, Item):
        _check_item(record)
    else:
        check_decision(record)
    return record


def _types_of_fields(kind: type[Item] | type[Decision]) -> list[tuple[str, tuple[type, ...]]]:
    types = get_type_hints(kind)
    return [(field.name, get_args(types[field.name]) or (types[field.name],)) for field in fields(kind)]


# Worked out once, because it takes 80 times as long as the check of an entry.
_FIELD_TYPES = {Item: _types_of_fields(Item), Decision: _types_of_fields(Decision)}


def _check_item(item: Item) -> None:
    numbers = [number for number in (item.target, item.position, item.draw) if number is not None]
    if item.kind not in KINDS or not all(0 <= number < MOST_ROWS for number in numbers):
        raise ValueError(f"an item is of the kind {reprlib.repr(item.kind)} with the numbers {numbers}")
    is_drawn = item.kind == "sample" and item.position is not None
    if is_drawn and (item.draw is None or item.probability is None or not 0 < item.probability <= 1):
        raise ValueError("an item of the sample lacks its inclusion probability")
