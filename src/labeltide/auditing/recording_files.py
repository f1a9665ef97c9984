"""Which files belong to an audit of recordings: one file, a folder, or a manifest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from labeltide.spans import delimited
from labeltide.spans.formats import ADAPTERS, SIGNALS, read_spans
from labeltide.spans.mne_annotations import ANNOTATIONS
from labeltide.tables.files import open_file
from labeltide.tables.wording import quoted

MANIFEST = ("recording", "signals", "labels", "annotator")
MARKS = r"[ _.,+()\[\]-]+"  # between the words of a name
SHARED = 3  # letters at least, that the names of a recording and its labels begin with


@dataclass(frozen=True)
class LabelFile:
    """A file of labels, and whose they are where that is known; None reads the labels in the signals' own file."""

    path: Path | None
    annotator: str | None = None


@dataclass(frozen=True)
class RecordingFiles:
    """A recording: its signals and all files of its labels."""

    name: str
    signals: Path
    labels: tuple[LabelFile, ...]


def is_signal_file(path: Path) -> bool:
    """Whether the name of a file says that it may hold signals of a recording."""
    return path.name.lower().endswith(SIGNALS) and not path.name.endswith(ANNOTATIONS)


def is_manifest(path: Path) -> bool:
    """Whether a CSV or TSV file lists recordings: its columns are `signals`, `labels` and others of a manifest."""
    if not path.name.lower().endswith((".csv", ".tsv")) or not path.is_file():
        return False
    with path.open("rb") as file:
        line = file.readline(1 << 16).decode("utf-8-sig", "replace")
    names = {name.strip().strip('"').casefold() for name in line.replace("\t", ",").replace(";", ",").split(",")}
    return {"signals", "labels"} <= names <= set(MANIFEST)


def find_files(source: Path, labels: Sequence[Path]) -> list[RecordingFiles]:
    """The recordings of a file, a folder or a manifest, each with its labels."""
    if source.is_dir():
        return _in_folder(source, labels)
    if is_manifest(source):
        if labels:
            raise ValueError("A manifest names the labels of each recording itself. Leave --labels out.")
        return _in_manifest(source)
    files = [file for path in labels for file in ([path] if not path.is_dir() else _label_files(path))]
    several = len(files) > 1
    return [
        RecordingFiles(
            source.stem,
            source,
            tuple(LabelFile(path, path.stem if several else None) for path in files) or (LabelFile(None),),
        )
    ]


def _in_manifest(path: Path) -> list[RecordingFiles]:
    table: Any = open_file(path)
    table = table.rename_columns([name.strip().casefold() for name in table.column_names])
    found: dict[str, RecordingFiles] = {}
    for line in table.to_pylist():
        cells = {name: None if line.get(name) is None else str(line[name]).strip() for name in MANIFEST}
        if not cells["signals"]:
            raise ValueError(f"Every line of the manifest {str(path)!r} must name a file of signals. One does not.")
        signals = path.parent / cells["signals"]
        name = cells["recording"] or signals.stem
        label = LabelFile(path.parent / cells["labels"] if cells["labels"] else None, cells["annotator"])
        earlier = found.setdefault(name, RecordingFiles(name, signals, ()))
        if earlier.signals != signals:
            raise ValueError(
                f"A recording has one file of signals. The manifest names {str(earlier.signals)!r} and "
                f"{str(signals)!r} for {name!r}."
            )
        found[name] = RecordingFiles(name, signals, (*earlier.labels, label))
    if not found:
        raise ValueError(f"The manifest {str(path)!r} must list at least one recording. It lists none.")
    return list(found.values())


def _in_folder(folder: Path, labels: Sequence[Path]) -> list[RecordingFiles]:
    """Recordings of a folder; each file of labels belongs to the recording whose name begins most like its own."""
    signals = sorted(path for path in folder.iterdir() if is_signal_file(path) and _has_signals(path))
    if not signals:
        raise ValueError(
            f"The folder {str(folder)!r} must hold recordings ({', '.join(SIGNALS)}). It holds none with signals. List "
            "other files in a manifest with the columns recording, signals, labels and annotator."
        )
    files = [file for place in labels or [folder] for file in (_label_files(place) if place.is_dir() else [place])]
    owners: dict[Path, list[Path]] = {path: [] for path in signals}
    for file in files:
        if file not in owners:
            owners[_owner(file, signals)].append(file)
    several = any(len(own) > 1 for own in owners.values())
    found = []
    for path, own in owners.items():
        names = [_annotator(file.stem, path.stem) if several else None for file in own]
        if len(set(names)) < len(names):
            names = [file.name for file in own]
        named = tuple(LabelFile(file, name) for file, name in zip(own, names, strict=True))
        found.append(RecordingFiles(path.stem, path, named or (LabelFile(None),)))
    return found


def _annotator(labels: str, recording: str) -> str | None:
    """What remains of the name of a file of labels after that of its recording; None where nothing does.

    Where the recording's name is not at its beginning, the words that both begin with are left out, or the first word;
    where both begin with other letters, nothing is.
    """
    if labels.startswith(recording):
        rest = labels[len(recording) :]
    elif _shared(labels, recording) < SHARED:
        rest = labels
    else:
        both = _shared(re.split(MARKS, labels), re.split(MARKS, recording))
        rest = re.sub(rf"^(.*?{MARKS}){{{max(both, 1)}}}", "", labels + "_")
    return re.sub(rf"^{MARKS}|{MARKS}$", "", rest) or None


def _owner(file: Path, signals: Sequence[Path]) -> Path:
    name, *names = (re.sub(MARKS, "_", path.stem) for path in (file, *signals))  # n1-ann belongs to n1_psg
    shared = [_shared(name, other) + SHARED * name.startswith(other) for other in names]
    best = [path for path, count in zip(signals, shared, strict=True) if count == max(shared)]
    if len(signals) > 1 and (max(shared) < SHARED or len(best) > 1):
        raise ValueError(
            f"The labels {file.name!r} could belong to several recordings: {quoted([path.name for path in best])}. "
            "List them in a manifest, a CSV file with the columns recording, signals, labels and annotator."
        )
    return best[0]


def _shared(first: Sequence[str], second: Sequence[str]) -> int:
    """How many letters or words two names have in common from the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _label_files(folder: Path) -> list[Path]:
    ends = {end for adapter in ADAPTERS.values() for end in adapter.EXTENSIONS} - {".hea", ".txt"}
    found = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in ends)
    return [path for path in found if _has_labels(path)]


def _has_labels(path: Path) -> bool:
    if path.suffix.lower() in (".csv", ".tsv"):
        return delimited.is_spans(path)
    return not is_signal_file(path) or not _has_signals(path)


def _has_signals(path: Path) -> bool:
    return bool(read_spans(path).signals)
