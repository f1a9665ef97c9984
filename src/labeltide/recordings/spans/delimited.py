"""Spans as text: our own columns, BIDS events, selections of Raven, labels of Audacity, and BORIS.

A file has a header and one line for each span: onset (or start, begin) with duration or end (or stop), label (or
trial_type of BIDS, Behavior of BORIS), and where there are any annotator, recording and confidence. All times are in
seconds. A label track of Audacity has no header. BORIS also writes one line for the start and one for the stop of a
behaviour ("tabular events"), as it does in its projects; they are joined.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._files import bare_text, csv_text, to_json, write_atomically
from labeltide.recordings.spans.table import (
    SpanFile,
    by_annotator,
    by_recording,
    check_writable,
    file_of_lines,
    lines_of,
    make_spans,
)

MISSING = ("", "n/a")  # as BIDS writes it
NO_DURATION = ("na", "nan")  # as BORIS writes it for point events
ROLES = {  # role → names of columns in small letters, the likeliest first
    "onset": "onset | onset (s) | start | start (s) | start_s | start_time | t_start | begin | begin (s) "
    "| begin time (s) | from",
    "duration": "duration | duration (s) | duration_s | length",
    "end": "end | end (s) | end time (s) | end_s | stop | stop (s) | offset | end_time | stop_time | t_end | to",
    "label": "label | trial_type | behavior | behaviour | stage | description | annotation | event | class | species",
    "annotator": "annotator | scorer | rater | coder | observer | expert | annotator_id",
    "recording": "recording | observation id | record | file | filename | track | subject_session | sequence | session",
    "confidence": "confidence",
}
COLUMNS = {role: names.split(" | ") for role, names in ROLES.items()}
STATUS = ("status", "behavior type")  # older and newer versions
BEHAVIOUR, TIME = "behavior", "time"
OBSERVATION, SUBJECT = "observation id", "subject"
NOBODY = ("", "no focal subject")  # in the column of subjects
HEADER_WITHIN = 60  # lines, because BORIS can write a preface
VIEW, SELECTION = "view", "selection"  # of Raven, which may list a selection once for each view
LABEL_TRACK = re.compile(r"-?\d+([.,]\d+)?\t-?\d+([.,]\d+)?\t.")  # a line of Audacity


def read_file(path: Path) -> SpanFile:
    """Read spans; the recording is the name of the file where no column says it."""
    header, lines = _rows(path)
    names = [name.strip().casefold() for name in header]
    return (_join_events if is_boris_events(names) else _from_columns)(names, lines, path.stem)


def write(spans: pa.Table, path: str | Path, *, bids: bool = False) -> None:
    """Write spans as CSV, or as TSV by the name of the file; bids names the label trial_type and writes n/a."""
    path = Path(path)
    check_writable(spans, "BIDS events" if bids else "spans")
    if any(
        text in MISSING for name in ("label", "annotator", "recording") for text in spans[name].unique().to_pylist()
    ):
        raise ValueError("In a file of spans n/a stands for what is missing. Got it as a name. Rename it.")
    tabs = bids or path.suffix.lower() == ".tsv"
    if spans["confidence"].null_count == len(spans):
        spans = spans.drop_columns(["confidence"])
    head = ["trial_type" if bids and name == "label" else name for name in spans.column_names]
    lines = lines_of(spans, *spans.column_names)
    rows = [["n/a" if bids and cell is None else cell for cell in line] for line in lines]
    write_atomically(path, csv_text([head, *rows], "\t" if tabs else ",").encode())


def write_raven(spans: pa.Table, path: Path, *, rate: float = 44100.0) -> None:
    """Write a selection table of Raven, whose selections reach from 0 Hz to half the rate of the recording."""
    check_writable(spans, "Raven selections", "recording", "annotator")
    head = ["Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Low Freq (Hz)", "High Freq (Hz)"]
    rows: list[list[Any]] = [[*head, "Annotation", "Confidence"]]
    for onset, duration, label, _, _, sure in lines_of(spans, *spans.column_names):
        rows.append([len(rows), "Spectrogram 1", 1, onset, onset + duration, 0.0, rate / 2, label, sure])
    write_atomically(path, csv_text(rows, "\t").encode())


def write_audacity(spans: pa.Table, path: Path) -> None:
    """Write a label track of Audacity, which has a start, an end and a label in each line, and no header."""
    check_writable(spans, "Audacity labels", "recording", "annotator")
    lines = [f"{onset:.6f}\t{onset + duration:.6f}\t{label}\n" for onset, duration, label in lines_of(spans)]
    write_atomically(path, "".join(lines).encode())


def is_spans(path: Path) -> bool:
    """Whether a text file has the columns of spans."""
    names = _header(path)
    return is_boris_events(names) or _column(names, "onset") is not None


def is_boris(path: Path) -> bool:
    """Whether a text file is an export of BORIS, of tabular or of aggregated events."""
    return {OBSERVATION, BEHAVIOUR} <= set(_header(path))


def _header(path: Path) -> list[str]:
    """The names of the columns in small letters; none where it is not a file of spans."""
    try:
        return [name.strip().casefold() for name in _rows(path, header_only=True)[0]]
    except (ValueError, csv.Error, OSError):
        return []


def _rows(path: Path, header_only: bool = False) -> tuple[list[str], list[list[str]]]:
    """The header and the lines below it; in a file of BORIS there may be a preface above the header."""
    with path.open("rb") as file:
        content = file.read(1 << 16 if header_only else -1)
    try:
        text = content.decode("utf-8-sig", "ignore" if header_only else "strict")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    if "\0" in text:
        raise ValueError("it is not a text file")
    lines = text.splitlines()[:HEADER_WITHIN]
    if lines and LABEL_TRACK.match(lines[0]):  # lines that begin with a backslash hold frequencies
        labelled = [line.split("\t", 2) for line in text.splitlines() if LABEL_TRACK.match(line)]
        return ["start", "end", "label"], labelled
    separator = max(",;\t", key=lambda mark: max((line.count(mark) for line in lines), default=0))
    if path.suffix.lower() == ".tsv":
        separator = "\t"
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if any(map(str.strip, row))]
    for index, row in enumerate(rows[:HEADER_WITHIN]):
        names = [name.strip().casefold() for name in row]
        if is_boris_events(names) or (_column(names, "onset") is not None and _column(names, "label") is not None):
            return row, rows[index + 1 :]
    raise ValueError(
        "no line names the columns of spans. They are onset (or start), duration or end, and label (or trial_type, "
        "Behavior), in seconds"
    )


def _column(names: Sequence[str], role: str) -> int | None:
    return next((names.index(name) for name in COLUMNS[role] if name in names), None)


def _from_columns(names: list[str], lines: list[list[str]], stem: str) -> SpanFile:
    indices = {role: _column(names, role) for role in COLUMNS}
    if indices["duration"] is None and indices["end"] is None:
        raise ValueError("there is no column of durations or ends. Name it duration or end")
    if VIEW in names and SELECTION in names:
        lines = list({_cell(line, names.index(SELECTION)): line for line in lines}.values())
    columns = {role: [_cell(line, index) for line in lines] for role, index in indices.items() if index is not None}
    for role in ("annotator", "recording"):
        if (index := indices[role]) is not None:
            columns[role] = _names(lines, index, columns[role])
    onset = _numbers(columns["onset"])
    if indices["duration"] is not None:
        duration = _numbers(columns["duration"])
        duration[[cell is None or cell.casefold() in NO_DURATION for cell in columns["duration"]]] = 0.0  # an event
    else:
        duration = _numbers(columns["end"]) - onset
        duration[[cell is None for cell in columns["end"]]] = 0.0  # BORIS: a point event has no stop
    observed = _name_recordings(names, lines, stem) if OBSERVATION in names else []
    if observed and indices["recording"] == names.index(OBSERVATION):
        recording = [name for name, _ in observed]
    else:
        recording = [name or stem for name in columns.get("recording", [None] * len(lines))]
    confidence = _numbers(columns["confidence"]) if "confidence" in columns else None
    spans, messages = make_spans(onset, duration, columns["label"], columns.get("annotator"), recording, confidence)
    return SpanFile(spans, messages=messages, observations=dict(observed))


def _cell(line: list[str], index: int) -> str | None:
    text = line[index].strip() if index < len(line) else ""
    return None if text.casefold() in MISSING else bare_text(text)


def _names(lines: list[list[str]], index: int, cells: list[str | None]) -> list[str | None]:
    """Names without the blanks around them, unless these tell two names apart."""
    raw = [None if cell is None else bare_text(line[index]) for line, cell in zip(lines, cells, strict=True)]
    return cells if len(set(cells)) == len(set(raw)) else raw


def _number(cell: str | None) -> float:
    """A number with a point or a comma, NaN for what is none."""
    try:
        return float((cell or "").replace(",", "."))
    except ValueError:
        return np.nan


def _numbers(cells: list[str | None]) -> np.ndarray:
    return np.array([_number(cell) for cell in cells], dtype=np.float64)


# Exports of BORIS: subjects of an observation, and tabular events with starts and stops.


def _name_recordings(names: Sequence[str], lines: Sequence[list[str]], stem: str) -> list[tuple[str, str]]:
    """The recording and the observation of each line; the recording has the subject behind it where there is one."""
    found = []
    for line in lines:
        cells = {name: _cell(line, names.index(name)) or "" for name in (OBSERVATION, SUBJECT) if name in names}
        observation = cells.get(OBSERVATION) or stem
        subject = "" if cells.get(SUBJECT, "").casefold() in NOBODY else cells[SUBJECT]
        found.append((f"{observation} {subject}".strip(), observation))
    return found


def is_boris_events(names: Sequence[str]) -> bool:
    """Whether a header, in small letters, is that of BORIS's tabular events."""
    return BEHAVIOUR in names and TIME in names and any(name in names for name in STATUS)


def _join_events(names: list[str], lines: list[list[str]], stem: str) -> SpanFile:
    """Spans from starts and stops; points have no duration, and a start without a stop is left out and counted."""
    indices = {name: names.index(name) for name in (BEHAVIOUR, TIME)}
    status = names.index(next(name for name in STATUS if name in names))
    opened: dict[tuple[str, str], float] = {}
    found: list[tuple[float, float, str, None, str]] = []
    unpaired = 0
    named = _name_recordings(names, lines, stem)
    for line, (recording, _) in zip(lines, named, strict=True):
        cells = {name: line[k].strip() if k < len(line) else "" for name, k in indices.items()}
        key, kind = (recording, cells[BEHAVIOUR]), line[status].strip().upper() if status < len(line) else ""
        time = _number(cells[TIME])
        if np.isnan(time):
            unpaired += 1
        elif kind.startswith("START"):
            unpaired += key in opened
            opened[key] = time
        elif kind.startswith("STOP") and key in opened:
            begin = opened.pop(key)
            found.append((begin, time - begin, key[1], None, recording))
        elif kind.startswith("POINT"):
            found.append((time, 0.0, key[1], None, recording))
        else:
            unpaired += 1
    unpaired += len(opened)
    message = f"{unpaired} line{'s' if unpaired > 1 else ''} of BORIS without a matching start or stop left out."
    observations = dict(named) if OBSERVATION in names else {}
    return file_of_lines(found, messages=(message,) if unpaired else (), observations=observations)


# Projects of BORIS (.boris, JSON of format 7): an observation has events. Those of a behaviour that is a state are its
# beginning and its end in turn, and do not say which.

STATE, POINT = "State event", "Point event"
OBSERVATION_FIELDS = """{"file": [], "type": "LIVE", "date": "1970-01-01T00:00:00", "description": "", "time offset": 0,
"media_info": {"offset": {}}, "independent_variables": {}, "visualize_spectrogram": false, "scan_sampling_time": 0,
"close_behaviors_between_videos": false}"""
BEHAVIOUR_FIELDS = """{"key": "", "description": "", "category": "", "excluded": "", "coding map": "",
"modifiers": {}}"""
PROJECT_FIELDS = """{"time_format": "s", "project_date": "1970-01-01T00:00:00", "project_description": "",
"project_format_version": "7.0", "subjects_conf": {}, "behavioral_categories": [], "independent_variables": {},
"behavioral_categories_config": {}, "coding_map": {}, "behaviors_coding_map": [], "converters": {}}"""


def read_project(path: Path) -> SpanFile:
    """Read the observations of a project; recordings are named as in the exports of BORIS."""
    project = json.loads(path.read_bytes())
    states = {each["code"] for each in project["behaviors_conf"].values() if each["type"].startswith(STATE)}
    lines: list[list[str]] = []
    for observation, content in project["observations"].items():
        begun: set[tuple[str, str]] = set()
        for time, subject, behaviour, *_ in sorted(content["events"], key=lambda event: event[0]):
            kind = "POINT" if behaviour not in states else "STOP" if (subject, behaviour) in begun else "START"
            begun ^= {(subject, behaviour)}
            lines.append([observation, subject, behaviour, str(time), kind])
    return _join_events([OBSERVATION, SUBJECT, BEHAVIOUR, TIME, STATUS[0]], lines, path.stem)


def write_project(spans: pa.Table, path: Path) -> tuple[str, ...]:
    """Write a project with a live observation for each recording and annotator; says what was joined."""
    check_writable(spans, "BORIS projects")
    kinds = {label: POINT if duration == 0 else STATE for _, duration, label in lines_of(spans)}
    mixed = [label for _, duration, label in lines_of(spans) if (duration == 0) != (kinds[label] == POINT)]
    if mixed:
        raise ValueError(
            f"A behaviour of BORIS is a state or a point event. {mixed[0]!r} has spans and events without duration. "
            "Rename the events."
        )
    observations, joined = {}, 0
    for recording, part in by_recording(spans).items():
        for annotator, own in by_annotator(part).items():
            events: list[list[Any]] = []
            stops: dict[str, list[Any]] = {}  # the last end of each behaviour
            for onset, duration, label in lines_of(own):
                if kinds[label] == STATE and label in stops and onset <= stops[label][0]:
                    stops[label][0] = max(stops[label][0], onset + duration)
                    joined += 1
                    continue
                events.append([onset, "", label, "", ""])
                if kinds[label] == STATE:
                    stops[label] = [onset + duration, "", label, "", ""]
                    events.append(stops[label])
            name = " ".join(filter(None, (recording, annotator))) or path.stem
            observations[name] = json.loads(OBSERVATION_FIELDS) | {"events": sorted(events)}
    behaviours = [json.loads(BEHAVIOUR_FIELDS) | {"type": kind, "code": code} for code, kind in kinds.items()]
    project = json.loads(PROJECT_FIELDS) | {"project_name": path.stem, "observations": observations}
    project["behaviors_conf"] = {str(number): each for number, each in enumerate(behaviours)}
    write_atomically(path, json.dumps(to_json(project), ensure_ascii=False, allow_nan=False).encode())
    return (f"{joined} spans of BORIS joined to the one before with the same label.",) if joined else ()
