"""Praat's TextGrid by praatio: an interval tier for each annotator, and a point tier for events.

A tier holds no overlaps: they are refused.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from labeltide._files import import_extra
from labeltide.recordings.spans.table import (
    SpanFile,
    by_annotator,
    check_single,
    check_spans_file,
    check_writable,
    count_overlaps,
    library_errors,
    lines_of,
    spans_of_lines,
    write_with,
)

KIND = "TextGrid"
EXTENSIONS = (".textgrid",)
TIER = "labels"  # of spans that name no annotator
POINTS = " (events)"  # behind the name of a tier of points


def read(path: str | Path) -> SpanFile:
    """Read all tiers; the annotator is the name of the tier."""
    textgrid = import_extra("praatio.textgrid", "textgrid", "Reading TextGrids")
    path = check_spans_file(Path(path))
    with library_errors(path, KIND) as messages:
        document = textgrid.openTextgrid(
            str(path), includeEmptyIntervals=False, reportingMode="silence", duplicateNamesMode="rename"
        )
        found = []
        for tier in document.tiers:
            name = tier.name.removesuffix(POINTS)
            for entry in tier.entries:
                duration = entry[1] - entry[0] if len(entry) == 3 else 0.0
                found.append((entry[0], duration, entry[-1], None if name == TIER else name))
        spans, left_out = spans_of_lines(found, recording=path.stem)
    return SpanFile(spans, messages=(*messages, *left_out))


def write(spans: pa.Table, path: str | Path, *, end: float | None = None) -> None:
    """Write a tier for each annotator, up to the end of the recording in seconds, or of the last span."""
    textgrid = import_extra("praatio.textgrid", "textgrid", "Writing TextGrids")
    _check_tiers(check_single(check_writable(spans, KIND), KIND, "recording"))
    last = max(end or 0.0, *(onset + length for onset, length in lines_of(spans, "onset", "duration")))
    document = textgrid.Textgrid(0.0, last)
    for annotator, part in by_annotator(spans).items():
        entries = list(lines_of(part))
        intervals = [(onset, onset + length, label) for onset, length, label in entries if length > 0]
        points = [(onset, label) for onset, length, label in entries if length == 0]
        if intervals:
            document.addTier(textgrid.IntervalTier(annotator or TIER, _touching(intervals), 0.0, last))
        if points:
            document.addTier(textgrid.PointTier((annotator or TIER) + POINTS, points, 0.0, last))
    options = {"includeBlankSpaces": True, "minimumIntervalLength": None}
    write_with(lambda draft: document.save(str(draft), "long_textgrid", **options), path)


def _check_tiers(spans: pa.Table) -> None:
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
