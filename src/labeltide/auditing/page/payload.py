"""The part of the page that its script reads: the first issues and the timelines, within a budget of bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from labeltide.auditing.page.names import LONG, shorten, sound
from labeltide.auditing.page.results import Results

MOST_ISSUES = 20_000
ISSUE_BYTES, TIMELINE_BYTES = 1_800_000, 2_200_000
TIME = 60  # letters of a time
NUMBERS = {"clock": ("clock", 6), "right": ("probability_right", 4), "sure": ("suggested_probability", 4)}  # and digits
TEXTS = {  # columns of text, and the words they share
    "sequence": "sequence",
    "annotator": "annotator",
    "recorded": "class",
    "suggested": "class",
    "corrected": "class",
    "reason": "reason",
}
TRACKS = 6  # annotators drawn in one timeline
SHEETS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".xlsx")  # tables with a heading in their first row


class SharedTexts:
    """Texts kept once and named by number."""

    def __init__(self, first: Iterable[Any] = ()) -> None:
        self.numbers: dict[str, int] = {}
        self.texts: list[str] = []
        self.is_cut = False
        for text in first:
            self.number(text)

    def number(self, text: Any) -> int:
        if text is None:
            return -1
        text = str(text)
        if text not in self.numbers:
            self.numbers[text] = len(self.texts)
            kept = shorten(sound(text), LONG)
            self.is_cut |= len(text) > LONG
            self.texts.append(kept)
        return self.numbers[text]


def build_payload(results: Results) -> dict[str, Any]:
    """Everything the script shows."""
    audit = results.audit
    words = {"sequence": SharedTexts(), "reason": SharedTexts()}
    words["annotator"] = SharedTexts(audit["table"].get("annotators") or [])
    words["class"] = SharedTexts(audit["table"]["classes"])
    issues = _issues(results, words)
    timelines = _timelines(results, words)
    places = [
        timelines.place_of_row.get(row, (-1, -1)) for row in issues["row"]
    ]  # a timeline and a step in it, where there is one
    issues["timeline"], issues["step"] = ([place[which] for place in places] for which in (0, 1))
    return {
        "issues": issues,
        "timelines": timelines.drawn,
        "plan": [_find_stretch(entry, timelines.described) for entry in audit.get("plan") or []],
        "rowBase": row_base(audit),
        "words": {name: each.texts for name, each in words.items()},
        "isCut": any(each.is_cut for each in words.values()),
        "hasAnnotators": bool(audit["table"].get("annotators")),
        "file": shorten(sound(audit["table"]["name"]), LONG),
    }


def embed(payload: Mapping[str, Any]) -> str:
    """JSON that nothing in it can end: the letters with a meaning in HTML are written as numbers."""
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def _issues(results: Results, words: Mapping[str, SharedTexts]) -> dict[str, Any]:
    parts, total = results.first_issues(MOST_ISSUES)
    columns: dict[str, list[Any]] = {name: [] for name in ("rank", "row", "time", *NUMBERS, *TEXTS)}
    for part in parts:
        columns["rank"] += part["rank"].to_pylist()
        columns["row"] += part["row"].to_pylist()
        columns["time"] += [None if each is None else shorten(sound(each), TIME) for each in part["time"].to_pylist()]
        for name, (column, digits) in NUMBERS.items():
            columns[name] += _rounded(part[column], digits)
        for name, kind in TEXTS.items():
            columns[name] += [words[kind].number(each) for each in part[name].to_pylist()]
    kept = min(MOST_ISSUES, _within(columns, words, ISSUE_BYTES))
    return {"total": total, "shown": kept, **{name: values[:kept] for name, values in columns.items()}}


def _within(columns: Mapping[str, Sequence[Any]], words: Mapping[str, SharedTexts], budget: int) -> int:
    """How many rows fit: each costs its numbers, and its texts when they are first met."""
    rows = len(columns["rank"])
    cost = np.full(rows, 60.0)
    cost += [4 + len(text.encode()) if text else 5 for text in columns["time"]]
    for name in ("sequence", "reason"):
        seen: set[int] = set()
        for place, which in enumerate(columns[name]):
            if which >= 0 and which not in seen:
                seen.add(which)
                cost[place] += 6 + len(words[name].texts[which].encode())
    kept = int(np.searchsorted(np.cumsum(cost), budget, side="right"))
    if kept < rows:  # drop the texts that only rows left out would have used
        for name in ("sequence", "reason"):
            del words[name].texts[max(columns[name][:kept], default=-1) + 1 :]
            words[name].numbers = {text: n for text, n in words[name].numbers.items() if n < len(words[name].texts)}
    return kept


def row_base(audit: Mapping[str, Any]) -> int:
    """What is added to a row, counted from 0, to number it as spreadsheet programs do: below a heading in row 1.

    Tables that have no heading in a row of their own are counted from 0.
    """
    return 2 if str(audit["table"]["name"]).lower().endswith(SHEETS) else 0


def _find_stretch(entry: Mapping[str, Any], timelines: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """The timeline of a stretch of the plan, its first and its last step there; None where there is none."""
    for at, each in enumerate(timelines):
        times = list(each["times"])
        if str(each["sequence"]) == str(entry["sequence"]) and entry["first"] in times and entry["last"] in times:
            return {"at": at, "from": times.index(entry["first"]), "to": times.index(entry["last"])}
    return None


class KeptTimelines(NamedTuple):
    """The timelines that fit into the page, as described in audit.json and as the page draws them."""

    described: list[Mapping[str, Any]]
    drawn: list[dict[str, Any]]
    place_of_row: dict[int, tuple[int, int]]  # a timeline and a step in it, by row of the table


def _timelines(results: Results, words: Mapping[str, SharedTexts]) -> KeptTimelines:
    """The first timeline, those of the plan, and of the others as many as the budget allows."""
    described: Sequence[Mapping[str, Any]] = results.audit.get("timelines") or []
    if not described:
        return KeptTimelines([], [], {})
    labels = results.labels_of([str(each["sequence"]) for each in described])
    of_sequence: dict[str, list[int]] = {}
    for place, name in enumerate(labels["sequence"].to_pylist()):
        of_sequence.setdefault(name, []).append(place)
    built: dict[int, tuple[dict[str, Any], list[tuple[int, int]]]] = {}
    spent = 0
    for at in sorted(range(len(described)), key=lambda place: (place > 0, not described[place].get("planned"), place)):
        each = described[at]
        lines = labels.take(pa.array(of_sequence.get(str(each["sequence"]), []), pa.int64()))
        steps = _steps(each["rows"], lines)
        timeline = _timeline(each, lines, steps, words)
        spent += len(json.dumps(timeline))
        if spent > TIMELINE_BYTES and built:
            break
        rows = lines["row"].to_pylist()
        built[at] = (timeline, [(row, step) for row, step in zip(rows, steps, strict=True) if step >= 0])
    places: dict[int, tuple[int, int]] = {}
    for number, at in enumerate(sorted(built)):
        for row, step in built[at][1]:
            places.setdefault(row, (number, step))
    return KeptTimelines([described[at] for at in sorted(built)], [built[at][0] for at in sorted(built)], places)


def _timeline(
    described: Mapping[str, Any], labels: pa.Table, steps: Sequence[int], words: Mapping[str, SharedTexts]
) -> dict[str, Any]:
    n = len(described["times"])
    tracks: dict[int, dict[str, list[int]]] = {}
    suggested = [-1] * n
    columns = (
        labels[name].to_pylist() for name in ("annotator", "recorded", "probability_right", "suggested", "is_issue")
    )
    for step, who, recorded, right, better, is_issue in zip(steps, *columns, strict=True):
        if step < 0 or step >= n:
            continue
        annotator = words["annotator"].number(who)
        track = tracks.setdefault(annotator, {"recorded": [-1] * n, "right": [-1] * n, "issues": []})
        track["recorded"][step] = words["class"].number(recorded)
        if right is not None and math.isfinite(right) and recorded is not None:
            track["right"][step] = round(1000 * right)
        if suggested[step] < 0:
            suggested[step] = words["class"].number(better)
        if is_issue:
            track["issues"].append(step)
    shown = sorted(tracks, key=lambda who: (-len(tracks[who]["issues"]), who))[:TRACKS]
    return {
        "sequence": words["sequence"].number(str(described["sequence"])),
        "times": [_time(each) for each in described["times"]],
        "gaps": _gaps(described["times"]),
        "signals": [_signal(name, values) for name, values in described["signals"].items()],
        "suggested": suggested,
        "tracks": [{"annotator": who, **tracks[who], "issues": sorted(tracks[who]["issues"])} for who in sorted(shown)],
        "leftOut": len(tracks) - len(shown),
        "planned": described.get("planned") or 0,
    }


def _steps(rows: Sequence[int], labels: pa.Table) -> list[int]:
    """The step of each label: its own position, or that of another annotator's label at the same time."""
    of_position = {row: step for step, row in enumerate(rows) if row >= 0}
    positions, times = labels["position"].to_pylist(), labels["time"].to_pylist()
    at = {time: of_position[row] for row, time in zip(positions, times, strict=True) if row in of_position}
    is_unique = len(at) == sum(row in of_position for row in positions)
    return [
        of_position.get(row, at.get(time, -1) if is_unique else -1) for row, time in zip(positions, times, strict=True)
    ]


def _signal(name: str, values: Sequence[float | None]) -> dict[str, Any]:
    """A signal on a scale of 0 to 1000 between its ends: what a screen can show."""
    numbers = np.array(values, dtype=float)
    known = np.isfinite(numbers)
    low, high = (float(numbers[known].min()), float(numbers[known].max())) if known.any() else (0.0, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.where(known, (numbers - low) / (high - low or 1.0) * 1000, -1)
    scaled = np.where(np.isfinite(scaled), scaled, -1)
    return {"name": shorten(sound(name), LONG), "low": low, "high": high, "values": scaled.round().astype(int).tolist()}


def _time(value: Any) -> str | float | int:
    return value if isinstance(value, int | float) else shorten(sound(value), TIME)


def _gaps(times: Sequence[Any]) -> list[int]:
    """Steps before which time jumped by more than three usual steps, where times can be told apart."""
    try:
        moments = np.array(
            [float(t) if isinstance(t, int | float) else datetime.fromisoformat(t).timestamp() for t in times]
        )
    except (TypeError, ValueError, OverflowError):
        return []
    jumps = np.diff(moments)
    if len(jumps) < 2 or not np.isfinite(jumps).all():
        return []
    return (np.flatnonzero(jumps > 3 * np.median(jumps)) + 1).tolist() if np.median(jumps) > 0 else []


def _rounded(column: pa.Array, digits: int) -> list[float | None]:
    return [None if each is None or not math.isfinite(each) else round(each, digits) for each in column.to_pylist()]
