"""Write the issues and the corrected labels of an audit as files of annotation tools."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide import _validation
from labeltide.auditing.apply import find_decisions
from labeltide.auditing.audit_json import load_audit_json
from labeltide.auditing.decisions import settled_labels
from labeltide.auditing.page.payload import read_times
from labeltide.auditing.results import draft_beside, read_labels, restore_interrupted
from labeltide.recordings.spans.formats import ADAPTERS
from labeltide.recordings.spans.table import SCHEMA, by_annotator, by_recording, make_spans
from labeltide.tables.columns import code_values
from labeltide.tables.times import seconds_of_unit

WHAT = ("issues", "corrected", "both")
WHOLE = {"labelstudio": "tasks.json", "boris": "project.boris"}  # one file for all recordings
TIERS = {"elan": ".eaf", "textgrid": ".TextGrid", "nwb": ".nwb"}  # for each recording, which tells annotators apart
SINGLE = {  # one file for each annotator
    "edf": ".edf",
    "bids": "_events.tsv",
    "raven": ".txt",
    "audacity": ".txt",
    "wfdb": "",
    "nsrr": ".xml",
    "mne": "-annot.fif",
}
FORMATS = ("csv", *WHOLE, *TIERS, *SINGLE)


@dataclass(frozen=True)
class SpanExport:
    """The files that were written, and sentences about what was moved or left out."""

    folder: Path
    files: tuple[Path, ...]
    messages: tuple[str, ...]


def export_audit(folder: str | Path, to: str, out: str | Path | None = None, what: str = "both") -> SpanExport:
    """Write the issues, the corrected labels or both of an audit in a format that annotation tools open.

    Parameters
    ----------
    folder : of an audit
    to : one of FORMATS
    out : a folder, new or empty; FOLDER-FORMAT by default
    what : "issues", "corrected" or "both"

    Examples
    --------
    >>> import labeltide as lt
    >>> written = lt.export_audit("audit", to="csv", what="corrected")
    >>> [path.name for path in written.files]
    ['corrected.csv']
    """
    _validation.check_choice("what", what, WHAT)
    folder = Path(folder)
    _validation.check_choice("to", to, FORMATS)
    issues, corrected, recordings, read_messages = _read_audit_spans(folder, arrow=to != "labelstudio")
    kinds = {kind: spans for kind, spans in zip(WHAT, (issues, corrected), strict=False) if what in (kind, "both")}
    messages = [*read_messages, *(f"There are no {kind}." for kind, spans in kinds.items() if not spans.num_rows)]
    target = folder.with_name(f"{folder.absolute().name}-{to}") if out is None else Path(out)
    written = _write({kind: spans for kind, spans in kinds.items() if spans.num_rows}, to, target, recordings)
    return replace(written, messages=tuple(dict.fromkeys([*messages, *written.messages])))


def write_spans(spans: pa.Table, out: str | Path, to: str) -> SpanExport:
    """Write spans of any number of recordings and annotators in a format that annotation tools open.

    Parameters
    ----------
    spans : Arrow table with the columns onset and duration in seconds, label, annotator, recording and confidence
        As `labeltide.read_spans` gives them; the last three may be null, or missing.
    out : a folder, new or empty
    to : one of FORMATS

    Examples
    --------
    >>> import labeltide as lt
    >>> spans = lt.read_spans("night.csv").spans
    >>> [path.name for path in lt.write_spans(spans, "night-boris", to="boris").files]
    ['project.boris']
    """
    _validation.check_choice("to", to, FORMATS)
    given = dict(zip(spans.column_names, spans.columns, strict=True))
    if missing := [name for name in ("onset", "duration", "label") if name not in given]:
        raise ValueError(f"Spans must have the columns onset, duration and label. Missing: {', '.join(missing)}.")
    columns = [given.get(each.name, pa.nulls(len(spans), each.type)) for each in SCHEMA]
    spans = pa.table(columns, SCHEMA.names).cast(SCHEMA)
    names = pc.fill_null(spans["recording"], "recording")
    spans = spans.set_column(SCHEMA.get_field_index("recording"), "recording", names)
    recordings = {name: RecordingInfo() for name in pc.unique(names).to_pylist()}
    return _write({"": spans} if spans.num_rows else {}, to, Path(out), recordings)


def _write(kinds: dict[str, pa.Table], to: str, target: Path, recordings: Mapping[str, RecordingInfo]) -> SpanExport:
    """Write spans of every kind to a folder, whole or not at all."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(
            f"The export needs a folder that is new or empty. {str(target)!r} is not; name one with --out."
        )
    restore_interrupted(target)  # removes the draft of an export that was killed
    several = len({who for spans in kinds.values() for who in by_annotator(spans)}) > 1 or "" in kinds
    planned, messages = _plan(kinds, to, list(recordings), several) if kinds else [], list[str]()
    files = {name: each.signals for name, each in recordings.items() if each.signals}
    if planned:
        with draft_beside(target) as draft:
            for name, spans, recording in planned:
                about = recordings.get(recording, RecordingInfo())
                options: dict[str, dict[str, Any]] = {  # what the writer of a format needs to know of the recording
                    "bids": {"bids": True},
                    "edf": {"start": about.began},
                    "nwb": {"start": about.began},
                    "wfdb": {"rate": about.rate},
                    "raven": {"rate": about.rate},
                    "textgrid": {"end": about.end},
                    "labelstudio": {"files": files},
                }
                adapter = ADAPTERS["csv" if to == "bids" else to]
                messages += adapter.write(spans, draft / name, **options.get(to, {}))
            if target.exists():  # an empty folder; all files appear at once
                target.resolve().rmdir()
            os.rename(draft, target.resolve())
    return SpanExport(target, tuple(target / name for name, *_ in planned), tuple(dict.fromkeys(messages)))


def _plan(kinds: dict[str, pa.Table], to: str, recordings: list[str], several: bool) -> list[tuple[str, pa.Table, str]]:
    """The name of each file, its spans and its recording; `several` annotators are told apart."""
    if to == "csv":
        return [(f"{kind or 'spans'}.csv", spans, "") for kind, spans in kinds.items()]
    stems = dict(zip(recordings, _file_names(recordings), strict=True))
    if to in WHOLE or to in TIERS:
        tables = []
        for kind, spans in kinds.items():  # the kind as the annotator, before the annotator's own name
            people = spans["annotator"].to_pylist()
            named = [f"{kind} {who}".strip() if several and who else kind or None for who in people]
            index = spans.column_names.index("annotator")
            tables.append(spans.set_column(index, "annotator", pa.array(named, pa.string())))
        whole = pa.concat_tables(tables)
        if to in WHOLE:
            return [(WHOLE[to], whole, "")]
        return [(stems[name] + TIERS[to], part, name) for name, part in by_recording(whole).items() if name is not None]
    parts: dict[str, tuple[pa.Table, str]] = {}
    for kind, spans in kinds.items():
        for recording, part in by_recording(spans).items():
            if recording is None:
                continue
            for annotator, own in by_annotator(part).items():
                who = [annotator] if several and annotator else []
                start = ("_" if to == "bids" else "-").join(filter(None, [stems[recording], kind, *_file_names(who)]))
                if to == "wfdb":  # the extension is the annotator, of letters alone
                    start = re.sub(r"[^-\w]", "_", stems[recording])
                    start += f".{kind or 'labels'}{re.sub('[^a-zA-Z]', '', ''.join(who))}"
                name, letter = start + SINGLE[to], "b"
                while name in parts:  # of annotators r1 and r2, only the letters may be in the name of a file of WFDB
                    name, letter = f"{start}{letter}{SINGLE[to]}", chr(ord(letter) + 1)
                parts[name] = (own, recording)
    return [(name, *part) for name, part in parts.items()]


def _file_names(names: Sequence[str]) -> list[str]:
    """Distinct names of files, made of letters, digits, dots, - and _."""
    return _distinct([re.sub(r"[^\w.-]+", "_", name).strip(".")[:100] or "recording" for name in names], "{}-{}")


def _distinct(names: Sequence[str], form: str = "{} ({})") -> list[str]:
    """Distinct names without blanks around them: the second "p0" becomes "p0 (2)"."""
    found, taken = [""] * len(names), set[str]()
    for index in sorted(range(len(names)), key=lambda index: names[index] != names[index].strip()):
        base = names[index].strip() or "unnamed"
        wishes = chain([base], (form.format(base, number) for number in count(2)))
        found[index] = next(wish for wish in wishes if wish not in taken)
        taken.add(found[index])
    return found


# The issues and the corrected labels of an audit as spans of its recordings.

COLUMNS = ["row", "sequence", "time", "annotator", "recorded", "suggested", "corrected", "is_issue"]
CHANCES = ["probability_right", "suggested_probability"]
ARROW = " -> "  # between the recorded and the suggested label of an issue
TOUCHING = 1e-3  # of a step, between two rows that follow each other


@dataclass(frozen=True)
class RecordingInfo:
    """Where a recording lies: the wall clock at second 0, its end, its samples in a second, and its file of signals."""

    began: datetime | None = None
    end: float | None = None
    rate: float = 1000.0
    signals: str | None = None


def _read_audit_spans(
    folder: Path, *, arrow: bool
) -> tuple[pa.Table, pa.Table, dict[str, RecordingInfo], tuple[str, ...]]:
    """Spans of the issues and of the corrected labels, what is known of every recording, and messages.

    Without arrow an issue is labelled with the suggestion alone. Rows that follow each other and have the same
    label are one span. Its confidence is the mean probability of the suggestion, or of the corrected label.
    """
    audit = load_audit_json(folder, ("table.columns", "table.classes"))
    lines = read_labels(Path(folder), COLUMNS + CHANCES)
    if not len(lines):
        raise ValueError(f"The audit in {str(folder)!r} has no labels to write. Audit again.")
    lines, messages = _use_settled(Path(folder), audit, lines)
    lines, renamed = _with_distinct_classes(_with_single_annotator(lines, audit))
    messages += renamed
    if audit.get("recordings"):
        row, epoch, files = lines["row"].to_numpy(), float(audit["recordings"]["epoch"]), audit["recordings"]["files"]
        first, starts = (np.array([file[key] for file in files]) for key in ("first_row", "start"))
        owner = np.searchsorted(first, row, "right") - 1
        onset, length, recordings = starts[owner] + (row - first[owner]) * epoch, np.full(len(row), epoch), {}
        for file in files:
            began = None if file["began"] is None else datetime.fromisoformat(file["began"])
            end = file["start"] + file["rows"] * epoch
            recordings[file["recording"]] = RecordingInfo(began, end, float(file["rate"]), file["signals"])
    else:
        onset, length, recordings, more = _rows_of_table(lines, audit["table"]["columns"].get("time"))
        messages += more
    recorded, suggested = lines["recorded"], lines["suggested"]
    text = pc.binary_join_element_wise(recorded, suggested, ARROW) if arrow else suggested
    issue = pc.if_else(lines["is_issue"], text, pa.scalar(None, pa.string()))
    timed = lines.select(["sequence", "annotator"])
    timed = timed.append_column("onset", pa.array(onset)).append_column("length", pa.array(length))
    as_recorded, as_suggested = (pc.equal(lines["corrected"], other) for other in (recorded, suggested))
    right, chance = (lines[name] for name in CHANCES)
    sure = pc.if_else(as_recorded, right, pc.if_else(as_suggested, chance, pa.scalar(None, right.type)))
    return _merge(timed, issue, chance), _merge(timed, lines["corrected"], sure), recordings, messages


def _with_single_annotator(lines: pa.Table, audit: Mapping[str, Any]) -> pa.Table:
    """The labels with the name of their only annotator, which is in audit.json alone."""
    about = audit.get("recordings") or audit["table"]
    names = about.get("annotators") or []
    if names == [None]:  # as where there are several files: each is an annotator
        files = {path for file in about.get("files") or () for path in file.get("labels") or ()}
        names = [Path(path).stem for path in files] if len(files) == 1 else []
    if len(names) != 1 or lines["annotator"].null_count < len(lines):
        return lines
    every = pa.array(names * len(lines), pa.string())
    return lines.set_column(lines.column_names.index("annotator"), "annotator", every)


def _with_distinct_classes(lines: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """Classes by names that stay distinct in span files, where labels lose blanks around them."""
    columns = ("recorded", "suggested", "corrected")
    texts = pc.unique(pa.chunked_array([c for name in columns for c in lines[name].chunks])).drop_null().to_pylist()
    names = {old: new for old, new in zip(texts, _distinct(texts), strict=True) if new != old.strip()}
    for name in columns if names else ():
        column = pa.array([names.get(text, text) for text in lines[name].to_pylist()], pa.string())
        lines = lines.set_column(lines.column_names.index(name), name, column)
    return lines, tuple(f"The class {old!r} is written as {new!r}." for old, new in names.items())


def spans_of_steps(lines: pa.Table, time: str | None, unit: float | None) -> tuple[pa.Table, tuple[str, ...]]:
    """Spans of the column `consensus` of steps with their sequence and time, counted in `unit` seconds; messages."""
    onset, length, _, messages = _rows_of_table(lines, time, unit)
    people = pa.array(["consensus"] * len(lines))
    timed = pa.table({"sequence": lines["sequence"], "annotator": people, "onset": onset, "length": length})
    return _merge(timed, lines["consensus"], lines["probability"]), messages


def _rows_of_table(
    lines: pa.Table, name: str | None, unit: float | None = None
) -> tuple[np.ndarray, np.ndarray, dict[str, RecordingInfo], tuple[str, ...]]:
    """Times from the column `name`, in its unit or `unit` seconds; a row lasts until the next, at most as usual."""
    sequence, names = code_values(lines["sequence"])
    if name is None:
        row = lines["row"].to_numpy() if "row" in lines.column_names else np.arange(len(lines))
        moments, dated = np.zeros(len(row)), False
        for code in range(len(names)):
            moments[sequence == code] = np.unique(row[sequence == code], return_inverse=True)[1]
        message = "The table has no times, so its rows count as seconds from the first of each sequence."
    else:
        moments, dated = read_times(lines["time"])
        unit = seconds_of_unit(name, dated) if unit is None or dated else unit
        moments = moments * (unit or 1.0)
        message = "" if unit else f"The unit of the times in {name!r} is not known: they are written as seconds."
    order = np.lexsort((moments, sequence))
    steps = np.diff(moments[order])
    follows = (np.diff(sequence[order]) == 0) & (steps > 0)
    usual = float(np.median(steps[follows])) if follows.any() else 1.0
    onset, length, recordings = moments.copy(), np.full(len(moments), usual), {}
    for code, name in enumerate(names.to_pylist()):
        own = np.flatnonzero(sequence == code)
        distinct = np.unique(moments[own])
        spent = np.minimum(np.diff(distinct, append=distinct[-1] + usual), usual)
        length[own] = spent[np.searchsorted(distinct, moments[own])]
        began = np.datetime64(round(distinct[0] * 1e6), "us").item() if dated else None
        if dated:
            onset[own] -= distinct[0]
        recordings[name] = RecordingInfo(began, float((onset[own] + length[own]).max()))
    return onset, length, recordings, (message,) if message else ()


def _merge(timed: pa.Table, label: Any, confidence: Any) -> pa.Table:
    """Spans of rows that follow each other with the same label; rows without one belong to none."""
    table = timed.append_column("label", label).append_column("confidence", confidence)
    table = table.filter(pc.is_valid(table["label"]))
    if not table.num_rows:
        return SCHEMA.empty_table()
    table = table.sort_by([(name, "ascending") for name in ("sequence", "annotator", "onset")])
    onset, length = table["onset"].to_numpy(), table["length"].to_numpy()
    same = np.abs(onset[1:] - onset[:-1] - length[:-1]) <= TOUCHING * length[:-1]
    for name in ("sequence", "annotator", "label"):
        codes = code_values(table[name])[0]
        same &= codes[1:] == codes[:-1]
    first = np.flatnonzero(np.append(True, ~same))
    last = np.append(first[1:], len(onset)) - 1
    kept = table.take(pa.array(first))
    duration = onset[last] + length[last] - onset[first]
    label, annotator, recording = (kept[name].to_pylist() for name in ("label", "annotator", "sequence"))
    sure = np.add.reduceat(table["confidence"].to_numpy(), first) / (last - first + 1)
    return make_spans(onset[first], duration, label, annotator, recording, sure.round(4))[0]


def _use_settled(folder: Path, audit: Mapping[str, Any], lines: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """The labels with those that a review or verdicts in issues.csv settled as corrected ones and no issues."""
    decisions, n_other = find_decisions(folder, audit)
    messages = []
    if n_other:
        messages.append(f"{n_other} decision{'s' if n_other > 1 else ''} made for another audit left out.")
    if not decisions:
        return lines, tuple(messages)
    settled = settled_labels(decisions, lines)
    is_settled = np.isin(np.arange(len(lines)), settled.line)
    corrected = lines["corrected"].combine_chunks()
    corrected = pc.replace_with_mask(corrected, pa.array(is_settled), pa.array(settled.label, corrected.type))
    is_issue = pc.and_not(lines["is_issue"], pa.array(is_settled))
    for name, column in (("corrected", corrected), ("is_issue", is_issue)):
        lines = lines.set_column(lines.column_names.index(name), name, column)
    if len(settled):
        messages.append(
            f"{len(settled):,} label{'s' if len(settled) > 1 else ''} as people settled them, no longer issues."
        )
    if settled.n_disputed:
        messages.append(f"{settled.n_disputed:,} on which reviewers differ left as the audit has them.")
    return lines, tuple(messages)
