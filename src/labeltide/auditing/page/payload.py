"""The part of the page that its script reads: the first issues and the timelines, within a budget of bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labeltide.auditing.audit_json import load_audit_json
from labeltide.auditing.page.draw import Drawer, thinned
from labeltide.auditing.page.format import LONG, interval, is_known, number, percent, shorten, sound
from labeltide.auditing.results import AUDIT, ISSUES, LABEL_COLUMNS, LABELS
from labeltide.tables.files import format_of

MAX_ISSUES = 20_000
ISSUE_BYTES, TIMELINE_BYTES = 1_800_000, 2_200_000
TIME = 60  # letters of a time
# The columns of issues.parquet that the page holds and its download has, and what they hold.
ISSUE_COLUMNS = {"rank": "count"} | {name: holds for name, holds in LABEL_COLUMNS.items() if holds != "flag"}
SHARED = {"recorded": "class", "suggested": "class", "corrected": "class"}  # columns of text that share their words
DIGITS = {"number": 6, "chance": 4}
HEADINGS = {  # of the columns in the list of labels to check, in their order
    "rank": "Rank",
    "recorded": "Recorded",
    "suggested": "Suggested",
    "probability_right": "Chance of error",
    "sequence": "Sequence",
    "time": "Time",
    "annotator": "Annotator",
    "row": "Row",
    "reason": "Why",
}
TRACKS = 6  # annotators drawn in one timeline


SharedTexts = dict[str, int]  # texts that are kept once, and the number by which each is named


def _number_of(text: Any, shared: SharedTexts) -> int:
    """The number of a text, which may be new; -1 for none."""
    return -1 if text is None else shared.setdefault(str(text), len(shared))


def _shown(text: str) -> str:
    return shorten(sound(text), LONG)


def build_payload(results: Results) -> dict[str, Any]:
    """Everything the script shows."""
    audit = results.audit
    people = audit["table"].get("annotators")
    words: dict[str, SharedTexts] = {"sequence": {}, "annotator": {}, "class": {}}
    for kind, names in (("annotator", people or []), ("class", audit["table"]["classes"])):
        for name in names:
            _number_of(name, words[kind])
    issues = _issues(results, words)
    described, timelines, step_of_row = _timelines(results, words)
    found_at = [step_of_row.get(row, (-1, -1)) for row in issues["row"]]
    issues["timeline"], issues["step"] = ([each[which] for each in found_at] for which in (0, 1))
    of_recordings = bool(audit.get("recordings"))
    found = None if of_recordings else format_of(str(audit["table"]["name"]))
    are_dates = any(":" in time or time.count("-") > 1 for time in issues["time"][:9] if time)
    named = _shown((audit["table"].get("columns") or {}).get("time") or "")
    unit = "" if are_dates else "s" if of_recordings else named
    headings = HEADINGS | ({"time": f"Time ({unit})"} if unit else {})
    return {
        "issues": issues,
        "columns": [{"name": name, "holds": holds, "words": _words_of(name)} for name, holds in ISSUE_COLUMNS.items()],
        "headings": {name: title for name, title in headings.items() if name != "annotator" or people},
        "timelines": timelines,
        "plan": [_find_stretch(entry, described) for entry in audit.get("plan") or []],
        # added to a row, counted from 0, to number it as spreadsheet programs do: below a heading in row 1
        "rowBase": 2 if found and found.has_heading else 0,
        "words": {kind: list(map(_shown, shared)) for kind, shared in words.items()},
        "isCut": any(len(text) > LONG for shared in words.values() for text in shared),
        "hasAnnotators": bool(people),
        "timeUnit": f" ({unit})" if unit else "",
        "file": _shown(audit["table"]["name"]),
    }


def embed(payload: Mapping[str, Any]) -> str:
    """JSON that nothing in it can end: the letters with a meaning in HTML are written as numbers."""
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def _words_of(column: str) -> str:
    """The list of words that a column of text refers to; times stand as they are."""
    return SHARED.get(column, column) if ISSUE_COLUMNS[column] == "text" and column != "time" else ""


def _issues(results: Results, words: dict[str, SharedTexts]) -> dict[str, Any]:
    parts, total = _batches(results.issues, PART)  # a part at a time: their texts may be long
    columns: dict[str, list[Any]] = {name: [] for name in ISSUE_COLUMNS}
    for part in islice(parts, -(-MAX_ISSUES // PART)):
        for name, holds in ISSUE_COLUMNS.items():
            # An earlier version may have written fewer columns; each line is then empty there.
            values = part[name].to_pylist() if name in part.schema.names else [None] * len(part)
            if kind := _words_of(name):
                values = [_number_of(each, words.setdefault(kind, {})) for each in values]
            elif holds == "text":
                values = [None if each is None else shorten(sound(each), TIME) for each in values]
            elif holds in DIGITS:
                values = [None if v is None or not math.isfinite(v) else round(v, DIGITS[holds]) for v in values]
            columns[name] += values
    # How many rows fit: each costs its numbers, and its texts when they are first met.
    rows = len(columns["rank"])
    cost = np.full(rows, 60.0)
    cost += [4 + len(text.encode()) if text else 5 for text in columns["time"]]
    own = [name for name in columns if _words_of(name) == name and name != "annotator"]
    for name in own:
        texts, seen = list(words.get(name, ())), set[int]()
        for row, which in enumerate(columns[name]):
            if which >= 0 and which not in seen:
                seen.add(which)
                cost[row] += 6 + len(_shown(texts[which]).encode())
    kept = int(np.searchsorted(np.cumsum(cost), ISSUE_BYTES, side="right"))
    if kept < rows:  # drop the texts that only rows left out would have used
        for name in own:
            words[name] = dict(islice(words[name].items(), max(columns[name][:kept], default=-1) + 1))
    kept = min(MAX_ISSUES, kept)
    return {"total": total, "shown": kept, **{name: values[:kept] for name, values in columns.items()}}


def _find_stretch(entry: Mapping[str, Any], timelines: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """The timeline of a stretch of the plan, its first and its last step there; None where there is none."""
    for at, each in enumerate(timelines):
        times = list(each["times"])
        if str(each["sequence"]) == str(entry["sequence"]) and entry["first"] in times and entry["last"] in times:
            return {"at": at, "from": times.index(entry["first"]), "to": times.index(entry["last"])}
    return None


def _timelines(
    results: Results, words: Mapping[str, SharedTexts]
) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]], dict[int, tuple[int, int]]]:
    """The first timeline, those of the plan, and of the others as many as the budget allows.

    As audit.json describes them; as the page draws them; and by row of the table, a timeline and a step in it.
    """
    described: Sequence[Mapping[str, Any]] = results.audit.get("timelines") or []
    if not described:
        return [], [], {}
    labels = results.labels_of([str(each["sequence"]) for each in described])
    of_sequence: dict[str, list[int]] = {}
    for index, name in enumerate(labels["sequence"].to_pylist()):
        of_sequence.setdefault(name, []).append(index)
    built: dict[int, tuple[dict[str, Any], list[tuple[int, int]]]] = {}
    spent = 0
    for at in sorted(range(len(described)), key=lambda index: (index > 0, not described[index].get("planned"), index)):
        each = described[at]
        lines = labels.take(pa.array(of_sequence.get(str(each["sequence"]), []), pa.int64()))
        steps = _steps(each["rows"], lines)
        timeline = _timeline(each, lines, steps, words)
        spent += len(json.dumps(timeline))
        if spent > TIMELINE_BYTES and built:
            break
        rows = lines["row"].to_pylist()
        built[at] = (timeline, [(row, step) for row, step in zip(rows, steps, strict=True) if step >= 0])
    step_of_row: dict[int, tuple[int, int]] = {}
    for index, at in enumerate(sorted(built)):
        for row, step in built[at][1]:
            step_of_row.setdefault(row, (index, step))
    return [described[at] for at in sorted(built)], [built[at][0] for at in sorted(built)], step_of_row


def _timeline(
    described: Mapping[str, Any], labels: pa.Table, steps: Sequence[int], words: Mapping[str, SharedTexts]
) -> dict[str, Any]:
    n = len(described["times"])
    tracks: dict[int, dict[str, list[int]]] = {}
    suggested = [-1] * n
    names = ("annotator", "recorded", "probability_right", "suggested", "is_issue")
    columns = [labels[name].to_pylist() for name in names]
    for step, who, recorded, right, better, is_issue in zip(steps, *columns, strict=True):
        if step < 0 or step >= n:
            continue
        annotator = _number_of(who, words["annotator"])
        track = tracks.setdefault(annotator, {"recorded": [-1] * n, "right": [-1] * n, "issues": []})
        track["recorded"][step] = _number_of(recorded, words["class"])
        if right is not None and math.isfinite(right) and recorded is not None:
            track["right"][step] = round(1000 * right)
        if suggested[step] < 0:
            suggested[step] = _number_of(better, words["class"])
        if is_issue:
            track["issues"].append(step)
    shown = sorted(tracks, key=lambda who: (-len(tracks[who]["issues"]), who))[:TRACKS]
    return {
        "sequence": _number_of(str(described["sequence"]), words["sequence"]),
        "times": [t if isinstance(t, int | float) else shorten(sound(t), TIME) for t in described["times"]],
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
    return {"name": _shown(name), "low": low, "high": high, "values": scaled.round().astype(int).tolist()}


def _gaps(times: Sequence[Any]) -> list[int]:
    """Steps before which time jumped by more than three usual steps, where times can be read."""
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


# The tables of the page: numbers chosen, ordered and put in words, for the template to lay out.

PAIRS = 30  # rows shown
MOMENTS = 13  # rows of the curve as numbers


def as_numbers(drawer: Drawer) -> tuple[list[str], list[list[str]]]:
    """The curves at a few moments: headings, then rows of texts."""
    names, of_classes = drawer.classes[:8], drawer.class_rates()
    columns = [
        drawer.line(drawer.curves[0]),
        *(tuple(each[code] for each in of_classes[:3]) for code in range(len(names))),
    ]
    rows = []
    for at in thinned(len(drawer.points), MOMENTS):
        row = [drawer.clock.short(float(drawer.points[at]))]
        for values, lower, upper in columns:
            range_ = interval(float(lower[at]), float(upper[at]))
            row.append(f"{percent(float(values[at]))}{f' ({range_})' if range_ else ''}")
        rows.append(row)
    return names, rows


def pairs(agreement: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pairs that agree least, first."""
    return sorted(agreement.get("cohen") or [], key=lambda entry: number(entry.get("kappa")))[:PAIRS]


def kappa(value: Any) -> str:
    return f"{value:.2f}" if is_known(number(value)) else "unknown"


def kappa_word(value: Any) -> str:
    """Landis and Koch's words, which readers of kappa expect."""
    coefficient = number(value)
    if not is_known(coefficient):
        return ""
    steps = ((0.0, "none"), (0.2, "slight"), (0.4, "fair"), (0.6, "moderate"), (0.8, "substantial"))
    return next((word for limit, word in steps if coefficient <= limit), "almost perfect")


# The results of an audit that its page shows: in memory, or read from the folder that the audit wrote.

PART = 2000  # rows of the ranked issues read at once
COLUMNS = ["row", "sequence", "time", "annotator", "recorded", "probability_right", "suggested", "is_issue"]


@dataclass(frozen=True)
class Results:
    """The results of an audit, tables in memory or in files that are read in parts."""

    audit: Mapping[str, Any]  # the content of audit.json
    labels: pa.Table | Path  # one row for every label, as in labels.parquet
    issues: pa.Table | Path  # the ranked issues, as in issues.parquet
    shown: pa.Table | None = None  # the labels of the sequences of timelines, where they are in memory

    @classmethod
    def in_folder(cls, folder: Path, needed: Sequence[str] = ()) -> Results:
        """The results that an audit wrote into a folder; `needed` as of `load_audit_json`."""
        return cls(load_audit_json(folder, needed), Path(folder) / LABELS, Path(folder) / ISSUES)

    def labels_of(self, sequences: list[str]) -> pa.Table:
        """The labels of some sequences, with their `position` among all labels."""
        if self.shown is not None:
            return self.shown
        parts, _ = _batches(self.labels, 1 << 17, COLUMNS)
        kept, start = [], 0
        wanted = pa.array([sound(name) for name in sequences], pa.string())
        for batch in parts:
            table = pa.Table.from_batches([batch])
            positions = pa.array(range(start, start + len(table)), pa.int64())
            start += len(table)
            table = table.append_column("position", positions)
            kept.append(table.filter(pc.is_in(table["sequence"].cast(pa.string()), wanted)))
        if not kept:
            empty = self.labels if isinstance(self.labels, pa.Table) else pq.read_table(self.labels)
            return empty.select(COLUMNS).append_column("position", pa.array([], pa.int64()))
        return pa.concat_tables(kept, promote_options="permissive")


def read_times(times: pa.ChunkedArray) -> tuple[np.ndarray, bool]:
    """Times of labels.parquet as numbers, and whether they are moments, which are in seconds since 1970.

    Moments with offsets from UTC, as around a change to winter time, are ordered by what they mean. A ValueError where
    texts are neither.
    """
    try:
        return times.cast(pa.float64()).to_numpy(), False
    except pa.ArrowInvalid:
        pass
    try:
        return times.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy().astype(np.float64) / 1e6, True
    except pa.ArrowInvalid:
        return times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy().astype(np.float64) / 1e6, True


def _batches(
    source: pa.Table | Path, size: int, columns: list[str] | None = None
) -> tuple[Iterator[pa.RecordBatch], int]:
    """Batches of at most `size` rows, and the number of all rows."""
    if isinstance(source, pa.Table):
        table = source if columns is None else source.select(columns)
        return iter(table.combine_chunks().to_batches(max_chunksize=size)), len(source)
    if not source.exists():
        raise FileNotFoundError(f"{source.parent} must hold {source.name} as well as {AUDIT}. Audit again to write it.")
    file = pq.ParquetFile(source)
    lacking = [name for name in columns or () if name not in file.schema_arrow.names]
    if lacking:
        raise ValueError(f"{str(source)!r} lacks the column {lacking[0]!r}, which this version writes. Audit again.")
    return file.iter_batches(batch_size=size, columns=columns), file.metadata.num_rows
