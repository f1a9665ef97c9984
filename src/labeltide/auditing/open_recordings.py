"""Recordings opened for an audit: their signals, and the spans of each annotator from all files of labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing.recording_files import LabelFile, RecordingFiles, find_files, is_signal_file
from labeltide.auditing.recording_names import RecordingNames
from labeltide.auditing.signal_tables import read_signal_table
from labeltide.spans.formats import read_spans
from labeltide.spans.mne_annotations import from_raw, is_raw
from labeltide.spans.table import SpanFile, by_annotator

DAY = 86_400  # seconds


@dataclass(frozen=True)
class OpenRecording:
    """A recording that is open: its signals, and the spans of each annotator."""

    name: str
    files: dict[str, Any]
    file: SpanFile
    spans: dict[str | None, pa.Table]


def open_recordings(source: Any, labels: Any, labelled: bool = True) -> list[OpenRecording]:
    """All recordings of a file, a folder, a manifest or a Raw of MNE; where labelled, with at least one span."""
    if is_raw(source):
        name = Path(source.filenames[0]).stem if source.filenames and source.filenames[0] else "recording"
        files = [RecordingFiles(name, Path(name), (LabelFile(None),))]
        opened = {name: from_raw(source, recording=name)}
        paths = _paths(labels)
        files = [replace(files[0], labels=tuple(LabelFile(path) for path in paths))] if paths else files
    else:
        files = find_files(Path(source), _paths(labels))
        opened = {}
    signals = [(one, opened or _signals_of(one)) for one in files]
    names, found = RecordingNames(), []
    names.signals = [name for _, parts in signals for name in parts]
    given = labels if isinstance(labels, pa.Table) else None
    for one, parts in signals:
        alone = len(parts if given is None else names.signals) == 1
        found += [
            _with_labels(one, OpenRecording(name, {}, file, {}), given, names, alone) for name, file in parts.items()
        ]
    if labelled and not any(spans.num_rows for recording in found for spans in recording.spans.values()):
        names.refuse()
    first = found[0]
    return [replace(first, file=replace(first.file, said=(*first.file.said, *names.say()))), *found[1:]]


def _signals_of(files: RecordingFiles) -> dict[str, SpanFile]:
    """The signals of a file by the name of their recording; a table can hold several recordings."""
    if is_signal_file(files.signals):
        file = read_spans(files.signals)
        if not file.signals:
            raise ValueError(
                f"The file {str(files.signals)!r} must hold signals. It holds annotations alone: name it with the "
                "option labels (--labels FILE), after the file of the signals."
            )
        return {files.name: file}
    parts = read_signal_table(files.signals)
    return {files.name: next(iter(parts.values()))} if len(parts) == 1 else parts


def _with_labels(
    files: RecordingFiles, recording: OpenRecording, given: pa.Table | None, names: RecordingNames, alone: bool
) -> OpenRecording:
    """The spans of each annotator of a recording, from all its files of labels."""
    spans: dict[str | None, pa.Table] = {}
    file, said = recording.file, list(recording.file.said)
    sources = [(LabelFile(None), SpanFile(given))] if given is not None else []
    for label in files.labels if given is None else ():
        read = file if label.path is None else align(read_spans(label.path), file, label.path.name)
        sources.append((label, read))
        said += read.said if label.path is not None else ()
    for label, read in sources:
        for who, own in by_annotator(names.find(read, label.path, recording.name, alone=alone)).items():
            who = label.annotator if label.annotator is not None and who is None else who
            spans[who] = pa.concat_tables([spans[who], own]).sort_by("onset") if who in spans else own
    paths = [str(label.path) for label in files.labels if label.path is not None]
    about = {"signals": str(files.signals), "labels": paths}
    return replace(recording, files=about, file=replace(file, said=tuple(said)), spans=spans)


def align(labels: SpanFile, recording: SpanFile, name: str) -> SpanFile:
    """Onsets of labels as seconds of the recording, where both files say when they began.

    Files of labels count from their own beginning. One that began more than a day apart has a date that was removed, so
    its onsets are taken as they are.
    """
    if labels.start is None or recording.start is None or labels.start == recording.start:
        return labels
    apart = (labels.start - recording.start).total_seconds()
    if abs(apart) >= DAY:
        said = f"{name} and its recording begin on different days; onsets are taken as they are."
        return replace(labels, said=(*labels.said, said))
    place = labels.spans.column_names.index("onset")
    moved = labels.spans.set_column(place, "onset", pc.add(labels.spans["onset"], apart))
    when = f"{abs(apart):g} s {'after' if apart > 0 else 'before'} its recording"
    return replace(labels, spans=moved, said=(*labels.said, f"{name} begins {when}: its onsets were moved by that."))


def _paths(labels: Any) -> list[Path]:
    if labels is None or isinstance(labels, pa.Table):
        return []
    if isinstance(labels, str):
        labels = [labels] if Path(labels).exists() else labels.split(",")
    every = [Path(str(path).strip()) for path in ([labels] if isinstance(labels, Path) else labels)]
    for path in every:
        if not path.exists():
            raise FileNotFoundError(f"There is no file {str(path)!r}. The path is read from {str(Path.cwd())!r}.")
    return every
