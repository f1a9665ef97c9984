"""MNE-Python: its Annotations and Raw objects, and the files that it reads.

Annotations of MNE have no annotator: convert or write those of one at a time. Onsets of a Raw count from its first
sample here.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._files import import_extra
from labeltide.recordings.spans.table import (
    Signal,
    SpanFile,
    check_single,
    check_spans_file,
    check_writable,
    library_errors,
    make_spans,
    write_with,
)

KIND = "MNE annotations"
EXTENSIONS = (".fif", ".vhdr", ".set", ".gdf", ".cnt")
MICROVOLTS = 1e6  # MNE keeps volts
ANNOTATIONS = "-annot.fif"
TAG = struct.Struct(">iIii")  # kind, type, bytes of data, place of the next tag: 0 behind this one, -1 none


def read(path: str | Path) -> SpanFile:
    """Read a file of annotations (-annot.fif), or a recording with its signals."""
    mne = import_extra("mne", "mne", "Reading files of MNE-Python")
    path = check_spans_file(Path(path), most=None)
    with library_errors(path, "a file of MNE-Python") as messages, mne.use_log_level("ERROR"):
        if path.suffix == ".fif":
            _check_tags(path)
        if path.name.endswith((ANNOTATIONS, "_annot.fif")):
            spans, left_out = _spans(mne.read_annotations(path), 0.0, path.name[: -len(ANNOTATIONS)])
            return SpanFile(spans, messages=(*messages, *left_out))
        raw = from_raw(mne.io.read_raw(path, preload=False), recording=path.stem)
    return SpanFile(raw.spans, raw.signals, raw.start, (*messages, *raw.messages))


def write(spans: pa.Table, path: str | Path) -> tuple[str, ...]:
    """Write a file of annotations, whose name ends in -annot.fif; says by how much times were rounded."""
    import_extra("mne", "mne", "Writing files of MNE-Python")
    if not Path(path).name.endswith(ANNOTATIONS):
        raise ValueError(f"A file of MNE annotations must end in {ANNOTATIONS}. Got {Path(path).name!r}.")
    notes = to_annotations(spans)
    _check_latin(spans)
    write_with(lambda draft: notes.save(draft, verbose="ERROR"), path)
    onset = spans["onset"].to_numpy()
    most = float(np.abs(onset.astype(np.float32) - onset).max())
    return (f"FIF keeps times in single precision: onsets moved by up to {most:.2g} s.",) if most else ()


def from_annotations(annotations: Any, *, recording: str | None = None) -> pa.Table:
    """A span table from MNE's Annotations."""
    return _spans(annotations, 0.0, recording)[0]


def to_annotations(spans: pa.Table) -> Any:
    """MNE's Annotations from the spans of one annotator and recording."""
    mne = import_extra("mne", "mne", "Making Annotations of MNE-Python")
    check_single(check_writable(spans, KIND), KIND)
    onset, duration, label = (spans[name].to_pylist() for name in ("onset", "duration", "label"))
    return mne.Annotations(onset, duration, label)


def from_raw(raw: Any, *, recording: str = "recording") -> SpanFile:
    """Spans and signals of a Raw object; voltages in microvolts."""
    spans, messages = _spans(raw.annotations, float(raw.first_time), recording)
    rate = float(raw.info["sfreq"])
    volts = {"eeg", "eog", "ecg", "emg", "seeg", "ecog"}

    def signal(number: int) -> Signal:
        scale = MICROVOLTS if kinds[number] in volts else 1.0

        def load(first: int, last: int) -> np.ndarray:
            return np.asarray(raw.get_data(picks=[number], start=first, stop=last)[0] * scale, dtype=np.float64)

        unit = "uV" if kinds[number] in volts else ""
        return Signal(names[number], unit, rate, raw.n_times, load)

    names, kinds = list(raw.ch_names), raw.get_channel_types()
    start = raw.info["meas_date"]
    signals = tuple(signal(k) for k in range(len(names)) if kinds[k] != "stim")
    return SpanFile(spans, signals, start.replace(tzinfo=None) if start is not None else None, messages)


def is_raw(value: Any) -> bool:
    """Whether an object is a Raw of MNE, without importing MNE."""
    return any(kind.__module__.startswith("mne.") and kind.__name__ == "BaseRaw" for kind in type(value).__mro__)


def _check_tags(path: Path) -> None:
    """Refuse tags that lead back to earlier ones, which MNE 1 would follow for ever."""
    size, position = path.stat().st_size, 0
    with path.open("rb") as file:
        while position + TAG.size <= size:
            file.seek(position)
            _, _, length, following = TAG.unpack(file.read(TAG.size))
            if following < 0:
                return
            after = following or position + TAG.size + length
            if after <= position:
                raise ValueError("its tags lead back to earlier ones")
            position = after


def _check_latin(spans: pa.Table) -> None:
    """FIF writes texts in Latin-1; other letters would come back as numbers."""
    for label in spans["label"].unique().to_pylist():
        if any(ord(letter) > 255 for letter in label) or "{COLON}" in label:
            raise ValueError(f"FIF holds letters of Latin-1 alone. Got the label {label!r}. Rename it, or write csv.")


def _spans(annotations: Any, shift: float, recording: str | None) -> tuple[pa.Table, tuple[str, ...]]:
    onset = np.asarray(annotations.onset, dtype=np.float64) - shift
    return make_spans(onset, annotations.duration, list(annotations.description), None, recording)
