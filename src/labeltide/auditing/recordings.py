"""From signals and spans to a table with one row for each epoch: features, and the labels of each annotator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide import _validation
from labeltide.auditing.epoch_features import (
    FIELDS,
    EpochFeatures,
    OwnFeatures,
    channel_features,
    field_of,
    magnitude_features,
    own_features,
)
from labeltide.auditing.open_recordings import OpenRecording, open_recordings
from labeltide.auditing.recording_files import is_manifest, is_signal_file
from labeltide.spans.delimited import is_boris
from labeltide.spans.grid import Grid, lay_on_grid, say_counts
from labeltide.spans.mne_annotations import is_raw
from labeltide.spans.table import Signal
from labeltide.tables.roles import DERIVED, Request
from labeltide.tables.wording import unique_texts

SEQUENCE, TIME, LABEL = "recording", "onset", "label"
USUAL_EPOCH = {"eeg": 30.0, "muscle": 30.0}  # in seconds, where the spans do not tell; 1 s for other fields
SHORTEST, LONGEST = 0.02, 600.0  # of an epoch that is taken from the spans
CHOICES = (*FIELDS, "sleep")


@dataclass(frozen=True)
class RecordingRequest:
    """What is asked of recordings, and after they were read, what audit.json keeps of them.

    Attributes
    ----------
    labels : paths of label files, or a span table; None for labels in the recordings themselves
    epoch : seconds, None to find them
    field : one of CHOICES, None to go by the names of channels
    features : the user's own function of an epoch
    described : the part `recordings` of audit.json
    """

    labels: Any = None
    epoch: float | None = None
    field: str | None = None
    features: OwnFeatures | None = None
    described: dict[str, Any] | None = None

    @property
    def said(self) -> list[str]:
        """Sentences about what was read."""
        return [] if self.described is None else self.described["said"]

    def __post_init__(self) -> None:
        if self.epoch is not None:
            _validation.check_number("epoch", self.epoch, 1e-3, 86_400)
        if self.field is not None:
            _validation.check_choice("field", self.field, CHOICES)


@dataclass(frozen=True)
class EpochTable:
    """A table of epochs, its columns of labels and of features, and what audit.json keeps of it."""

    table: pa.Table
    labels: list[str]
    features: list[str]
    described: dict[str, Any]


def is_recording(source: Any, labels: Any = None) -> bool:
    """Whether a source is signals with spans, not a table with a label in every row."""
    if is_raw(source):
        return True
    if not isinstance(source, str | Path):
        return False
    path = Path(source)
    if path.is_dir() and labels is None:  # else the files of one table
        return any(is_signal_file(file) for file in path.iterdir())
    return labels is not None or is_signal_file(path) or is_manifest(path)


def lay_out(source: Any, request: RecordingRequest, columns: Request) -> tuple[Any, Request, RecordingRequest]:
    """The table of epochs of a recording with its columns named; any other source stays as it is."""
    if not is_recording(source, request.labels):
        if request != RecordingRequest():
            raise ValueError(
                "labels, epoch, field and a function of features are for recordings: the path of a file of signals, a "
                f"folder or a manifest. Got {source if isinstance(source, str | Path) else type(source).__name__}."
            )
        _refuse_spans(source)
        return source, columns, request
    wall_clock = bool(set(_names(columns.clock)) & (set(DERIVED) - {"position"}))
    found = read_epochs(source, request, wall_clock=wall_clock)
    named = replace(columns, sequence=SEQUENCE, time=TIME, label=found.labels, features=found.features)
    return found.table, named, replace(request, described=found.described)


def _refuse_spans(source: Any) -> None:
    """An export of BORIS is no table of steps."""
    path = Path(source) if isinstance(source, str | Path) else None
    if path is not None and path.name.lower().endswith((".csv", ".tsv")) and is_boris(path):
        raise ValueError(
            f"A table must have a row for every time step. {path.name!r} is an export of BORIS, with lines for "
            f"behaviours. Name it as the labels of a table of signals: labeltide audit SIGNALS --labels {path.name}. "
            "Without signals labeltide.agreement and labeltide.consensus compare coders."
        )


def read_unlabelled(source: Any, about: Mapping[str, Any]) -> pa.Table:
    """Epochs of recordings that need no labels, as those of an audit were made; `about` is its part `recordings`."""
    if not is_recording(source, labels=True):
        return source
    request = RecordingRequest(epoch=about["epoch"], field=about["field"])
    return read_epochs(source, request, labelled=False).table


def read_epochs(
    source: Any, request: RecordingRequest, *, wall_clock: bool = False, labelled: bool = True
) -> EpochTable:
    """Lay the spans of all recordings on epochs, and make the features of each epoch.

    Parameters
    ----------
    source : the path of a file of signals, of a folder or of a manifest; or a Raw of MNE
    labelled : refuse recordings without any label
    wall_clock : times are moments, where all recordings say when they began; else seconds from the beginning
    """
    recordings = open_recordings(source, request.labels, labelled)
    epoch, said = _choose_epoch(recordings, request)
    annotators = list(dict.fromkeys(who for recording in recordings for who in recording.spans))
    titles = dict(zip(annotators, _titles(annotators), strict=True))
    parts, described, counts, row = [], [], Counter[str](), 0
    for recording in recordings:
        grid = _grid(recording, epoch)
        laid = {titles[who]: lay_on_grid(spans, grid) for who, spans in recording.spans.items()}
        for one in laid.values():
            counts.update(one.counts)
        features = _features(recording.file.signals, grid, request)
        times = _times(recording, grid, wall_clock)
        parts.append({SEQUENCE: [recording.name] * grid.count, TIME: times, "labels": laid, "features": features})
        described.append(_describe(recording, grid, row))
        row += grid.count
    table, names = _join(parts, list(titles.values()))
    said += [sentence for recording in recordings for sentence in recording.file.said]
    said += say_counts(counts, Grid(0.0, epoch, 0))
    about = {"epoch": epoch, "field": request.field, "annotators": annotators, "files": described}
    return EpochTable(table, list(titles.values()), names, {**about, "said": list(dict.fromkeys(said))})


def _choose_epoch(recordings: Sequence[OpenRecording], request: RecordingRequest) -> tuple[float, list[str]]:
    """Seconds of an epoch: as asked for, else the longest that all spans are multiples of, else by the field."""
    if request.epoch is not None:
        return float(request.epoch), []
    lengths = np.concatenate(
        [
            spans["duration"].to_numpy()
            for recording in recordings
            for spans in recording.spans.values()
            if spans.num_rows
        ]
    )
    whole = np.rint(lengths[lengths > 0] * 1000).astype(np.int64)
    common = gcd(*whole.tolist()) / 1000 if len(whole) else 0.0
    fields = {field_of(s.name, s.unit, request.field) for recording in recordings for s in recording.file.signals}
    usual = max((USUAL_EPOCH.get(field, 1.0) for field in fields), default=1.0)
    if usual / 3 <= common <= LONGEST:
        return common, [f"Epochs of {common:g} s, of which every span holds a whole number."]
    return usual, [f"Epochs of {usual:g} s, as is usual for such signals; choose others with epoch (--epoch SECONDS)."]


def _grid(recording: OpenRecording, epoch: float) -> Grid:
    """Whole epochs from the first sample up to where the shortest signal ends."""
    end = min(signal.count / signal.rate for signal in recording.file.signals)
    count = int(end / epoch + 1e-9)
    if count < 1:
        raise ValueError(
            f"The recording {recording.name!r} lasts {end:g} s, less than an epoch of {epoch:g} s. Choose shorter ones."
        )
    return Grid(0.0, epoch, count)


def _features(signals: Sequence[Signal], grid: Grid, request: RecordingRequest) -> EpochFeatures:
    if request.features is not None:
        return own_features(signals, grid.onsets, grid.length, request.features)
    found: EpochFeatures = {}
    names = unique_texts(signal.name for signal in signals)
    moving = []
    for name, signal in zip(names, signals, strict=True):
        field = field_of(signal.name, signal.unit, request.field)
        found |= channel_features(replace(signal, name=name), grid.onsets, grid.length, field)
        moving += [signal] if field == "movement" else []
    if len(moving) == 3 and len({(signal.rate, signal.count) for signal in moving}) == 1:
        found |= magnitude_features(moving, grid.onsets, grid.length)
    return found


def _times(recording: OpenRecording, grid: Grid, wall_clock: bool) -> Any:
    if not wall_clock:
        return grid.onsets
    start = recording.file.start
    if start is None:
        raise ValueError(
            f"The recording {recording.name!r} does not say when it began, so no clock of hours or days can be read. "
            "Leave --clock out, or use position."
        )
    return [start + timedelta(seconds=float(onset)) for onset in grid.onsets]


def _describe(recording: OpenRecording, grid: Grid, row: int) -> dict[str, Any]:
    start = recording.file.start
    return {
        "recording": recording.name,
        **recording.files,
        "first_row": row,
        "rows": grid.count,
        "start": grid.start,
        "began": None if start is None else start.isoformat(),
        "rate": max(signal.rate for signal in recording.file.signals),
        "channels": [signal.name for signal in recording.file.signals],
    }


def _join(parts: Sequence[dict[str, Any]], titles: list[str]) -> tuple[pa.Table, list[str]]:
    """One table of all recordings, and the names of its features; a channel that one has not is missing there."""
    names = list(dict.fromkeys(name for part in parts for name in part["features"]))
    tables = []
    for part in parts:
        count = len(part[SEQUENCE])
        columns = {SEQUENCE: pa.array(part[SEQUENCE], pa.string()), TIME: pa.array(part[TIME])}
        for title in titles:
            laid = part["labels"].get(title)
            columns[title] = pa.array(laid.labels if laid else [None] * count, pa.string())
        for name in names:
            values = part["features"].get(name, np.full(count, np.nan))
            columns[name] = pa.array(values, pa.float64(), from_pandas=True)
        tables.append(pa.table(columns))
    return pa.concat_tables(tables), names


def _titles(annotators: Sequence[str | None]) -> list[str]:
    """The name of each annotator's column, which the page shows."""
    taken = {SEQUENCE, TIME}
    return [LABEL if who is None else f"{who} (annotator)" if who in taken else who for who in annotators]


def _names(value: Any) -> list[str]:
    return (
        [] if value is None else [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
    )
