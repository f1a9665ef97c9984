"""From signals and spans to a table with one row for each epoch: features, and the labels of each annotator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import takewhile
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide import _validation
from labeltide._validation import UnanswerableError
from labeltide.recordings import epoch_features
from labeltide.recordings.spans.delimited import is_boris, is_spans
from labeltide.recordings.spans.formats import ADAPTERS, ANNOTATIONS, SIGNALS, from_raw, read_spans
from labeltide.recordings.spans.table import SCHEMA, Signal, SpanFile, by_annotator, by_recording
from labeltide.tables.columns import is_number, load_table, open_table
from labeltide.tables.files import read_as_written
from labeltide.tables.roles import DERIVED, Request
from labeltide.tables.words import LESSER_TIMES, SEQUENCES, TIMES, UNRECORDED, means, quoted, unique_texts

SEQUENCE, TIME, SECONDS, LABEL = "recording", "onset", "onset (s)", "label"
USUAL_EPOCH = {"eeg": 30.0, "muscle": 30.0}  # in seconds, where the spans do not tell; 1 s for other fields
MAX_EPOCH = 600.0  # seconds  # of an epoch that is taken from the spans
CHOICES = (*epoch_features.FIELDS, "sleep")


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
    features: epoch_features.OwnFeatures | None = None
    described: dict[str, Any] | None = None

    @property
    def messages(self) -> list[str]:
        """Sentences about what was read."""
        return [] if self.described is None else self.described["messages"]

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


def is_raw(value: Any) -> bool:
    """Whether an object is a Raw of MNE, without importing MNE."""
    return any(kind.__module__.startswith("mne.") and kind.__name__ == "BaseRaw" for kind in type(value).__mro__)


def lay_out(source: Any, request: RecordingRequest, columns: Request) -> tuple[Any, Request, RecordingRequest]:
    """The table of epochs of a recording with its columns named; any other source stays as it is."""
    if not is_recording(source, request.labels):
        if request != RecordingRequest():
            raise ValueError(
                "labels, epoch, field and a function of features are for recordings: the path of a file of signals, a "
                f"folder or a manifest. Got {source if isinstance(source, str | Path) else type(source).__name__}."
            )
        path = Path(source) if isinstance(source, str | Path) else None
        if path is not None and path.name.lower().endswith((".csv", ".tsv")) and is_boris(path):
            raise ValueError(
                f"A table must have a row for every time step. {path.name!r} is an export of BORIS, with lines for "
                "behaviours. Name it as the labels of a table of signals: labeltide audit SIGNALS --labels "
                f"{path.name}. Without signals, labeltide consensus compares coders."
            )
        return source, columns, request
    clocks = columns.clock.split(",") if isinstance(columns.clock, str) else columns.clock or ()
    wall_clock = bool({name.strip() for name in clocks} & (set(DERIVED) - {"position"}))
    found = read_epochs(source, request, wall_clock=wall_clock)
    named = replace(columns, sequence=SEQUENCE, time=TIME, label=found.labels, features=found.features)
    return found.table, named, replace(request, described=found.described)


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
    every_signal = [signal for recording in recordings for signal in recording.file.signals]
    fields = {epoch_features.field_of(signal.name, signal.unit, request.field) for signal in every_signal}
    usual = max((USUAL_EPOCH.get(field, 1.0) for field in fields), default=1.0)
    every = [spans for recording in recordings for spans in recording.spans.values()]
    epoch, messages = _choose_epoch(every, usual, request.epoch)
    annotators = list(dict.fromkeys(who for recording in recordings for who in recording.spans))
    titles = {who: LABEL if who is None else _column_of(who) for who in annotators}
    tables, described, counts, names, row = [], [], Counter[str](), dict[str, None](), 0
    for recording in recordings:
        start, signals = recording.file.start, recording.file.signals
        end = min(signal.count / signal.rate for signal in signals)  # of the shortest
        grid = Grid(0.0, epoch, int(end / epoch + 1e-9))
        if grid.count < 1:
            raise ValueError(
                f"The recording {recording.name!r} lasts {end:g} s, less than an epoch of {epoch:g} s. Choose shorter "
                "ones."
            )
        times: Any = grid.onsets
        if wall_clock:
            if start is None:
                raise ValueError(
                    f"The recording {recording.name!r} does not say when it began, so no clock of hours or days can be "
                    "read. Leave --clock out, or use position."
                )
            times = [start + timedelta(seconds=each) for each in grid.onsets.tolist()]
        columns = {SEQUENCE: pa.array([recording.name] * grid.count, pa.string()), TIME: pa.array(times)}
        for who, title in titles.items():
            columns.setdefault(title, pa.nulls(grid.count, pa.string()))
            if who in recording.spans:
                laid = lay_on_grid(recording.spans[who], grid)
                columns[title] = pa.array(laid.labels, pa.string())
                counts.update(laid.counts)
        features = _features(signals, grid, request)
        columns |= {name: pa.array(values, pa.float64(), from_pandas=True) for name, values in features.items()}
        names |= dict.fromkeys(features)
        tables.append(pa.table(columns))
        messages += recording.messages
        about = {
            "recording": recording.name,
            "signals": str(recording.path),
            "labels": [str(path) for path, _ in recording.labels if path is not None],
            "annotators": [who for path, who in recording.labels if path is not None],
            "first_row": row,
            "rows": grid.count,
            "start": grid.start,
            "began": None if start is None else start.isoformat(),
            "rate": max(signal.rate for signal in signals),
            "channels": [signal.name for signal in signals],
        }
        described.append(about)
        row += grid.count
    table = pa.concat_tables(tables, promote_options="default")  # a channel that a recording lacks is missing there
    messages += say_counts(counts, epoch)
    about = {"epoch": epoch, "field": request.field, "annotators": annotators, "files": described}
    about["messages"] = list(dict.fromkeys(messages))
    return EpochTable(table, list(titles.values()), list(names), about)


def _choose_epoch(spans: Sequence[pa.Table], usual: float, asked: float | None) -> tuple[float, list[str]]:
    """Seconds of an epoch: as asked for, else the longest that all spans are multiples of, else the usual."""
    if asked is not None:
        return float(asked), []
    lengths = np.concatenate([part["duration"].to_numpy() for part in spans if part.num_rows])
    whole = np.rint(lengths[lengths > 0] * 1000).astype(np.int64)
    common = gcd(*whole.tolist()) / 1000 if len(whole) else 0.0
    if usual / 3 <= common <= MAX_EPOCH:
        return common, [f"Epochs of {common:g} s: every span is a whole number of them."]
    return usual, [f"Epochs of {usual:g} s, as is usual for such data; choose others with epoch (--epoch SECONDS)."]


def read_annotators(source: str | Path, chosen: Sequence[str] = (), epoch: float | None = None) -> EpochTable:
    """Spans of several annotators, without signals, as a table with a row for each epoch and a column for each of them.

    Where a file names no annotator, it is the name of the file, or the part of it that differs between the files of a
    recording: pig1_ann.csv and pig1_ben.csv are a recording and two annotators.
    """
    names = [Path(name.strip()) for name in str(source).split(",")] if not Path(source).exists() else [Path(source)]
    paths = [file for path in names for file in (_label_files(path) if path.is_dir() else [path])]
    found: dict[str, dict[str, list[pa.Table]]] = {}
    messages: list[str] = []
    for path in paths:
        file = read_spans(path)
        messages += file.messages
        *first, last = re.split(MARKS, path.stem)
        own = next((name for name in chosen if name in (last, *first)), last if first else path.stem)
        rest = "_".join(word for word in (*first, last) if word != own)
        for recording, part in by_recording(file.spans).items():
            for who, spans in by_annotator(part).items():
                is_named = recording not in (None, path.stem)
                name = str(recording) if is_named or who is not None else rest or "recording"
                found.setdefault(name, {}).setdefault(who or (path.stem if is_named else own), []).append(spans)
    known = {who for each in found.values() for who in each}
    people = list(chosen) or sorted(known)
    if len(people) < 2 or not known.issuperset(people):
        raise ValueError(
            "To compare annotators, the files must hold spans of at least two: a column annotator, tiers, or one file "
            f"for each of them. Found {quoted(sorted(known)) or 'none'}."
        )
    parts = [part for each in found.values() for who in people for part in each.get(who, ())]
    length, chosen_epoch = _choose_epoch(parts, 1.0, epoch)
    rows, counts = [], Counter[str]()
    for name, each in found.items():
        every = pa.concat_tables(part for parts in each.values() for part in parts)
        end = (every["onset"].to_numpy() + every["duration"].to_numpy()).max(initial=0)
        grid = Grid(0.0, length, max(1, int(np.ceil(end / length - TOLERANCE))))
        columns = {SEQUENCE: pa.array([name] * grid.count), SECONDS: pa.array(grid.onsets)}
        for who in people:
            laid = lay_on_grid(pa.concat_tables(each.get(who, [SCHEMA.empty_table()])), grid)
            columns[_column_of(who)] = pa.array(laid.labels, pa.string())
            counts.update(laid.counts if who in each else {})
        rows.append(pa.table(columns))
    messages += [*chosen_epoch, *say_counts({**counts, "gaps": 0}, length)]
    about = {"messages": list(dict.fromkeys(messages))}
    return EpochTable(pa.concat_tables(rows), list(map(_column_of, people)), [], about)


def _column_of(annotator: str) -> str:
    """The name of an annotator's column, apart from those of recording and time."""
    return f"{annotator} (annotator)" if annotator in (SEQUENCE, TIME, SECONDS) else annotator


def _features(signals: Sequence[Signal], grid: Grid, request: RecordingRequest) -> epoch_features.EpochFeatures:
    if request.features is not None:
        return epoch_features.own_features(signals, grid.onsets, grid.length, request.features)
    found: epoch_features.EpochFeatures = {}
    names = unique_texts(signal.name for signal in signals)
    moving = []
    for name, signal in zip(names, signals, strict=True):
        field = epoch_features.field_of(signal.name, signal.unit, request.field)
        found |= epoch_features.channel_features(replace(signal, name=name), grid.onsets, grid.length, field)
        moving += [signal] if field == "movement" else []
    if len(moving) == 3 and len({(signal.rate, signal.count) for signal in moving}) == 1:
        found |= epoch_features.magnitude_features(moving, grid.onsets, grid.length)
    return found


# Recordings opened for an audit: their signals, and the spans of each annotator from all files of labels.

DAY = 86_400  # seconds
SHOWN = 3  # names in a sentence


@dataclass(frozen=True)
class Recording:
    """A recording: its files and, once it is open, its signals and the spans of each annotator.

    Attributes
    ----------
    path : of its signals
    labels : files of labels, each with its annotator where that is known; None reads the labels in the signals' file
    """

    name: str
    path: Path
    labels: Sequence[tuple[Path | None, str | None]]
    file: SpanFile = field(default_factory=SpanFile)
    spans: dict[str | None, pa.Table] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


def open_recordings(source: Any, labels: Any, labelled: bool = True) -> list[Recording]:
    """All recordings of a file, a folder, a manifest, a list or a Raw of MNE; where labelled, with at least one span.

    Spans are matched by the name of the recording. Those that belong to none are counted and reported.
    """
    paths: list[Path] = []
    if labels is not None and not isinstance(labels, pa.Table):
        if isinstance(labels, str):
            labels = [labels] if Path(labels).exists() else labels.split(",")
        paths = [Path(str(path).strip()) for path in ([labels] if isinstance(labels, Path) else labels)]
    for file in paths:
        if not file.exists():
            raise FileNotFoundError(f"There is no file {str(file)!r}. The path is read from {str(Path.cwd())!r}.")
    if is_raw(source):
        name = Path(source.filenames[0]).stem if source.filenames and source.filenames[0] else "recording"
        own: list[tuple[Path | None, str | None]] = [(path, None) for path in paths]
        opened = [[Recording(name, Path(name), own or [(None, None)], from_raw(source, recording=name))]]
    else:
        found = source if isinstance(source, list) else find_files(Path(source), paths)
        opened = [_open_signals(files) for files in found]
    recordings = [recording for part in opened for recording in part]
    given = labels if isinstance(labels, pa.Table) else None
    n_spans: dict[tuple[Path | None, str | None], int] = {}  # by file of labels and name of a recording in it
    used: set[tuple[Path | None, str | None]] = set()
    by_observation: list[str] = []
    for recording, together in [(recording, part) for part in opened for recording in part]:
        is_alone = len(together if given is None else recordings) == 1
        recording.messages.extend(recording.file.messages)
        for path, annotator in recording.labels if given is None else [(None, None)]:
            read = recording.file if given is None else SpanFile(given)
            if path is not None:
                read = align(read_spans(path), recording.file, path.name)
                recording.messages.extend(read.messages)
            parts = by_recording(read.spans)
            n_spans |= {(path, key): part.num_rows for key, part in parts.items()}
            keys, is_observation = _match(recording.name, list(parts), read.observations, is_alone)
            by_observation += [recording.name] if is_observation else []
            for key in keys:
                used.add((path, key))
                for who, own_spans in by_annotator(parts[key]).items():
                    who = annotator if who is None else who
                    both = [recording.spans[who], own_spans] if who in recording.spans else [own_spans]
                    recording.spans[who] = pa.concat_tables(both).sort_by("onset") if len(both) > 1 else own_spans
    left = {key: count for key, count in n_spans.items() if key not in used}
    names, n_left = sorted({name for _, name in left if name is not None}), sum(left.values())
    if labelled and not any(spans.num_rows for recording in recordings for spans in recording.spans.values()):
        if not n_left:
            raise UnanswerableError(
                "An audit needs labels, and none were found in the recordings. Name the file of labels with the option "
                "labels (--labels FILE)."
            )
        raise UnanswerableError(
            f"Labels and signals must name the same recordings. The labels name "
            f"{quoted(names, SHOWN) if names else 'none'}, the signals "
            f"{quoted([recording.name for recording in recordings], SHOWN)}. Write the names of one into the column "
            "recording of the other (in BORIS the recording is the observation and its subject), or list the files in "
            "a manifest."
        )
    messages = recordings[0].messages
    if by_observation:
        shown = quoted(list(dict.fromkeys(by_observation)), SHOWN)
        messages.append(f"Observations with one subject go by the observation alone: {shown}.")
    if n_left:
        which = f": {quoted(names, SHOWN)}" if names else ", because they name none"
        messages.append(f"{n_left:,} span{'s' if n_left > 1 else ''} of recordings without signals left out{which}.")
    return recordings


def open_again(described: Mapping[str, Any]) -> list[Recording]:
    """The recordings of an audit, whose files are listed in the part `recordings` of audit.json."""
    files = {file["signals"]: file for file in described["files"]}  # a table of signals can hold several recordings
    found = []
    for signals, file in files.items():
        if not signals or not Path(signals).is_file():
            raise ValueError(f"The signals of {file['recording']!r} are no longer at {signals!r}. Move them back.")
        labels = zip(map(Path, file.get("labels") or ()), file.get("annotators") or (), strict=False)
        found.append(Recording(file["recording"], Path(signals), list(labels) or [(None, None)]))
    return open_recordings(found, None)


def _match(
    name: str, keys: list[str | None], observations: Mapping[str, str], is_alone: bool
) -> tuple[list[str | None], bool]:
    """The name of a recording in the labels, and whether it is the observation of BORIS that matches.

    It is the same, the same before an ending, or that of an observation with one subject. A single other name is that
    of a recording that is alone.
    """
    if is_alone and len(keys) < 2:
        return keys, False
    if name in keys:
        return [name], False
    found = [key for key in keys if key is not None and "." in key and Path(key).stem == name]
    if found:
        return [found[-1]], False
    subjects = [key for key in keys if key is not None and observations.get(key) == name]
    return ([subjects[0]], True) if len(subjects) == 1 else ([], False)


def _open_signals(files: Recording) -> list[Recording]:
    """The recordings of a file of signals; a table can hold several."""
    if is_signal_file(files.path):
        file = read_spans(files.path)
        if not file.signals:
            raise ValueError(
                f"The file {str(files.path)!r} must hold signals. It holds annotations alone: name it with the "
                "option labels (--labels FILE), after the file of the signals."
            )
        return [replace(files, file=file)]
    parts = read_signal_table(files.path)
    if len(parts) == 1:
        return [replace(files, file=next(iter(parts.values())))]
    return [Recording(name, files.path, files.labels, file) for name, file in parts.items()]


def align(labels: SpanFile, recording: SpanFile, name: str) -> SpanFile:
    """Onsets of labels as seconds of the recording, where both files say when they began.

    Files of labels count from their own beginning. One that began more than a day apart has a date that was removed, so
    its onsets are taken as they are.
    """
    if labels.start is None or recording.start is None or labels.start == recording.start:
        return labels
    apart = (labels.start - recording.start).total_seconds()
    if abs(apart) >= DAY:
        messages = f"{name} and its recording begin on different days; onsets are taken as they are."
        return replace(labels, messages=(*labels.messages, messages))
    number = labels.spans.column_names.index("onset")
    moved = labels.spans.set_column(number, "onset", pc.add(labels.spans["onset"], apart))
    when = f"{abs(apart):g} s {'after' if apart > 0 else 'before'} its recording"
    return replace(
        labels, spans=moved, messages=(*labels.messages, f"{name} begins {when}: its onsets were moved by that.")
    )


# Which files belong to an audit of recordings: one file, a folder, or a manifest.

MANIFEST = ("recording", "signals", "labels", "annotator")
MARKS = r"[ _.,+()\[\]-]+"  # between the words of a name
SHARED = 3  # letters at least, that the names of a recording and its labels begin with


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


def find_files(source: Path, labels: Sequence[Path]) -> list[Recording]:
    """The recordings of a file, a folder or a manifest, each with its labels."""
    if source.is_dir():
        return _in_folder(source, labels)
    if is_manifest(source):
        if labels:
            raise ValueError("A manifest names the labels of each recording itself. Leave --labels out.")
        return _in_manifest(source)
    files = [file for path in labels for file in ([path] if not path.is_dir() else _label_files(path))]
    own = [(path, path.stem if len(files) > 1 else None) for path in files]
    return [Recording(source.stem, source, own or [(None, None)])]


def _in_manifest(path: Path) -> list[Recording]:
    table = read_as_written(path)
    table = table.rename_columns([name.strip().casefold() for name in table.column_names])
    found: dict[str, Recording] = {}
    for line in table.to_pylist():
        cells = {name: None if line.get(name) is None else str(line[name]).strip() for name in MANIFEST}
        if not cells["signals"]:
            raise ValueError(f"Every line of the manifest {str(path)!r} must name a file of signals. One does not.")
        signals = path.parent / cells["signals"]
        name = cells["recording"] or signals.stem
        earlier = found.setdefault(name, Recording(name, signals, []))
        if earlier.path != signals:
            raise ValueError(
                f"A recording has one file of signals. The manifest names {str(earlier.path)!r} and "
                f"{str(signals)!r} for {name!r}."
            )
        label = (path.parent / cells["labels"] if cells["labels"] else None, cells["annotator"])
        found[name] = replace(earlier, labels=[*earlier.labels, label])
    if not found:
        raise ValueError(f"The manifest {str(path)!r} must list at least one recording. It lists none.")
    return list(found.values())


def _in_folder(folder: Path, labels: Sequence[Path]) -> list[Recording]:
    """Recordings of a folder; each file of labels belongs to the recording whose name begins most like its own."""
    signals = sorted(path for path in folder.iterdir() if is_signal_file(path) and read_spans(path).signals)
    if not signals:
        raise ValueError(
            f"The folder {str(folder)!r} must hold recordings ({', '.join(SIGNALS)}). It holds none with signals. List "
            "other files in a manifest with the columns recording, signals, labels and annotator."
        )
    files = [file for path in labels or [folder] for file in (_label_files(path) if path.is_dir() else [path])]
    owners: dict[Path, list[Path]] = {path: [] for path in signals}
    for file in files:
        if file in owners:
            continue
        name, *names = (re.sub(MARKS, "_", path.stem) for path in (file, *signals))  # n1-ann belongs to n1_psg
        shared = [_shared(name, other) + SHARED * name.startswith(other) for other in names]
        best = [path for path, count in zip(signals, shared, strict=True) if count == max(shared)]
        if len(signals) > 1 and (max(shared) < SHARED or len(best) > 1):
            raise ValueError(
                f"The labels {file.name!r} could belong to several recordings: {quoted([path.name for path in best])}. "
                "List them in a manifest, a CSV file with the columns recording, signals, labels and annotator."
            )
        owners[best[0]].append(file)
    several = any(len(own) > 1 for own in owners.values())
    found = []
    for path, own in owners.items():
        people = [_annotator(file.stem, path.stem) if several else None for file in own]
        if len(set(people)) < len(people):
            people = [file.name for file in own]
        found.append(Recording(path.stem, path, list(zip(own, people, strict=True)) or [(None, None)]))
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


def _shared(first: Sequence[str], second: Sequence[str]) -> int:
    """How many letters or words two names have in common from the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _label_files(folder: Path) -> list[Path]:
    ends = {end for adapter in ADAPTERS.values() for end in adapter.extensions} - {".hea", ".txt"}
    found = []
    for path in sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in ends):
        is_table = path.suffix.lower() in (".csv", ".tsv")
        if is_spans(path) if is_table else not is_signal_file(path) or not read_spans(path).signals:
            found.append(path)
    return found


# Signals from a table: a column of times and one for each channel, perhaps one that names the recording.

MAX_SAMPLES = 100_000_000  # of a grid on which the rows are placed
FILLED = 10  # times as many samples as there are may be missing before the first row


def read_signal_table(path: Path) -> dict[str, SpanFile]:
    """The signals of each recording; rows are placed on an even grid of the usual time between them."""
    opened = open_table(path)
    table = load_table(opened)
    kinds = {name: table.schema.field(name).type for name in table.column_names}
    usable = [name for name, kind in kinds.items() if is_number(kind) or pa.types.is_timestamp(kind)]
    time = next((name for vocabulary in (TIMES, LESSER_TIMES) for name in usable if means(name, vocabulary)), None)
    if time is None:
        raise ValueError(
            "A table of signals must have a column of times, named time, t or timestamp, in seconds or as dates with "
            f"times. It has: {quoted(table.column_names)}."
        )
    recording = next((name for name in table.column_names if name != time and means(name, SEQUENCES)), None)
    if recording is None:
        return {path.stem: _signals(table, time)}
    texts = opened.written([recording])[recording] if opened.written else table[recording].cast(pa.string())
    names = [name for name in pc.unique(texts).to_pylist() if name is not None]
    rest = table.drop_columns([recording])
    return {name: _signals(rest.filter(pc.fill_null(pc.equal(texts, name), False)), time) for name in names}


def _signals(table: pa.Table, time: str) -> SpanFile:
    column, start = table[time], None
    if pa.types.is_timestamp(column.type):
        moments = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy().astype(np.float64) / 1e6
        start = np.datetime64(int(moments.min() * 1e6), "us").item() if len(moments) else None  # at second 0
        seconds = moments - moments.min() if len(moments) else moments
    else:
        seconds = column.to_numpy().astype(np.float64)
    order = np.argsort(seconds, kind="stable")
    seconds = seconds[order]
    gaps = np.diff(seconds)
    if not len(gaps) or not np.isfinite(seconds).all() or not (usual := float(np.median(gaps))) > 0:
        raise ValueError(
            f"The times in {quoted([time])} must be finite and differ from row to row, at least two of them."
        )
    index = np.rint((seconds - seconds[0]) / usual).astype(np.int64)
    count = int(index[-1]) + 1
    if count > MAX_SAMPLES:
        raise ValueError(
            f"The times in {quoted([time])} leave gaps so long that the signals cannot be held. Split the table."
        )
    messages = []
    moved = float(np.abs(seconds - seconds[0] - index * usual).max())
    if moved > usual / 10:
        messages.append(f"Times are not even: samples were moved by up to {moved:.3g} s onto steps of {usual:.3g} s.")
    before = round(seconds[0] / usual) if start is None and 0 < seconds[0] / usual < FILLED * count else 0
    if start is None and abs(seconds[0] - before * usual) > usual:
        messages.append(f"Times count from the first row, which was {seconds[0]:g} s.")
    columns = [name for name in table.column_names if name != time and is_number(table.schema.field(name).type)]
    if not columns:
        raise ValueError("A table of signals must have at least one column of numbers besides the times. Got none.")
    signals = []
    for name in columns:
        values = np.full(before + count, np.nan)
        values[before + index] = table[name].to_numpy().astype(np.float64)[order]
        signals.append(Signal(name, "", 1 / usual, before + count, lambda a, b, held=values: held[a:b]))  # type: ignore[misc]
    return SpanFile(signals=tuple(signals), start=start, messages=tuple(messages))


# Spans on a grid of steps: the one place with the rules for overlaps, gaps, clipping and offsets.
#
# A step is an epoch from ``start + k * length`` up to the next. These are the rules:
#
# * **Cover.** A step takes the label that covers most of it, if that is at least half of it.
# * **Overlaps.** Where spans of different labels overlap, each counts for what it covers. Of two that cover the same,
#   the one that begins later wins.
# * **Gaps.** A step less than half covered gets no label. Neither does one under a label that says "not scored"
#   (`UNRECORDED`).
# * **Clipping.** What lies before the first step or after the last is cut off.
# * **Offsets.** Edges between the edges of steps move to the nearest one, by the rule of cover.
# * **Events**, of no duration, have no cover and are left out.
#
# Each is counted, and each count that is not zero is a sentence.

MAX_PIECES = 50_000_000  # of spans cut at the edges of steps
TOLERANCE = 1e-6  # of a step


@dataclass(frozen=True)
class Grid:
    """Steps of equal length; `start` and `length` are in seconds."""

    start: float
    length: float
    count: int

    @property
    def onsets(self) -> np.ndarray:
        """The beginning of every step: shape (count,)."""
        return self.start + np.arange(self.count) * self.length


class GridLabels(NamedTuple):
    """The label of every step, None where there is none, and how often each rule was applied."""

    labels: list[str | None]
    counts: dict[str, int]


def lay_on_grid(spans: pa.Table, grid: Grid) -> GridLabels:
    """The label of every step, from the spans of one annotator and one recording; the module has the rules."""
    onset, duration = spans["onset"].to_numpy(), spans["duration"].to_numpy()
    texts = spans["label"].to_pylist()
    unscored = np.array([text.casefold() in UNRECORDED for text in texts], dtype=bool)
    begins = (onset - grid.start) / grid.length
    ends = begins + duration / grid.length
    event, outside = duration == 0, (ends <= TOLERANCE) | (begins >= grid.count - TOLERANCE)
    used = ~event & ~outside & ~unscored
    names, codes = np.unique(np.array(texts, dtype=object).astype(str), return_inverse=True)
    pieces = _cut(begins, ends, used, grid.count)
    chosen, overlapping = _choose(*pieces, codes, onset, grid.count)
    counts = {
        "overlaps": overlapping,
        "gaps": int((chosen < 0).sum()),
        "clipped": int((used & ((begins < -TOLERANCE) | (ends > grid.count + TOLERANCE))).sum()),
        "outside": int((outside & ~event).sum()),
        "offsets": int((used & (_off_grid(begins) | _off_grid(ends))).sum()),
        "events": int(event.sum()),
        "unscored": int((unscored & ~event & ~outside).sum()),
    }
    labels = [None if code < 0 else str(names[code]) for code in chosen]
    return GridLabels(labels, counts)


def say_counts(counts: Mapping[str, int], length: float) -> tuple[str, ...]:
    """A sentence for every rule that was applied."""
    of = f"of {length:g} s"
    rules = {
        "overlaps": ("epoch", f"{of} under spans of different labels: the label that covers most of the epoch counts."),
        "gaps": ("epoch", f"{of} without a label, because none covers half of the epoch."),
        "clipped": ("span", "cut off where the signals begin or end."),
        "outside": ("span", "outside the signals left out."),
        "offsets": ("span", "beginning or ending inside an epoch: each epoch takes the label that covers most of it."),
        "events": ("span", "without duration left out: an event covers no epoch."),
        "unscored": ("span", "labelled as not scored left out."),
    }
    found = [(counts.get(name, 0), *words) for name, words in rules.items()]
    return tuple(f"{count} {noun}{'s' if count > 1 else ''} {sentence}" for count, noun, sentence in found if count)


def _off_grid(edges: np.ndarray) -> np.ndarray:
    return np.abs(edges - np.rint(edges)) > np.maximum(TOLERANCE, 1e-9 * np.abs(edges))


def _cut(
    begins: np.ndarray, ends: np.ndarray, used: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spans cut at the edges of steps: the step and the span of each piece, and how much of the step it covers."""
    numbers = np.flatnonzero(used)
    low, high = begins[used].clip(0, count), ends[used].clip(0, count)
    first = np.floor(low + TOLERANCE).astype(np.int64)
    pieces = np.maximum(np.ceil(high - TOLERANCE).astype(np.int64) - first, 0)
    if pieces.sum() > MAX_PIECES:
        raise ValueError(
            f"The spans cover {int(pieces.sum())} epochs, counted span by span; at most {MAX_PIECES} are laid on "
            "a grid. Choose longer epochs, or drop spans that overlap."
        )
    span = np.repeat(np.arange(len(numbers)), pieces)
    step = np.arange(len(span)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[span]
    cover = np.minimum(high[span], step + 1) - np.maximum(low[span], step)
    return step, numbers[span], cover


def _choose(
    step: np.ndarray, span: np.ndarray, covered: np.ndarray, codes: np.ndarray, onset: np.ndarray, count: int
) -> tuple[np.ndarray, int]:
    """The code of each step's label, -1 for none, and how many steps lie under overlapping spans of several labels."""
    chosen = np.full(count, -1, dtype=np.int64)
    if not len(step):
        return chosen, 0
    pair = step * (int(codes.max()) + 1) + codes[span]
    pairs, first, index = np.unique(pair, return_index=True, return_inverse=True)
    cover = np.bincount(index, covered)
    latest = np.full(len(pairs), -np.inf)
    np.maximum.at(latest, index, onset[span])
    step = step[first]
    order = np.lexsort((latest, np.round(cover, 6), step))  # within a step, the one to choose comes last
    last = order[np.append(step[order][1:] != step[order][:-1], True)]
    enough = last[cover[last] >= 0.5 - TOLERANCE]
    chosen[step[enough]] = codes[span[first[enough]]]
    labels, total = np.bincount(step, minlength=count), np.bincount(step, cover, count)
    return chosen, int(((labels > 1) & (total > 1 + TOLERANCE)).sum())
