"""Praat's TextGrid by praatio: an interval tier for each annotator, and a point tier for events.

A tier holds no overlaps: they are refused.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from labeltide._files import import_extra, write_atomically
from labeltide.recordings.spans.table import (
    SpanFile,
    by_annotator,
    by_recording,
    check_file,
    check_writable,
    count_overlaps,
    make_spans,
    reading,
)

KIND = "TextGrid"
EXTENSIONS = (".textgrid",)
TIER = "labels"  # of spans that name no annotator
POINTS = " (events)"  # behind the name of a tier of points


def read(path: str | Path) -> SpanFile:
    """Read all tiers; the annotator is the name of the tier."""
    textgrid = import_extra("praatio.textgrid", "textgrid", "Reading TextGrids")
    path = check_file(Path(path))
    with reading(path, KIND) as messages:
        document = textgrid.openTextgrid(
            str(path), includeEmptyIntervals=False, reportingMode="silence", duplicateNamesMode="rename"
        )
        found = []
        for tier in document.tiers:
            name = tier.name.removesuffix(POINTS)
            for entry in tier.entries:
                duration = entry[1] - entry[0] if len(entry) == 3 else 0.0
                found.append((entry[0], duration, entry[-1], None if name == TIER else name))
        onset, durations, label, annotator = zip(*found, strict=True) if found else ((), (), (), ())
        spans, left_out = make_spans(onset, durations, label, annotator, path.stem)
    return SpanFile(spans, messages=(*messages, *left_out))


def write(spans: pa.Table, path: str | Path, *, end: float | None = None) -> None:
    """Write a tier for each annotator, up to the end of the recording in seconds, or of the last span."""
    textgrid = import_extra("praatio.textgrid", "textgrid", "Writing TextGrids")
    check_writable(spans, KIND)
    _check_tiers(spans)
    last = max(onset + length for onset, length in zip(*_columns(spans, "onset", "duration"), strict=True))
    last = max(last, end or 0.0)
    document = textgrid.Textgrid(0.0, last)
    for annotator, part in by_annotator(spans).items():
        entries = list(zip(*_columns(part, "onset", "duration", "label"), strict=True))
        intervals = [(onset, onset + length, label) for onset, length, label in entries if length > 0]
        points = [(onset, label) for onset, length, label in entries if length == 0]
        if intervals:
            document.addTier(textgrid.IntervalTier(annotator or TIER, _touching(intervals), 0.0, last))
        if points:
            document.addTier(textgrid.PointTier((annotator or TIER) + POINTS, points, 0.0, last))
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "draft.TextGrid"
        document.save(str(draft), "long_textgrid", includeBlankSpaces=True, minimumIntervalLength=None)
        write_atomically(Path(path), draft.read_bytes())


def _columns(spans: pa.Table, *names: str) -> list[list]:
    return [spans[name].to_pylist() for name in names]


def _check_tiers(spans: pa.Table) -> None:
    if len(by_recording(spans)) > 1:
        raise ValueError("A TextGrid holds the spans of one recording. Write one file for each.")
    if min(spans["onset"].to_pylist()) < 0:
        raise ValueError("A TextGrid begins at second 0. Got a span that begins earlier; cut it off.")
    overlaps = count_overlaps(spans)
    if overlaps:
        raise ValueError(
            f"A tier of a TextGrid holds no overlaps. {overlaps} spans begin before an earlier one of the same "
            "annotator ends. Write them as csv or elan, or lay them on a grid first."
        )


def _touching(intervals: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Ends that pass the next start by a rounding error are set to it."""
    starts = [start for start, _, _ in intervals[1:]] + [float("inf")]
    return [
        (start, min(end, following), label) for (start, end, label), following in zip(intervals, starts, strict=True)
    ]
