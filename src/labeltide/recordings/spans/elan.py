"""ELAN annotation documents (.eaf) by pympi-ling: a tier for each annotator, times in whole milliseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from labeltide._files import import_extra
from labeltide.recordings.spans.table import (
    SpanFile,
    by_annotator,
    check_single,
    check_spans_file,
    check_writable,
    library_errors,
    lines_of,
    parse_xml,
    spans_of_lines,
    write_with,
)

KIND = "ELAN annotations"
EXTENSIONS = (".eaf",)
TIER = "labels"  # of spans that name no annotator


def read(path: str | Path) -> SpanFile:
    """Read every tier that is tied to times; the annotator is the name of the tier."""
    pympi = import_extra("pympi", "elan", "Reading ELAN files")
    path = check_spans_file(Path(path))
    with library_errors(path, "ELAN") as messages:
        parse_xml(path)  # refuses what pympi would follow
        document = pympi.Elan.Eaf(str(path), suppress_version_warning=True)
        found = [
            (start / 1000, (end - start) / 1000, label, None if tier == TIER else tier)
            for tier, (aligned, *_) in document.tiers.items()
            if aligned
            for start, end, label in document.get_annotation_data_for_tier(tier)
        ]
        spans, left_out = spans_of_lines(found, recording=path.stem)
    return SpanFile(spans, messages=(*messages, *left_out))


def write(spans: pa.Table, path: str | Path) -> tuple[str, ...]:
    """Write one tier for each annotator; says what was rounded."""
    pympi = import_extra("pympi", "elan", "Writing ELAN files")
    check_single(check_writable(spans, KIND), KIND, "recording")
    first, last = (
        np.rint(1000 * times).astype(np.int64)
        for times in (spans["onset"].to_numpy(), spans["onset"].to_numpy() + spans["duration"].to_numpy())
    )
    if (first < 0).any() or (last <= first).any():
        raise ValueError(
            "ELAN has no times before 0 and no spans shorter than a millisecond. Drop the "
            f"{int(((first < 0) | (last <= first)).sum())} spans and events that are."
        )
    document = pympi.Elan.Eaf(author="labeltide")
    document.remove_tier("default")
    numbered = spans.append_column("number", pa.array(np.arange(len(spans))))
    for annotator, part in by_annotator(numbered).items():
        tier = annotator or TIER
        document.add_tier(tier)
        for number, label in lines_of(part, "number", "label"):
            document.add_annotation(tier, int(first[number]), int(last[number]), label)
    write_with(lambda draft: document.to_file(str(draft)), path)
    rounded = int((np.abs(first / 1000 - spans["onset"].to_numpy()) > 1e-9).sum())
    return (f"{rounded} onsets rounded to whole milliseconds, as ELAN counts.",) if rounded else ()
