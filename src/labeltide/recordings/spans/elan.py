"""ELAN annotation documents (.eaf) by pympi-ling: a tier for each annotator, times in whole milliseconds."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from labeltide._files import import_extra, write_atomically
from labeltide.recordings.spans.table import (
    SpanFile,
    by_annotator,
    by_recording,
    check_file,
    check_writable,
    make_spans,
    parse_xml,
    reading,
)

KIND = "ELAN annotations"
EXTENSIONS = (".eaf",)
TIER = "labels"  # of spans that name no annotator


def read(path: str | Path) -> SpanFile:
    """Read every tier that is tied to times; the annotator is the name of the tier."""
    pympi = import_extra("pympi", "elan", "Reading ELAN files")
    path = check_file(Path(path))
    with reading(path, "ELAN") as messages:
        parse_xml(path)  # refuses what pympi would follow
        document = pympi.Elan.Eaf(str(path), suppress_version_warning=True)
        found = [
            (start / 1000, (end - start) / 1000, label, None if tier == TIER else tier)
            for tier, (aligned, *_) in document.tiers.items()
            if aligned
            for start, end, label in document.get_annotation_data_for_tier(tier)
        ]
        onset, duration, label, tier = zip(*found, strict=True) if found else ((), (), (), ())
        spans, left_out = make_spans(onset, duration, label, tier, path.stem)
    return SpanFile(spans, messages=(*messages, *left_out))


def write(spans: pa.Table, path: str | Path) -> tuple[str, ...]:
    """Write one tier for each annotator; says what was rounded."""
    pympi = import_extra("pympi", "elan", "Writing ELAN files")
    check_writable(spans, KIND)
    if len(by_recording(spans)) > 1:
        raise ValueError(f"A file of {KIND} holds the spans of one recording. Write one file for each.")
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
        for place, label in zip(part["number"].to_pylist(), part["label"].to_pylist(), strict=True):
            document.add_annotation(tier, int(first[place]), int(last[place]), label)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "draft.eaf"
        document.to_file(str(draft))
        write_atomically(Path(path), draft.read_bytes())
    rounded = int((np.abs(first / 1000 - spans["onset"].to_numpy()) > 1e-9).sum())
    return (f"{rounded} onsets rounded to whole milliseconds, as ELAN counts.",) if rounded else ()
