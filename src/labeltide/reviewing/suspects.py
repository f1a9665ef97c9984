"""Stretches of labels that are likely wrong, ranked for review."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from labeltide.reviewing.lines import Lines

MOST_STEPS = 200  # of one stretch; longer ones are cut
REACH = 50  # steps on each side of a marked one that may be settled with it


class Stretch(NamedTuple):
    """Labels of one annotator that follow each other: first and last table row, and the least likely right."""

    first_row: int
    last_row: int
    target: int  # a place in the lines
    size: int


def rank_suspects(lines: Lines, plan: Sequence[Mapping[str, Any]] = ()) -> list[Stretch]:
    """Stretches of flagged labels with one recorded and one suggested class.

    Whole stretches come before single labels. Among each, those within the audit's plan come first, then those with
    the most labels expected to be wrong.
    """
    order = np.lexsort((lines.step, lines.annotator, lines.sequence))
    starts = _starts(lines, order)
    ends = np.append(starts[1:], len(order))
    flagged = lines.is_issue[order[starts]] if len(starts) else np.zeros(0, bool)
    planned = planned_steps(lines, plan)
    ranked: list[tuple[tuple[bool, bool, float], Stretch]] = []
    for start, end in zip(starts[flagged].tolist(), ends[flagged].tolist(), strict=True):
        places = order[start:end]
        worst = int(places[np.argmin(lines.right[places])])
        stretch = Stretch(int(lines.row[places].min()), int(lines.row[places].max()), worst, len(places))
        inside = any(first <= lines.step[worst] < last for first, last in planned)
        ranked.append(((len(places) == 1, not inside, -float(lines.wrong[places].sum())), stretch))
    return [stretch for _, stretch in sorted(ranked, key=lambda entry: entry[0])]


def _starts(lines: Lines, order: np.ndarray) -> np.ndarray:
    """Places in `order` at which a new stretch begins.

    A stretch is a run in time whose table rows also follow each other among those of its sequence and annotator, so
    that its first and last row say which labels it holds.
    """
    if not len(order):
        return np.zeros(0, np.int64)
    same = np.diff(lines.table_rank[order]) == 1
    for values in (lines.sequence, lines.annotator, lines.recorded, lines.suggested, lines.is_issue):
        same &= np.diff(values[order].astype(np.int64)) == 0
    starts = np.flatnonzero(np.append(True, ~same))
    ends = np.append(starts[1:], len(order))
    long = ends - starts > MOST_STEPS
    cuts = [np.arange(start + MOST_STEPS, end, MOST_STEPS) for start, end in zip(starts[long], ends[long], strict=True)]
    return np.sort(np.concatenate([starts, *cuts]))


def planned_steps(lines: Lines, plan: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """The steps of the stretches that the audit planned for review: first, and one past the last."""
    codes = {name: code for code, name in enumerate(lines.sequence_names)}
    found = []
    for entry in plan:
        code = codes.get(str(entry.get("sequence")))
        if code is None:
            continue
        places = np.flatnonzero(lines.sequence == code)
        times = np.array(lines.texts(places, ["time"])["time"], dtype=object)
        ends = [lines.step[places[times == entry.get(end)]] for end in ("first", "last")]
        if all(map(len, ends)):
            found.append((int(ends[0].min()), int(ends[1].max()) + 1))
    return found


def same_label_run(lines: Lines, place: int) -> tuple[int, int]:
    """First and last table row of the run of one recorded label around a line, up to `REACH` steps on each side.

    It ends where table rows no longer follow each other in time.
    """
    first, end = lines.sequence_steps[lines.sequence[place]]
    step = int(lines.step[place])
    around = lines.between(max(int(first), step - REACH), min(int(end), step + REACH + 1))
    around = around[lines.annotator[around] == lines.annotator[place]]
    here = int(np.flatnonzero(around == place)[0])
    joined = (np.diff(lines.table_rank[around]) == 1) & (np.diff(lines.recorded[around]) == 0)  # with the next
    after = np.flatnonzero(~joined[here:])
    before = np.flatnonzero(~joined[:here][::-1])
    last = here + (int(after[0]) if len(after) else len(around) - 1 - here)
    start = here - (int(before[0]) if len(before) else here)
    return int(lines.row[around[start]]), int(lines.row[around[last]])
