"""The file formats of spans: one entry of `ADAPTERS` for each, and how it is read and written by which library."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as Tree

import numpy as np
import pyarrow as pa

from labeltide import _validation
from labeltide._files import import_extra, library_errors, write_atomically, write_json
from labeltide.recordings.spans import delimited
from labeltide.recordings.spans.table import (
    Signal,
    SpanFile,
    by_annotator,
    by_recording,
    check_writable,
    count_overlaps,
    file_of_lines,
    guard_load,
    lines_of,
    make_spans,
    parse_xml,
    write_with,
)


def read_spans(path: str | Path, **options: Any) -> SpanFile:
    """Read spans, and signals where there are any, from a file of any format that is known by its extension.

    Examples
    --------
    >>> import labeltide as lt
    >>> found = lt.read_spans("night.csv")  # columns onset, duration and label
    >>> found.spans["label"].to_pylist()
    ['W', 'N1']
    """
    return adapter_of(Path(path)).read(path, **options)


def adapter_of(path: Path) -> SpanFormat:
    """The format of a file, by its extension; one beside a header of WFDB holds its annotations."""
    suffix = path.suffix.lower()
    if found := [adapter for adapter in ADAPTERS.values() if suffix in adapter.extensions]:
        return found[0]
    if path.with_suffix(".hea").is_file() or suffix.startswith((".issues", ".corrected")):  # its extension is free
        return ADAPTERS["wfdb"]
    known = ", ".join(end for adapter in ADAPTERS.values() for end in adapter.extensions)
    raise ValueError(f"A file of labels must end in one of {known}. Got {str(path)!r}.")


class SpanFormat(NamedTuple):
    """A format of files of spans.

    Attributes
    ----------
    kind : what a file that cannot be read was read as
    extensions : in small letters
    read_file, write_file : get the path, for writing after the spans, and the library where there is one; None where
        files are read alone
    library : module, extra of labeltide and name of the files; None where none is needed
    max_bytes : of a file; None where it is read in parts
    """

    kind: str
    extensions: tuple[str, ...]
    read_file: Callable[..., SpanFile]
    write_file: Callable[..., tuple[str, ...] | None] | None
    library: tuple[str, str, str] | None = None
    max_bytes: int | None = 512 * 2**20

    def read(self, path: str | Path, **options: Any) -> SpanFile:
        """Read a file; whatever its library raises becomes a sentence, and its warnings become messages."""
        library = self._import("Reading")
        path, most = Path(path), self.max_bytes
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {str(path)!r}. The path is read from {str(Path.cwd())!r}.")
        if most is not None and path.stat().st_size > most:
            raise ValueError(
                f"A file of spans must be smaller than {most >> 20} MB. {str(path)!r} is larger. Split it."
            )
        with library_errors(path, self.kind) as messages:
            file = self.read_file(path, *library, **options)
        return replace(file, messages=(*messages, *file.messages))

    def write(self, spans: pa.Table, path: str | Path, **options: Any) -> tuple[str, ...]:
        """Write a file, whole or not at all; gives messages about what was moved or rounded."""
        assert self.write_file is not None
        return self.write_file(spans, Path(path), *self._import("Writing"), **options) or ()

    def _import(self, purpose: str) -> list[Any]:
        if self.library is None:
            return []
        return [import_extra(self.library[0], self.library[1], f"{purpose} {self.library[2]}")]


TIER = "labels"  # of ELAN and TextGrid, for spans that name no annotator
STAGES = "Stages"  # of NSRR


# EDF+ and BDF+ by edfio. EDF+ has no place for an annotator: write one file for each. A written file holds annotations
# alone ("annotation-only EDF+"), which viewers of hypnograms open beside the recording.


def read_edf(path: Path, edfio: Any, *, annotator: str | None = None) -> SpanFile:
    """Read annotations and signals; samples are loaded when they are asked for."""
    is_bdf = path.suffix.lower() == ".bdf"
    file = (edfio.read_bdf if is_bdf else edfio.read_edf)(path, header_encoding="latin-1")
    if "+D" in file.reserved and not file.is_continuous:
        raise ValueError("the recording is interrupted (EDF+D). Split it into continuous parts")
    notes = [(note.onset, note.duration or 0.0, note.text) for note in file.annotations]
    signals = []
    for signal in file.signals:
        count = signal.samples_per_data_record * file.num_data_records
        rate = signal.samples_per_data_record / file.data_record_duration

        def load(first: int, last: int, signal: Any = signal, rate: float = rate) -> np.ndarray:
            return signal.get_data_slice(first / rate, last / rate)

        unit = signal.physical_dimension.strip()
        signals.append(Signal(signal.label.strip(), unit, rate, count, guard_load(load, path, "EDF")))
    try:
        start = datetime.combine(file.startdate, file.starttime)
    except ValueError:  # an anonymised date
        start = None
    return file_of_lines(notes, annotator, path.stem, signals=tuple(signals), start=start)


def write_edf(spans: pa.Table, path: Path, edfio: Any, *, start: datetime | None = None) -> None:
    """Write an EDF+ file of annotations; start is the wall clock at second 0, as the recording has it."""
    check_writable(spans, "EDF+", "recording", "annotator")
    notes = [edfio.EdfAnnotation(onset, duration or None, label) for onset, duration, label in lines_of(spans)]
    about: dict[str, Any] = {}
    if start is not None:
        about = {"recording": edfio.Recording(startdate=start.date()), "starttime": start.time()}
    write_with(edfio.Edf([], annotations=notes, **about).write, path)


# Label Studio's time series as JSON: its export is read; tasks with predictions are written, to be imported.
#
# Regions count in the unit of the time column of the task; numbers are taken as seconds. Labels are written as
# predictions, because an import may only name annotators that the server knows; the person then accepts or edits them.

TYPE = "timeserieslabels"
NAMES = ("recording", "ts", "timeseries", "csv", "file", "url")  # of a task's data, that say which recording it is


def read_label_studio(path: Path) -> SpanFile:
    """Read an export (JSON or JSON-MIN), or tasks; predictions count where a task has no annotation."""
    content = json.loads(path.read_bytes())
    tasks = content if isinstance(content, list) else [content]
    if not all(isinstance(task, dict) for task in tasks):
        raise ValueError("it must be a list of tasks")
    regions = [region for k, task in enumerate(tasks) for region in _regions(task, f"{path.stem}-{k + 1}")]
    return file_of_lines(regions)


def write_label_studio(
    spans: pa.Table,
    path: Path,
    *,
    annotations: bool = False,
    files: Mapping[str | None, str] | None = None,
) -> None:
    """Write one task for each recording, with predictions by each annotator, or with annotations as an export has them.

    The labelling configuration names its TimeSeriesLabels label and its TimeSeries ts.
    files are the paths of the signals of each recording, which the task opens.
    """
    check_writable(spans, "Label Studio tasks")
    tasks = []
    for number, (recording, part) in enumerate(by_recording(spans).items()):
        named = {"recording": recording, "ts": (files or {}).get(recording, recording)}
        results = []
        for annotator, own in by_annotator(part).items():
            regions = [
                {
                    "id": f"region-{index + 1}",
                    "from_name": "label",
                    "to_name": "ts",
                    "type": TYPE,
                    "value": {"start": onset, "end": onset + duration, "instant": duration == 0, TYPE: [label]},
                }
                for index, (onset, duration, label) in enumerate(lines_of(own))
            ]
            results.append({("completed_by" if annotations else "model_version"): annotator, "result": regions})
        tasks.append({"id": number + 1, "data": named, "annotations" if annotations else "predictions": results})
    write_json(path, tasks)


def _regions(task: dict[str, Any], fallback: str) -> Iterator[tuple[Any, ...]]:
    data = task["data"] if isinstance(task.get("data"), dict) else task
    recording = next((str(data[name]) for name in NAMES if isinstance(data.get(name), str | int)), fallback)
    if not any(isinstance(task.get(name), list) for name in ("annotations", "completions", "predictions")):
        for value in task.values():  # JSON-MIN: the regions lie in the task itself
            if isinstance(value, list):
                yield from _values(value, task.get("annotator"), recording)
        return
    done = [one for one in _list(task, "annotations", "completions") if not one.get("was_cancelled")]
    for result in done or _list(task, "predictions"):
        who = result.get("completed_by", result.get("model_version"))
        values = [one.get("value") for one in result.get("result") or () if isinstance(one, dict)]
        yield from _values(values, who, recording)


def _values(values: list[Any], who: Any, recording: str) -> Iterator[tuple[Any, ...]]:
    """Regions of an annotator: a number, an address, or a person's record."""
    if isinstance(who, dict):
        who = who.get("email") or who.get("username") or who.get("id")
    for value in values:
        if not isinstance(value, dict) or TYPE not in value:
            continue
        try:
            start, end = (float(str(moment := value.get(name))) for name in ("start", "end"))
        except (TypeError, ValueError):
            raise ValueError(
                f"a region begins or ends at {str(moment)[:40]!r}, which is not a number of seconds. Export with a "
                "time column of seconds, not of dates"
            ) from None
        for label in value[TYPE] or ():
            yield start, end - start, str(label), None if who is None else str(who), recording


def _list(task: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    return [one for name in names for one in (task.get(name) or ()) if isinstance(one, dict)]


# WFDB annotations by wfdb (PhysioNet): notes at samples, each of which holds until the next.
#
# A span is written as two notes with the symbol "+", as rhythms are marked there: "(label" at its first sample, and ")"
# at its end where no other begins. Symbols of beats have no duration. The extension of the file is the annotator. wfdb
# drops notes of the symbol '"' at sample 0, where it looks for definitions, when it reads a file: events there are
# written at sample 1, and a message says so.

OPEN, CLOSE, CHANGE, NOTE = "(", ")", "+", '"'
MAX_LENGTH = 250  # characters of a note


def read_wfdb(path: Path, wfdb: Any, *, rate: float | None = None) -> SpanFile:
    """Read the signals of a header (.hea), or the annotations of a file with another extension."""
    record = str(path.with_suffix(""))
    header: Any = wfdb.rdheader(record) if path.with_suffix(".hea").is_file() else None
    if path.suffix == ".hea":
        count = int(header.sig_len or 0)

        def load(channel: int, first: int, last: int) -> np.ndarray:
            return wfdb.rdrecord(record, sampfrom=first, sampto=last, channels=[channel]).p_signal[:, 0]

        signals = []
        for channel, (name, unit) in enumerate(zip(header.sig_name or [], header.units or [], strict=True)):
            guarded = guard_load(partial(load, channel), path, "WFDB")
            signals.append(Signal(str(name), str(unit), float(header.fs), count, guarded))
        return SpanFile(signals=tuple(signals), start=header.base_datetime)
    times = 0
    for note in re.findall(rb"\xfc## ([^\0]*)", path.read_bytes()):
        # Notes for the reader itself that it does not know: wfdb 4 would look at the first of them for ever.
        is_time = re.match(rb"time resolution: \d", note) is not None
        times += is_time
        if not (is_time and times == 1) and note not in (b"annotation type definitions", b"end of definitions"):
            raise ValueError(f"its note {note[:40]!r} is none of those that describe a file")
    notes = wfdb.rdann(record, path.suffix[1:])
    rate = rate or notes.fs or (header.fs if header else None)
    if not rate:
        raise ValueError("neither the file nor a header (.hea) beside it says how many samples a second has")
    rate, length = float(rate), header.sig_len if header else None
    sample = np.asarray(notes.sample, dtype=np.int64)
    texts = [(text or "").strip().rstrip("\0") for text in notes.aux_note]
    symbols = list(notes.symbol)
    ours = any(symbol == CHANGE and text == CLOSE for symbol, text in zip(symbols, texts, strict=True))
    # '"' is a point in files that we wrote, and a stage in sleep records of PhysioNet, where no rhythm is marked.
    marks = [CHANGE] if ours or CHANGE in symbols else [NOTE]
    lasting = [k for k, text in enumerate(texts) if text and symbols[k] in marks]
    ends = np.append(sample[lasting][1:], length if length is not None else -1) if lasting else np.empty(0, dtype=int)
    messages: tuple[str, ...] = ()
    if lasting and ends[-1] < sample[lasting[-1]] and texts[lasting[-1]] != CLOSE:
        usual = int(np.median(np.diff(sample[lasting]))) if len(lasting) > 1 else 0
        ends[-1] = sample[lasting[-1]] + usual
        messages = (
            "The last note is taken to hold as long as the others usually do, because no header says where it ends.",
        )
    found = [
        (sample[k] / rate, (end - sample[k]) / rate, texts[k].removeprefix(OPEN))
        for k, end in zip(lasting, ends, strict=True)
        if texts[k] != CLOSE
    ]
    found += [(sample[k] / rate, 0.0, texts[k] or symbols[k]) for k in sorted(set(range(len(sample))) - set(lasting))]
    return file_of_lines(found, path.suffix[1:], path.stem, messages)


def write_wfdb(spans: pa.Table, path: Path, wfdb: Any, *, rate: float) -> tuple[str, ...]:
    """Write notes at samples of the given rate; onsets and ends move to the nearest sample. Says what was moved."""
    _validation.check_number("rate", rate, 1e-6, 1e9)
    check_writable(spans, "WFDB annotations", "recording", "annotator")
    if re.search(r"[^-\w]", path.stem) or not re.fullmatch("[a-zA-Z]+", path.suffix[1:]):
        raise ValueError(
            "The name of a WFDB file must be letters, digits, - and _, and its extension letters, as in n01.ann. "
            f"Got {path.name!r}."
        )
    if min(spans["onset"].to_pylist()) < 0:
        raise ValueError("WFDB counts samples from 0. Got a span that begins earlier; cut it off.")
    if count_overlaps(spans):
        raise ValueError("A WFDB note holds until the next, so spans must not overlap. Write them as csv.")
    for label in spans["label"].unique().to_pylist():
        if not label.isascii() or len(label) > MAX_LENGTH:
            raise ValueError(
                f"A WFDB note must be at most {MAX_LENGTH} ASCII characters. Got {label[:60]!r}. Rename it."
            )
    onset, duration = spans["onset"].to_numpy(), spans["duration"].to_numpy()
    first, last = (np.rint(times * rate).astype(np.int64) for times in (onset, onset + duration))
    starts = set(first[duration > 0].tolist())
    found: list[tuple[int, int, str, str]] = []
    for begin, end, line in zip(first.tolist(), last.tolist(), lines_of(spans, "duration", "label"), strict=True):
        length, label = line
        if length == 0:
            found.append((max(begin, 1), 2, NOTE, label))
            continue
        found.append((begin, 1, CHANGE, OPEN + label))
        if end not in starts:
            found.append((end, 0, CHANGE, CLOSE))
    found.sort(key=lambda note: note[:2])
    samples, _, symbols, texts = (list(column) for column in zip(*found, strict=True))

    def save(draft: Path) -> None:
        options = {"symbol": symbols, "aux_note": texts, "fs": rate, "write_dir": str(draft.parent)}
        wfdb.wrann(path.stem, path.suffix[1:], np.array(samples, dtype=np.int64), **options)

    write_with(save, path)
    moved, shifted = int(((first == 0) & (duration == 0)).sum()), int((np.abs(first / rate - onset) > 1e-9).sum())
    messages = (f"{moved} events at sample 0 written at sample 1, because readers drop them there.",) if moved else ()
    return (*messages, f"{shifted} onsets moved to the nearest sample.") if shifted else messages


# Sleep XML of the National Sleep Research Resource: scored events with start and duration in seconds. Stages are read
# where there are any; apnoeas, arousals and other events overlap them and are counted, or read with events="all".


def read_nsrr(path: Path, *, events: str = "stages") -> SpanFile:
    """Read scored events: "stages", or "all"."""
    _validation.check_choice("events", events, ("stages", "all"))
    root = parse_xml(path)
    if root.tag not in ("PSGAnnotation", "CMPStudyConfig"):
        raise ValueError(f"its first element is {root.tag[:40]!r}, not PSGAnnotation")
    found = []
    for event in root.iter("ScoredEvent"):
        concept = event.findtext("EventConcept") or event.findtext("Name") or ""
        start, duration = (float(event.findtext(name) or "nan") for name in ("Start", "Duration"))
        found.append(((event.findtext("EventType") or "").startswith(STAGES), (start, duration, _label(concept))))
    stages = [line for is_stage, line in found if is_stage]
    kept = stages if stages and events == "stages" else [line for _, line in found]
    n_left = len(found) - len(kept)
    messages = (f"{n_left} events other than sleep stages left out.",) if n_left else ()
    return file_of_lines(kept, recording=path.stem, messages=messages)


def write_nsrr(spans: pa.Table, path: Path) -> None:
    """Write scored events of the type Stages."""
    check_writable(spans, "NSRR sleep XML", "recording", "annotator")
    root = Tree.Element("PSGAnnotation")
    Tree.SubElement(root, "SoftwareVersion").text = "labeltide"
    events = Tree.SubElement(root, "ScoredEvents")
    for onset, duration, label in lines_of(spans):
        event = Tree.SubElement(events, "ScoredEvent")
        for name, text in (
            ("EventType", f"{STAGES}|{STAGES}"),
            ("EventConcept", label if _label(label) == label else f"{label}|0"),
            ("Start", repr(onset)),
            ("Duration", repr(duration)),
        ):
            Tree.SubElement(event, name).text = text
    Tree.indent(root)
    write_atomically(path, Tree.tostring(root, encoding="utf-8", xml_declaration=True))


def _label(concept: str) -> str:
    """The concept without the number behind a bar: "Stage 2 sleep|2" is Stage 2 sleep."""
    label, _, code = concept.rpartition("|")
    return label if label and code.strip().isdigit() else concept


# ELAN annotation documents (.eaf) by pympi-ling: a tier for each annotator, times in whole milliseconds.


def read_elan(path: Path, pympi: Any) -> SpanFile:
    """Read every tier that is tied to times; the annotator is the name of the tier."""
    parse_xml(path)  # refuses what pympi would follow
    document = pympi.Elan.Eaf(str(path), suppress_version_warning=True)
    found = [
        (start / 1000, (end - start) / 1000, label, None if tier == TIER else tier)
        for tier, (aligned, *_) in document.tiers.items()
        if aligned
        for start, end, label in document.get_annotation_data_for_tier(tier)
    ]
    return file_of_lines(found, recording=path.stem)


def write_elan(spans: pa.Table, path: Path, pympi: Any) -> tuple[str, ...]:
    """Write one tier for each annotator; says what was rounded."""
    check_writable(spans, "ELAN annotations", "recording")
    onset, duration = spans["onset"].to_numpy(), spans["duration"].to_numpy()
    first, last = (np.rint(1000 * times).astype(np.int64) for times in (onset, onset + duration))
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
    rounded = int((np.abs(first / 1000 - onset) > 1e-9).sum())
    return (f"{rounded} onsets rounded to whole milliseconds, as ELAN counts.",) if rounded else ()


# Praat's TextGrid by praatio: an interval tier for each annotator, and a point tier for events. A tier holds no
# overlaps: they are refused.

POINTS = " (events)"  # behind the name of a tier of points


def read_textgrid(path: Path, textgrid: Any) -> SpanFile:
    """Read all tiers; the annotator is the name of the tier."""
    document = textgrid.openTextgrid(
        str(path), includeEmptyIntervals=False, reportingMode="silence", duplicateNamesMode="rename"
    )
    found = []
    for tier in document.tiers:
        name = tier.name.removesuffix(POINTS)
        for entry in tier.entries:
            duration = entry[1] - entry[0] if len(entry) == 3 else 0.0
            found.append((entry[0], duration, entry[-1], None if name == TIER else name))
    return file_of_lines(found, recording=path.stem)


def write_textgrid(spans: pa.Table, path: Path, textgrid: Any, *, end: float | None = None) -> None:
    """Write a tier for each annotator, up to the end of the recording in seconds, or of the last span."""
    check_writable(spans, "TextGrid", "recording")
    if min(spans["onset"].to_pylist()) < 0:
        raise ValueError("A TextGrid begins at second 0. Got a span that begins earlier; cut it off.")
    if overlaps := count_overlaps(spans):
        raise ValueError(
            f"A tier of a TextGrid holds no overlaps. {overlaps} spans begin before an earlier one of the same "
            "annotator ends. Write them as csv or elan, or lay them on a grid first."
        )
    last = max(end or 0.0, *(onset + length for onset, length in lines_of(spans, "onset", "duration")))
    document = textgrid.Textgrid(0.0, last)
    for annotator, part in by_annotator(spans).items():
        entries = list(lines_of(part))
        intervals = [(onset, onset + length, label) for onset, length, label in entries if length > 0]
        points = [(onset, label) for onset, length, label in entries if length == 0]
        if intervals:  # ends that pass the next start by a rounding error are set to it
            starts = [start for start, _, _ in intervals[1:]] + [float("inf")]
            touching = [(one[0], min(one[1], start), one[2]) for one, start in zip(intervals, starts, strict=True)]
            document.addTier(textgrid.IntervalTier(annotator or TIER, touching, 0.0, last))
        if points:
            document.addTier(textgrid.PointTier((annotator or TIER) + POINTS, points, 0.0, last))
    options = {"includeBlankSpaces": True, "minimumIntervalLength": None}
    write_with(lambda draft: document.save(str(draft), "long_textgrid", **options), path)


# MNE-Python: its Raw objects, and the files that it reads. Its annotations have no annotator: write those of one at a
# time. Onsets of a Raw count from its first sample here.

RAW_FILES = (".fif", ".vhdr", ".set", ".gdf", ".cnt")
MICROVOLTS = 1e6  # MNE keeps volts
ANNOTATIONS = "-annot.fif"
TAG = struct.Struct(">iIii")  # kind, type, bytes of data, place of the next tag: 0 behind this one, -1 none


def read_mne(path: Path, mne: Any) -> SpanFile:
    """Read a file of annotations (-annot.fif), or a recording with its signals."""
    with mne.use_log_level("ERROR"):
        if path.suffix == ".fif":
            _check_tags(path)
        if path.name.endswith((ANNOTATIONS, "_annot.fif")):
            notes, name = mne.read_annotations(path), path.name[: -len(ANNOTATIONS)]
            return file_of_lines(list(zip(notes.onset, notes.duration, notes.description, strict=True)), None, name)
        return from_raw(mne.io.read_raw(path, preload=False), recording=path.stem)


def write_mne(spans: pa.Table, path: Path, mne: Any) -> tuple[str, ...]:
    """Write a file of annotations, whose name ends in -annot.fif; says by how much times were rounded."""
    if not path.name.endswith(ANNOTATIONS):
        raise ValueError(f"A file of MNE annotations must end in {ANNOTATIONS}. Got {path.name!r}.")
    check_writable(spans, "MNE annotations", "recording", "annotator")
    onset, duration, labels = (spans[name].to_pylist() for name in ("onset", "duration", "label"))
    for label in set(labels):  # FIF writes texts in Latin-1; other letters would come back as numbers
        if any(ord(letter) > 255 for letter in label) or "{COLON}" in label:
            raise ValueError(f"FIF holds letters of Latin-1 alone. Got the label {label!r}. Rename it, or write csv.")
    notes = mne.Annotations(onset, duration, labels)
    write_with(lambda draft: notes.save(draft, verbose="ERROR"), path)
    moved = float(np.abs(np.array(onset, np.float32) - np.array(onset)).max())
    return (f"FIF keeps times in single precision: onsets moved by up to {moved:.2g} s.",) if moved else ()


def from_raw(raw: Any, *, recording: str = "recording") -> SpanFile:
    """Spans and signals of a Raw object; voltages in microvolts."""
    onset, notes = raw.annotations.onset - raw.first_time, raw.annotations
    spans, messages = make_spans(onset, notes.duration, list(notes.description), None, recording)
    rate = float(raw.info["sfreq"])
    volts = {"eeg", "eog", "ecg", "emg", "seeg", "ecog"}

    def signal(number: int) -> Signal:
        unit, scale = ("uV", MICROVOLTS) if kinds[number] in volts else ("", 1.0)

        def load(first: int, last: int) -> np.ndarray:
            return np.asarray(raw.get_data(picks=[number], start=first, stop=last)[0] * scale, dtype=np.float64)

        return Signal(names[number], unit, rate, raw.n_times, load)

    names, kinds = list(raw.ch_names), raw.get_channel_types()
    start = raw.info["meas_date"]
    signals = tuple(signal(k) for k in range(len(names)) if kinds[k] != "stim")
    return SpanFile(spans, signals, start.replace(tzinfo=None) if start is not None else None, messages)


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


# Intervals of NWB by pynwb: every table of intervals with a column of labels is read.


def read_nwb(path: Path, pynwb: Any) -> SpanFile:
    """Read the tables of intervals; the annotator is in a column, or else the name of the table."""
    found: list[tuple[Any, ...]] = []
    with pynwb.NWBHDF5IO(str(path), "r") as file:
        content = file.read()
        start = content.session_start_time.replace(tzinfo=None)
        for table in content.objects.values():
            if not isinstance(table, pynwb.epoch.TimeIntervals):
                continue
            columns = {name.casefold(): table[name][:] for name in table.colnames}
            label = next((columns[name] for name in (*delimited.COLUMNS["label"], "labels") if name in columns), None)
            if label is None:
                continue
            who = columns.get("annotator", [None if table.name == TIER else table.name] * len(label))
            sure = columns.get("confidence", [None] * len(label))
            begin, end = columns["start_time"], columns["stop_time"]
            found += zip(begin, end - begin, label, who, [path.stem] * len(label), sure, strict=True)
    return file_of_lines(found, start=start)


def write_nwb(spans: pa.Table, path: Path, pynwb: Any, *, start: datetime | None = None) -> tuple[str, ...]:
    """Write one table of intervals; start is the wall clock at second 0, which NWB must have."""
    check_writable(spans, "NWB intervals", "recording")
    table = pynwb.epoch.TimeIntervals(name=TIER, description="labelled spans")
    for name in ("label", "annotator", "confidence"):
        table.add_column(name, f"the {name}; empty or NaN where it is not known")
    for onset, duration, label, who, _, sure in lines_of(spans, *spans.column_names):
        cells = {"label": label, "annotator": who or "", "confidence": float("nan") if sure is None else sure}
        table.add_interval(onset, onset + duration, **cells)
    began = (start or datetime(1970, 1, 1)).replace(tzinfo=UTC)
    content = pynwb.NWBFile(session_description="labels", identifier=path.stem, session_start_time=began)
    content.add_time_intervals(table)

    def save(draft: Path) -> None:
        with pynwb.NWBHDF5IO(str(draft), "w") as file:
            file.write(content)

    write_with(save, path)
    return () if start else ("NWB needs a time at which the recording began. 1970-01-01 is written.",)


# Events of SLEAP by sleap-io: they last from one frame of a video up to and with another.


def read_sleap(path: Path, sleap: Any, *, rate: float | None = None) -> SpanFile:
    """Read events; recordings are videos and subjects, and rate is that of frames where the video does not say it."""
    found = []
    for event in sleap.load_file(str(path), open_videos=False).events:
        frames = rate or event.video.fps
        if not frames:
            raise ValueError("it does not say how many frames a second has. Give it as rate=")
        recording = " ".join([Path(str(event.video.filename)).stem, *([event.subject.name] if event.subject else [])])
        who = event.source or ("predicted" if event.is_predicted else None)
        first, last = event.start_frame / frames, (event.end_frame + 1) / frames
        found.append((first, last - first, event.type.name, who, recording, getattr(event, "score", None)))
    return file_of_lines(found)


ADAPTERS = {
    "csv": SpanFormat("spans", (".csv", ".tsv", ".txt"), delimited.read_file, delimited.write),
    "raven": SpanFormat("a Raven selection table", (), delimited.read_file, delimited.write_raven),
    "audacity": SpanFormat("Audacity labels", (), delimited.read_file, delimited.write_audacity),
    "boris": SpanFormat("a BORIS project", (".boris",), delimited.read_project, delimited.write_project),
    "edf": SpanFormat("EDF", (".edf", ".bdf", ".rec"), read_edf, write_edf, ("edfio", "edf", "EDF"), None),
    "labelstudio": SpanFormat("a Label Studio export", (".json",), read_label_studio, write_label_studio),
    "wfdb": SpanFormat(
        "WFDB",
        (".hea", ".atr", ".st", ".ann", ".ecg", ".qrs", ".apn"),
        read_wfdb,
        write_wfdb,
        ("wfdb", "wfdb", "WFDB files"),
    ),
    "nsrr": SpanFormat("NSRR sleep XML", (".xml",), read_nsrr, write_nsrr),
    "elan": SpanFormat("ELAN", (".eaf",), read_elan, write_elan, ("pympi", "elan", "ELAN files")),
    "textgrid": SpanFormat(
        "TextGrid", (".textgrid",), read_textgrid, write_textgrid, ("praatio.textgrid", "textgrid", "TextGrids")
    ),
    "mne": SpanFormat(
        "a file of MNE-Python", RAW_FILES, read_mne, write_mne, ("mne", "mne", "files of MNE-Python"), None
    ),
    "nwb": SpanFormat("NWB", (".nwb",), read_nwb, write_nwb, ("pynwb", "nwb", "NWB files"), None),
    "sleap": SpanFormat("SLEAP", (".slp",), read_sleap, None, ("sleap_io", "sleap", "SLEAP files"), None),
}
SIGNALS = (".edf", ".bdf", ".rec", ".hea", *RAW_FILES)  # files that may hold signals
