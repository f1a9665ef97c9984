"""Tables in, the fields of `Sequences` out: one row per step (and annotator), in any order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from labeltide._validation import check_clock, check_number, encode_labels, find_classes, steps_mask
from labeltide.tables.columns import (
    ROLES,
    check_repeats,
    check_roles,
    columns_of_role,
    factorize,
    factorize_labels,
    group_rows,
    name_rows,
    open_table,
    read_numbers,
    read_times,
    sort_codes,
)


@dataclass(frozen=True)
class TableLayout:
    """Which column plays which role, and how sequences are cut; see `Sequences.from_table`."""

    sequence: str | Sequence[str]
    time: str
    label: str
    features: str | Sequence[str]
    annotator: str | None = None
    clock: str | None = None
    clean: str | None = None
    zscore: str | Sequence[str] | None = None
    window: int | None = None
    offset: int = 0
    keep_tail: bool = True

    def read(self, table: Any) -> dict[str, Any]:
        """The fields of `Sequences`, by name."""
        roles, frame = self._load(table)
        steps = find_steps(frame, roles, isinstance(self.sequence, str))
        starts, lengths = self._cut(np.bincount(steps.sequence))
        n_steps = self.window or int(lengths.max())
        real = steps_mask(lengths, n_steps)
        # Padding points at the last real step, so that clock and times hold real moments there too.
        index = starts[:, None] + np.minimum(np.arange(n_steps), lengths[:, None] - 1)  # (n, n_steps)
        labels, clean, classes = _read_labels(frame, steps, self.label, self.clean)
        features = _read_features(frame, steps, roles["features"], roles["zscore"])[index]
        features[~real] = 0
        clock = _read_clock(frame, steps, self.clock)[index] if self.clock else None
        return {
            "features": features,
            "labels": np.where(real[..., None], labels[index], np.int8(-1)),
            "lengths": lengths,
            "clock": check_clock(None, lengths, n_steps) if clock is None else clock,
            "ids": tuple(steps.ids[code] for code in steps.sequence[starts]),
            "classes": classes,
            "clean_labels": None if clean is None else np.where(real, clean[index], np.int8(-1)),
            "times": steps.times[index],
            "annotators": steps.annotators,
        }

    def _load(self, table: Any) -> tuple[dict[str, list[str]], nw.DataFrame]:
        """Check the request, then load only the columns it names."""
        if self.window is not None:
            check_number("window", self.window, 1, whole=True)
        check_number("offset", self.offset, 0, whole=True)
        there, load = open_table(table)
        roles = {role: columns_of_role(role, getattr(self, role)) for role in ROLES}
        if self.zscore == "sequence" and "sequence" not in there:
            roles["zscore"] = roles["sequence"]
        check_roles(roles, there)
        frame = load(list(dict.fromkeys(name for names in roles.values() for name in names)))
        if not len(frame):
            raise ValueError("The table must hold at least one row. Got none.")
        return roles, frame

    def _cut(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First step and length of every window, from the number of steps of every sequence."""
        first = np.cumsum(counts) - counts
        found = [self._window_starts(int(count)) for count in counts]
        starts = np.concatenate([start + own for start, own in zip(first, found, strict=True)]).astype(np.int64)
        if not len(starts):
            raise ValueError(
                f"No sequence is long enough: the longest has {counts.max()} steps, window={self.window} "
                f"and offset={self.offset}. Take a shorter window or offset, or keep_tail=True."
            )
        ends = np.repeat(first + counts, [len(own) for own in found])
        return starts, np.minimum(self.window or np.iinfo(np.int64).max, ends - starts)

    def _window_starts(self, n_rows: int) -> np.ndarray:
        if self.window is None:
            return np.arange(self.offset, n_rows)[:1]
        if self.keep_tail:
            return np.arange(self.offset, n_rows, self.window)
        # With an offset we follow the paper's own cutting of its data, range(1, rows - 50, 50), so that its
        # windows come out the same: it leaves out a last window that would end exactly at the last row.
        last = n_rows - self.window + (self.offset == 0)
        return np.arange(self.offset, last, self.window)


@dataclass(frozen=True)
class Steps:
    """How rows become steps: several rows, one for each annotator, may describe the same step."""

    rows: np.ndarray  # (steps,) the row that stands for each step; steps ordered by sequence, then time
    sequence: np.ndarray  # (steps,) codes into ids
    ids: list[Hashable]
    times: np.ndarray  # (steps,)
    step_of_row: np.ndarray  # (rows,)
    annotator_of_row: np.ndarray  # (rows,) codes into annotators
    annotators: tuple[Hashable, ...] | None  # sorted; None without a column of annotators

    def pick(self, name: str, values: np.ndarray) -> np.ndarray:
        """One value for each step, after a check that its rows agree."""
        differs = values != values[self.rows[self.step_of_row]]
        if differs.any():
            raise ValueError(
                f"Column {name!r} must agree among annotators of the same sequence and time. "
                f"It differs in {name_rows(np.flatnonzero(differs))}."
            )
        return values[self.rows]


def find_steps(frame: nw.DataFrame, roles: dict[str, list[str]], one_name: bool) -> Steps:
    """Group rows by sequence and time, and refuse those that say the same thing twice."""
    sequence, ids = group_rows(frame, roles["sequence"], "sequence")
    times, moment = read_times(frame[roles["time"][0]])
    annotator, annotators = np.zeros(len(frame), dtype=np.int64), None
    for name in roles["annotator"]:
        annotator, people = sort_codes(name, *factorize(frame[name], "annotator"))
        annotators = tuple(people)
    order = np.lexsort((annotator, moment, sequence))
    keys = np.stack([sequence, moment, annotator])[:, order]
    same_step = np.append(False, (keys[:2, 1:] == keys[:2, :-1]).all(0))
    repeats = same_step & np.append(False, keys[2, 1:] == keys[2, :-1])
    check_repeats(np.sort(order[repeats]), bool(roles["annotator"]))
    rows = order[~same_step]
    step_of_row = np.empty(len(frame), dtype=np.int64)
    step_of_row[order] = np.cumsum(~same_step) - 1
    names: list[Hashable] = [key[0] if one_name else key for key in ids]
    return Steps(rows, sequence[rows], names, times[rows], step_of_row, annotator, annotators)


def _read_labels(
    frame: nw.DataFrame, steps: Steps, label: str, clean: str | None
) -> tuple[np.ndarray, np.ndarray | None, tuple[Hashable, ...]]:
    """Recorded labels (steps, annotators), clean labels (steps,) and the classes of both together."""
    parts = [factorize_labels(frame[name]) for name in (label, clean) if name]
    known = np.concatenate([distinct for _, distinct in parts])
    if not len(parts[0][1]):
        raise ValueError(f"The label column {label!r} holds no label at all: every row is null, NaN or -1.")
    classes = find_classes(known, np.ones(len(known), dtype=bool), f"The label column {label!r}")
    codes = [
        np.append(encode_labels(distinct, np.ones(len(distinct), dtype=bool), classes), np.int8(-1))[own]
        for own, distinct in parts
    ]
    labels = np.full((len(steps.rows), steps.annotator_of_row.max() + 1), -1, dtype=np.int8)
    labels[steps.step_of_row, steps.annotator_of_row] = codes[0]
    return labels, steps.pick(clean, codes[1]) if clean else None, classes


def _read_features(frame: nw.DataFrame, steps: Steps, names: list[str], zscore: list[str]) -> np.ndarray:
    """Features of shape (steps, features), as float32."""
    columns = [steps.pick(name, read_numbers(frame[name], "feature")) for name in names]
    if zscore:
        group = steps.pick(zscore[0], group_rows(frame, zscore, "zscore")[0])
        columns = [_zscore(column, group) for column in columns]
    return np.stack([column.astype(np.float32) for column in columns], axis=1)


def _zscore(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Subtract the mean of the group and divide by its population standard deviation."""
    counts = np.bincount(group)
    anchor = np.empty(len(counts))
    anchor[group] = values  # any one value of the group
    centred = values - anchor[group]  # a constant is now exactly zero, with no rounding left to blow up
    centred -= (np.bincount(group, centred) / counts)[group]
    scale = np.sqrt(np.bincount(group, centred**2) / counts)
    return centred / np.where(scale > 0, scale, 1)[group]


def _read_clock(frame: nw.DataFrame, steps: Steps, name: str) -> np.ndarray:
    """Numbers as they are; datetimes as days since the earliest."""
    if frame[name].dtype in (nw.Datetime, nw.Date):
        moments, _ = read_times(frame[name], "clock")
        return steps.pick(name, (moments - moments.min()) / np.timedelta64(1, "D"))
    return steps.pick(name, read_numbers(frame[name], "clock"))
