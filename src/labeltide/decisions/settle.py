"""Which decisions stand, where reviewers differ, and the labels that follow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from labeltide.decisions.records import Decision


def standing_decisions(decisions: Iterable[Decision]) -> list[Decision]:
    """The latest decision of each reviewer on each item, those undone left out, in the order they were made."""
    latest: dict[tuple[str, str], Decision] = {}
    for decision in decisions:
        if decision.undone_at is None:
            latest[decision.reviewer, decision.item_id] = decision
    return sorted(latest.values(), key=lambda decision: decision.decision_id or 0)


def disputed_items(standing: Iterable[Decision]) -> dict[str, list[Decision]]:
    """The items on which reviewers differ, with their decisions; one who skipped has said nothing."""
    by_item: dict[str, list[Decision]] = {}
    for decision in standing:
        if decision.action != "skip":
            by_item.setdefault(decision.item_id, []).append(decision)
    return {item: found for item, found in by_item.items() if len({decision.outcome for decision in found}) > 1}


@dataclass(frozen=True)
class Settled:
    """Labels that reviewers settled, one entry for each line of a table that a decision covers.

    Attributes
    ----------
    line : int64 array of shape (settled,), places in the lines that were passed
    row : int64 array of shape (settled,), rows of the user's table
    annotator, label, reviewer, comment, action : lists of texts
        The label that is right. Reviewers who agree are joined by ", ".
    n_disputed : number of lines on which reviewers differ, which are left out
    """

    line: np.ndarray
    row: np.ndarray
    annotator: list[str | None]
    label: list[str]
    reviewer: list[str]
    comment: list[str]
    action: list[str]
    n_disputed: int

    def __len__(self) -> int:
        return len(self.line)


def settled_labels(decisions: Iterable[Decision], lines: pa.Table) -> Settled:
    """The labels that standing decisions settle.

    A reviewer's latest decision on a label stands. Where reviewers differ, the label is left out and counted. A kept
    label is the recorded one; where nothing was recorded, nothing is settled.

    Parameters
    ----------
    decisions : as of `DecisionStore.standing`
    lines : pyarrow.Table with the columns row, sequence, annotator and recorded, as labels.parquet has them
    """
    votes = _votes(decisions, lines)
    places = sorted(votes)
    table = lines.select(["row", "annotator", "recorded"]).take(pa.array(places, pa.int64())).to_pylist()
    kept: list[tuple[int, dict[str, object], str, list[Decision]]] = []
    n_disputed = 0
    for place, line in zip(places, table, strict=True):
        said = {d.label if d.action == "label" else line["recorded"]: d.action for d in votes[place].values()}
        if len(said) > 1:
            n_disputed += 1
        elif (label := next(iter(said))) is not None:
            kept.append((place, line, label, list(votes[place].values())))
    return Settled(
        line=np.array([place for place, *_ in kept], np.int64),
        row=np.array([line["row"] for _, line, *_ in kept], np.int64),
        annotator=[line["annotator"] for _, line, *_ in kept],  # type: ignore[misc]
        label=[label for _, _, label, _ in kept],
        reviewer=[", ".join(dict.fromkeys(d.reviewer for d in said)) for *_, said in kept],
        comment=["; ".join(d.comment for d in said if d.comment) for *_, said in kept],
        action=["label" if any(d.action == "label" for d in said) else "keep" for *_, said in kept],
        n_disputed=n_disputed,
    )


def _votes(decisions: Iterable[Decision], lines: pa.Table) -> dict[int, dict[str, Decision]]:
    """For each line that is covered, the latest decision of each reviewer."""
    rows = lines["row"].to_numpy()
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    columns = {name: lines[name].combine_chunks() for name in ("sequence", "annotator")}
    votes: dict[int, dict[str, Decision]] = {}
    for decision in sorted(decisions, key=lambda decision: decision.decision_id or 0):
        if decision.action == "skip" or decision.undone_at is not None:
            continue
        first, last = np.searchsorted(ordered, [decision.first_row, decision.last_row + 1])
        places = order[first:last]
        inside = np.ones(len(places), bool)
        for name, value in (("sequence", decision.sequence), ("annotator", decision.annotator)):
            if value is not None:
                texts = columns[name].take(pa.array(places)).to_pylist()
                inside &= np.array([text == value for text in texts], bool)
        for place in places[inside].tolist():
            votes.setdefault(place, {})[decision.reviewer] = decision
    return votes
