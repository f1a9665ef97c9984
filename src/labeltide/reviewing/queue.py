"""The queue of a review: suspects in their rank, mixed by chance with a probability sample of all labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from labeltide import _validation
from labeltide.auditing.decisions import Decision, DecisionStore, Item, settled_labels
from labeltide.auditing.results import read_labels
from labeltide.inference.review import ReviewSample, review_sample
from labeltide.reviewing.folder import AuditFolder, Lines

SUSPECTS, SAMPLE = 100, 100
DRAWS = "smallest probability at the first item of each draw"
AUDIT_KEY = "audit"


def prepare_queue(store: DecisionStore, audit: AuditFolder, n_suspects: int | None, n_sample: int | None) -> list[Item]:
    """The queue in its order: made once, kept in the database, and made longer where more items are asked for.

    Parameters
    ----------
    n_suspects : stretches that are likely wrong; None for 100, or for those that are queued already
    n_sample : labels of the probability sample; likewise
    """
    for name, value in (("items", n_suspects), ("sample", n_sample)):
        if value is not None:
            _validation.check_number(name, value, 0, 1_000_000, whole=True)
    check_same_audit(store, audit)
    if not len(audit.lines):  # read now, so that other processes do not wait for it
        raise ValueError("There is nothing to review: the audit has no labels.")
    with store.transaction():  # a second review that starts at the same time waits, then sees this queue
        queued = [item for item in store.items() if item.position is not None]
        counts = {kind: sum(item.kind == kind for item in queued) for kind in ("suspect", "sample")}
        wanted = {"suspect": n_suspects, "sample": n_sample}
        default = counts if queued else {"suspect": SUSPECTS, "sample": SAMPLE}
        more = {kind: max((default[kind] if n is None else n) - counts[kind], 0) for kind, n in wanted.items()}
        if any(more.values()):
            start = counts["suspect"]
            ranked = rank_suspects(audit.lines, audit.summary.get("plan") or ())[start : start + more["suspect"]]
            suspects = [
                _item(audit, "suspect", index, {"first_row": first, "last_row": last}, start + number)
                for number, (first, last, index, _) in enumerate(ranked)
            ]
            sample = _sample_items(store, audit, queued, more["sample"])
            # Each kind keeps its own order, and which comes next is left to chance.
            random = np.random.default_rng((_seed(audit), len(queued), 1))
            waiting = (iter(suspects), iter(sample))
            order = [next(waiting[kind]) for kind in random.permutation([0] * len(suspects) + [1] * len(sample))]
            store.add_items([replace(item, position=len(queued) + index) for index, item in enumerate(order)])
            queued = [item for item in store.items() if item.position is not None]
    if not queued:
        raise ValueError("There is nothing to review: no label of this audit was recorded, or none was asked for.")
    return queued


def check_same_audit(store: DecisionStore, audit: AuditFolder) -> None:
    """Refuse decisions of another audit: its rows may be other rows."""
    kept = store.setting(AUDIT_KEY)
    if kept is None:
        store.keep_setting(AUDIT_KEY, audit.identity)
    elif kept != audit.identity:
        raise ValueError(
            f"{str(store.path)!r} belongs to another audit, of another table or with other settings. Review the "
            "folder of that audit, or move the file away to start again."
        )


def kept_sample(store: DecisionStore, items: Sequence[Item], lines: Lines) -> ReviewSample | None:
    """The probability sample as it was drawn, from the items in the database."""
    sample = _sampled(items)
    if not sample:
        return None
    indices = [lines.find(int(item.target or 0), item.annotator) for item in sample]
    if None in indices:
        raise ValueError(f"{str(store.path)!r} holds items that do not belong to this audit. Move it away.")
    kept, n_draws = store.setting(DRAWS), 1 + max(int(item.draw or 0) for item in sample)
    is_sound = isinstance(kept, list) and len(kept) >= n_draws and all(type(each) in (int, float) for each in kept)
    if not is_sound or not all(0 < each <= 1 for each in kept):
        raise ValueError(f"{str(store.path)!r} does not say how its sample was drawn. Move it away to start again.")
    return ReviewSample(
        items=np.array(indices, np.int64),
        chances=np.array([item.probability for item in sample], float),
        draws=np.array([item.draw for item in sample], np.int64),
        least=np.array(kept[:n_draws], float),
        shape=(len(lines),),
    )


def _sampled(items: Sequence[Item]) -> list[Item]:
    """The items of the sample in the order in which they were drawn."""
    sample = [item for item in items if item.kind == "sample" and item.position is not None]
    return sorted(sample, key=lambda item: (item.draw, item.position))


def _sample_items(store: DecisionStore, audit: AuditFolder, queued: Sequence[Item], more: int) -> list[Item]:
    lines, earlier = audit.lines, kept_sample(store, queued, audit.lines)
    start = 0 if earlier is None else len(earlier)
    more = min(more, int(np.isfinite(lines.wrong).sum()) - start)
    if not more:
        return []
    sample = review_sample(lines.wrong, more, earlier=earlier, random_state=_seed(audit))
    store.keep_setting(DRAWS, sample.least.tolist())
    items = []
    for number in range(start, len(sample)):
        drawn = {"probability": float(sample.chances[number]), "draws": 1, "draw": int(sample.draws[number])}
        items.append(_item(audit, "sample", int(sample.items[number]), drawn, number))
    return items


def _item(audit: AuditFolder, kind: str, index: int, fields: Mapping[str, Any], number: int) -> Item:
    lines, row, who = audit.lines, int(audit.lines.row[index]), int(audit.lines.annotator[index])
    name = hashlib.sha256(f"{audit.identity} {_seed(audit)} {kind} {number}".encode()).hexdigest()[:16]
    sequence = lines.sequence_names[lines.sequence[index]]
    annotator = lines.annotator_names[who] if who >= 0 else None
    rows = {"first_row": row, "last_row": row, "target": row}
    return Item(name, audit.identity, kind, sequence, annotator, **{**rows, **fields})


def _seed(audit: AuditFolder) -> int:
    """The seed of the audit; with the same audit and the same numbers the queue is the same."""
    return int((audit.summary.get("settings") or {}).get("seed") or 0)


# Stretches of labels that are likely wrong, ranked for review.

MAX_STEPS = 200  # of one stretch; longer ones are cut
REACH = 50  # steps on each side of a marked one that may be settled with it


class ReviewStretch(NamedTuple):
    """Labels of one annotator that follow each other: first and last table row, and the least likely right."""

    first_row: int
    last_row: int
    target: int  # an index into the lines
    size: int


def rank_suspects(lines: Lines, plan: Sequence[Mapping[str, Any]] = ()) -> list[ReviewStretch]:
    """Stretches of flagged labels with one recorded and one suggested class.

    Those within the audit's plan come first, then those least likely right, of equals the longer.
    """
    order = np.lexsort((lines.step, lines.annotator, lines.sequence))
    starts = _starts(lines, order)
    ends = np.append(starts[1:], len(order))
    flagged = lines.is_issue[order[starts]]
    planned = planned_steps(lines, plan)
    ranked: list[tuple[tuple[bool, float, int], ReviewStretch]] = []
    for start, end in zip(starts[flagged].tolist(), ends[flagged].tolist(), strict=True):
        indices = order[start:end]
        worst = int(indices[np.argmin(lines.right[indices])])
        stretch = ReviewStretch(int(lines.row[indices].min()), int(lines.row[indices].max()), worst, len(indices))
        inside = any(first <= lines.step[worst] < last for first, last in planned)
        ranked.append(((not inside, -round(float(lines.wrong[indices].mean()), 2), -len(indices)), stretch))
    return [stretch for _, stretch in sorted(ranked, key=lambda entry: entry[0])]


def _starts(lines: Lines, order: np.ndarray) -> np.ndarray:
    """Indices into `order` at which a new stretch begins.

    A stretch is a run in time whose table rows also follow each other among those of its sequence and annotator, so
    that its first and last row say which labels it holds.
    """
    same = np.diff(lines.table_rank[order]) == 1
    for values in (lines.sequence, lines.annotator, lines.recorded, lines.suggested, lines.is_issue):
        same &= np.diff(values[order].astype(np.int64)) == 0
    starts = np.flatnonzero(np.append(True, ~same))
    ends = np.append(starts[1:], len(order))
    long = ends - starts > MAX_STEPS
    cuts = [np.arange(start + MAX_STEPS, end, MAX_STEPS) for start, end in zip(starts[long], ends[long], strict=True)]
    return np.sort(np.concatenate([starts, *cuts]))


def planned_steps(lines: Lines, plan: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """The steps of the stretches that the audit planned for review: first, and one past the last."""
    codes = {name: code for code, name in enumerate(lines.sequence_names)}
    found = []
    for entry in plan:
        code = codes.get(str(entry.get("sequence")))
        if code is None:
            continue
        indices = np.flatnonzero(lines.sequence == code)
        times = np.array(lines.texts(indices, ["time"])["time"], dtype=object)
        ends = [lines.step[indices[times == entry.get(end)]] for end in ("first", "last")]
        if all(map(len, ends)):
            found.append((int(ends[0].min()), int(ends[1].max()) + 1))
    return found


def same_label_run(lines: Lines, index: int) -> tuple[int, int]:
    """First and last table row of the run of one recorded label around a line, up to `REACH` steps on each side.

    It ends where table rows no longer follow each other in time.
    """
    first, end = lines.sequence_steps[lines.sequence[index]]
    step = int(lines.step[index])
    around = lines.between(max(int(first), step - REACH), min(int(end), step + REACH + 1))
    around = around[lines.annotator[around] == lines.annotator[index]]
    joined = (np.diff(lines.table_rank[around]) == 1) & (np.diff(lines.recorded[around]) == 0)  # with the next
    run = np.append(0, np.cumsum(~joined))  # the number of the run that each line is in
    rows = lines.row[around[run == run[around == index]]]
    return int(rows[0]), int(rows[-1])


# The answers of reviewers on the labels of the probability sample.

UNTOLD = -1


@dataclass(frozen=True)
class Outcomes:
    """The reviewed part of the sample: its first items, up to the first that nobody has looked at.

    Later answers wait until those before them are there: a reviewer who picks items would make the sample another one.
    """

    sample: ReviewSample | None  # the reviewed items; None where there are none
    truth: np.ndarray  # int (items,), the class that is right; -1 where reviewers skipped or differ
    n_drawn: int  # all items of the sample
    n_waiting: int  # answers after the first item that nobody has looked at
    settled: np.ndarray  # labels settled by decisions on suspects
    decided: np.ndarray  # int (lines,), the class that is right; negative where it is not decided

    @property
    def untold(self) -> np.ndarray:
        return self.truth == UNTOLD


def sample_outcomes(store: DecisionStore, items: Sequence[Item], lines: Lines) -> Outcomes:
    """Join the sample with the standing decisions."""
    standing, codes = store.standing(), {name: code for code, name in enumerate(lines.classes)}
    table = read_labels(lines.path, ["row", "sequence", "annotator", "recorded"])

    def settled_codes(decisions: Sequence[Decision]) -> np.ndarray:
        """The class that is right for each line, -2 where none is settled."""
        found, truth = settled_labels(decisions, table), np.full(len(lines), -2, np.int64)
        truth[found.line] = [codes.get(label, UNTOLD) for label in found.label]
        return truth

    truth, kinds = settled_codes(standing), {item.item_id: item.kind for item in items}
    settled = settled_codes([decision for decision in standing if kinds.get(decision.item_id) != "sample"]) >= 0
    sample = kept_sample(store, items, lines)
    if sample is None:
        return Outcomes(None, np.zeros(0, np.int64), 0, 0, settled, truth)
    decided = {decision.item_id for decision in standing}
    seen = np.array([item.item_id in decided for item in _sampled(items)]) | (truth[sample.items] >= 0)
    reviewed = len(seen) if seen.all() else int(np.argmin(seen))
    answers = np.maximum(truth[sample.items[:reviewed]], UNTOLD)
    reviewed_part = sample.first(reviewed) if reviewed else None
    return Outcomes(reviewed_part, answers, len(sample), int(seen[reviewed:].sum()), settled, truth)
