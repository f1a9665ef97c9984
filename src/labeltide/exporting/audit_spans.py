"""The issues and the corrected labels of an audit as spans of its recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing.labels_file import read_labels
from labeltide.auditing.page.results import read_audit
from labeltide.exporting.settled_lines import use_settled
from labeltide.spans.table import by_annotator, make_spans, no_spans

COLUMNS = ["row", "sequence", "time", "annotator", "recorded", "suggested", "corrected", "is_issue"]
ARROW = " -> "  # between the recorded and the suggested label of an issue
TOUCHING = 1e-3  # of a step, between two rows that follow each other


@dataclass(frozen=True)
class Place:
    """Where a recording lies: the wall clock at second 0, its end, its samples in a second, and its file of signals."""

    began: datetime | None
    end: float
    rate: float
    signals: str | None = None


@dataclass(frozen=True)
class AuditSpans:
    """Spans of the issues and of the corrected labels, and the place of every recording."""

    issues: pa.Table
    corrected: pa.Table
    places: dict[str, Place]
    said: tuple[str, ...] = ()


def read_audit_spans(folder: Path, *, arrow: bool = True) -> AuditSpans:
    """Read the folder of an audit; without arrow an issue is labelled with the suggestion alone.

    Rows that follow each other and have the same label are one span.
    """
    audit = read_audit(folder, ("table.columns", "table.classes"))
    lines = read_labels(Path(folder), COLUMNS)
    if not len(lines):
        raise ValueError(f"The audit in {str(folder)!r} has no labels to write. Audit again.")
    lines, said = use_settled(Path(folder), audit, lines)
    lines = _with_single_annotator(lines, audit)
    if audit.get("recordings"):
        onset, length, places = _rows_of_recordings(lines["row"].to_numpy(), audit["recordings"])
    elif audit["table"]["columns"].get("time") is None:
        onset, length, places = _rows_without_times(lines)
        said += ("The table has no times, so its rows count as seconds from the first of each sequence.",)
    else:
        onset, length, places = _rows_of_table(lines)
    recorded, suggested = lines["recorded"], lines["suggested"]
    text = pc.binary_join_element_wise(recorded, suggested, ARROW) if arrow else suggested
    issue = pc.if_else(lines["is_issue"], text, pa.scalar(None, pa.string()))
    timed = lines.select(["sequence", "annotator"])
    timed = timed.append_column("onset", pa.array(onset)).append_column("length", pa.array(length))
    return AuditSpans(_merge(timed, issue), _merge(timed, lines["corrected"]), places, said)


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


def _rows_of_recordings(rows: np.ndarray, about: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, dict[str, Place]]:
    epoch, files = float(about["epoch"]), about["files"]
    first = np.array([file["first_row"] for file in files])
    owner = np.searchsorted(first, rows, "right") - 1
    starts = np.array([file["start"] for file in files])
    onset = starts[owner] + (rows - first[owner]) * epoch
    places = {
        file["recording"]: Place(
            None if file["began"] is None else datetime.fromisoformat(file["began"]),
            file["start"] + file["rows"] * epoch,
            float(file["rate"]),
            file["signals"],
        )
        for file in files
    }
    return onset, np.full(len(rows), epoch), places


def _rows_of_table(lines: pa.Table) -> tuple[np.ndarray, np.ndarray, dict[str, Place]]:
    """Times from the time column; a row lasts until the next, at most as long as is usual."""
    moments, dated = _read_times(lines["time"])
    codes = lines["sequence"].combine_chunks().dictionary_encode()
    names, sequence = codes.dictionary.to_pylist(), codes.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((moments, sequence))
    steps = np.diff(moments[order])
    follows = (np.diff(sequence[order]) == 0) & (steps > 0)
    usual = float(np.median(steps[follows])) if follows.any() else 1.0
    onset, length, places = moments.copy(), np.full(len(moments), usual), {}
    for code, name in enumerate(names):
        own = np.flatnonzero(sequence == code)
        distinct = np.unique(moments[own])
        spent = np.minimum(np.diff(distinct, append=distinct[-1] + usual), usual)
        length[own] = spent[np.searchsorted(distinct, moments[own])]
        began = np.datetime64(round(distinct[0] * 1e6), "us").item() if dated else None
        if dated:
            onset[own] -= distinct[0]
        places[name] = Place(began, float((onset[own] + length[own]).max()), 1000.0)
    return onset, length, places


def _rows_without_times(lines: pa.Table) -> tuple[np.ndarray, np.ndarray, dict[str, Place]]:
    """The number of each row in its sequence, as seconds."""
    row, sequence = lines["row"].to_numpy(), np.array(lines["sequence"].to_pylist(), dtype=object)
    onset, places = np.zeros(len(row)), {}
    for name in dict.fromkeys(sequence):
        own = sequence == name
        distinct, onset[own] = np.unique(row[own], return_inverse=True)
        places[name] = Place(None, float(len(distinct)), 1000.0)
    return onset, np.ones(len(row)), places


def _read_times(times: pa.ChunkedArray) -> tuple[np.ndarray, bool]:
    """Times in seconds, and whether they are moments; these count from 1970."""
    try:
        return times.cast(pa.float64()).to_numpy(), False
    except pa.ArrowInvalid:
        pass
    try:
        return times.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy().astype(np.float64) / 1e6, True
    except pa.ArrowInvalid:
        return times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy().astype(np.float64) / 1e6, True


def _merge(timed: pa.Table, label: Any) -> pa.Table:
    """Spans of rows that follow each other with the same label; rows without one belong to none."""
    table = timed.append_column("label", label)
    table = table.filter(pc.is_valid(table["label"]))
    if not table.num_rows:
        return no_spans()
    table = table.sort_by([(name, "ascending") for name in ("sequence", "annotator", "onset")])
    onset, length = table["onset"].to_numpy(), table["length"].to_numpy()
    same = np.abs(onset[1:] - onset[:-1] - length[:-1]) <= TOUCHING * length[:-1]
    for name in ("sequence", "annotator", "label"):
        codes = table[name].combine_chunks().dictionary_encode("encode").indices.to_numpy(zero_copy_only=False)
        same &= codes[1:] == codes[:-1]
    first = np.flatnonzero(np.append(True, ~same))
    last = np.append(first[1:], len(onset)) - 1
    kept = table.take(pa.array(first))
    duration = onset[last] + length[last] - onset[first]
    names = (kept[name].to_pylist() for name in ("label", "annotator", "sequence"))
    return make_spans(onset[first], duration, *names)[0]


def several_annotators(spans: AuditSpans) -> bool:
    """Whether more than one annotator has labels."""
    return len(by_annotator(spans.corrected)) > 1
