"""EDF+ and BDF+ by edfio: annotations with their signals.

EDF+ has no place for an annotator: write one file for each. A written file holds annotations alone ("annotation-only
EDF+"), which viewers of hypnograms open beside the recording.
"""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._files import import_extra, write_atomically
from labeltide.recordings.spans.table import (
    Signal,
    SpanFile,
    check_single,
    check_spans_file,
    check_writable,
    guard_load,
    library_errors,
    lines_of,
    spans_of_lines,
)

KIND = "EDF+"
EXTENSIONS = (".edf", ".bdf", ".rec")


def read(path: str | Path, *, annotator: str | None = None) -> SpanFile:
    """Read annotations and signals; samples are loaded when they are asked for."""
    edfio = import_extra("edfio", "edf", "Reading EDF")
    path = check_spans_file(Path(path), most=None)
    with library_errors(path, "EDF") as messages:
        is_bdf = path.suffix.lower() == ".bdf"
        file = (edfio.read_bdf if is_bdf else edfio.read_edf)(path, header_encoding="latin-1")
        if "+D" in file.reserved and not file.is_continuous:
            raise ValueError("the recording is interrupted (EDF+D). Split it into continuous parts")
        notes = [(note.onset, note.duration or 0.0, note.text) for note in file.annotations]
        spans, left_out = spans_of_lines(notes, annotator, path.stem)
        signals = tuple(_signal(signal, file, path) for signal in file.signals)
    return SpanFile(spans, signals, _start(file), (*messages, *left_out))


def write(spans: pa.Table, path: str | Path, *, start: datetime | None = None) -> None:
    """Write an EDF+ file of annotations; start is the wall clock at second 0, as the recording has it."""
    edfio = import_extra("edfio", "edf", "Writing EDF")
    check_single(check_writable(spans, KIND), KIND)
    notes = [edfio.EdfAnnotation(onset, duration or None, label) for onset, duration, label in lines_of(spans)]
    about: dict[str, Any] = {}
    if start is not None:
        about = {"recording": edfio.Recording(startdate=start.date()), "starttime": start.time()}
    content = io.BytesIO()
    edfio.Edf([], annotations=notes, **about).write(content)
    write_atomically(Path(path), content.getvalue())


def _start(file: Any) -> datetime | None:
    try:
        return datetime.combine(file.startdate, file.starttime)
    except ValueError:  # an anonymised date
        return None


def _signal(signal: Any, file: Any, path: Path) -> Signal:
    count = signal.samples_per_data_record * file.num_data_records
    rate = signal.samples_per_data_record / file.data_record_duration

    def load(first: int, last: int) -> np.ndarray:
        return signal.get_data_slice(first / rate, last / rate)

    return Signal(signal.label.strip(), signal.physical_dimension.strip(), rate, count, guard_load(load, path, "EDF"))
