"""Decisions for tests, as a review would keep them."""

import json

from labeltide.auditing.decisions import Decision, DecisionStore, audit_identity


def decide(folder, decisions, audit=None):
    """Keep decisions: (reviewer, row, label or None for keep, annotator)."""
    identity = audit or audit_identity(json.loads((folder / "audit.json").read_text()))
    with DecisionStore.open(folder, create=True) as store:
        for number, (reviewer, row, label, annotator) in enumerate(decisions):
            action = "keep" if label is None else "label"
            more = {"annotator": annotator, "comment": "=looked twice", "request": f"{reviewer}-{number}-{row}"}
            store.add(Decision(f"item-{row}-{annotator}", identity, reviewer, action, label, row, row, **more))
