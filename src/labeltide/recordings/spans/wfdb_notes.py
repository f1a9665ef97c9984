"""WFDB annotations by wfdb (PhysioNet): notes at samples, each of which holds until the next.

A span is written as two notes with the symbol "+", as rhythms are marked there: "(label" at its first sample, and ")"
at its end where no other begins. Symbols of beats have no duration. The extension of the file is the annotator. wfdb
drops notes of the symbol '"' at sample 0, where it looks for definitions, when it reads a file: events there are
written at sample 1, and that is messages.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide import _validation
from labeltide._files import import_extra
from labeltide.recordings.spans.table import (
    Signal,
    SpanFile,
    check_single,
    check_spans_file,
    check_writable,
    count_overlaps,
    guard_load,
    library_errors,
    no_spans,
    spans_of_lines,
    write_with,
)

KIND = "WFDB annotations"
EXTENSIONS = (".hea", ".atr", ".st", ".ann", ".ecg", ".qrs", ".apn")
OPEN, CLOSE, CHANGE, NOTE = "(", ")", "+", '"'
MAX_LENGTH = 250  # characters of a note


def read(path: str | Path, *, rate: float | None = None) -> SpanFile:
    """Read the signals of a header (.hea), or the annotations of a file with another extension."""
    wfdb = import_extra("wfdb", "wfdb", "Reading WFDB files")
    path = check_spans_file(Path(path))
    record = str(path.with_suffix(""))
    has_header = path.with_suffix(".hea").is_file()
    with library_errors(path, "WFDB") as messages:
        header: Any = wfdb.rdheader(record) if has_header else None
        if path.suffix == ".hea":
            return SpanFile(no_spans(), _signals(wfdb, record, header), header.base_datetime, tuple(messages))
        _check_definitions(path.read_bytes())
        notes = wfdb.rdann(record, path.suffix[1:])
        rate = rate or notes.fs or (header.fs if header else None)
        if not rate:
            raise ValueError("neither the file nor a header (.hea) beside it says how many samples a second has")
        spans, more = _spans(notes, float(rate), header.sig_len if header else None, path)
    return SpanFile(spans, messages=(*messages, *more))


def _check_definitions(content: bytes) -> None:
    """Refuse notes for the reader itself that it does not know: wfdb 4 would look at the first of them for ever."""
    times = 0
    for note in re.findall(rb"\xfc## ([^\0]*)", content):
        is_time = re.match(rb"time resolution: \d", note) is not None
        times += is_time
        if not (is_time and times == 1) and note not in (b"annotation type definitions", b"end of definitions"):
            raise ValueError(f"its note {note[:40]!r} is none of those that describe a file")


def write(spans: pa.Table, path: str | Path, *, rate: float) -> tuple[str, ...]:
    """Write notes at samples of the given rate; onsets and ends move to the nearest sample. Says what was moved."""
    wfdb = import_extra("wfdb", "wfdb", "Writing WFDB files")
    path = Path(path)
    _validation.check_number("rate", rate, 1e-6, 1e9)
    _check_notes(check_single(check_writable(spans, KIND), KIND), path)
    samples, symbols, texts, messages = _notes(spans, rate)

    def save(draft: Path) -> None:
        at = np.array(samples, dtype=np.int64)
        options = {"symbol": symbols, "aux_note": texts, "fs": rate, "write_dir": str(draft.parent)}
        wfdb.wrann(path.stem, path.suffix[1:], at, **options)

    write_with(save, path)
    return messages


def _notes(spans: pa.Table, rate: float) -> tuple[list[int], list[str], list[str], tuple[str, ...]]:
    onset, duration = spans["onset"].to_numpy(), spans["duration"].to_numpy()
    first, last = (np.rint(times * rate).astype(np.int64) for times in (onset, onset + duration))
    starts = set(first[duration > 0].tolist())
    found: list[tuple[int, int, str, str]] = []
    moved = 0
    for begin, end, length, label in zip(
        first.tolist(), last.tolist(), duration, spans["label"].to_pylist(), strict=True
    ):
        if length == 0:
            moved += begin == 0
            found.append((max(begin, 1), 2, NOTE, label))
            continue
        found.append((begin, 1, CHANGE, OPEN + label))
        if end not in starts:
            found.append((end, 0, CHANGE, CLOSE))
    found.sort(key=lambda note: note[:2])
    messages: tuple[str, ...] = ()
    if moved:
        messages = (f"{moved} events at sample 0 written at sample 1, because readers drop them there.",)
    shifted = int((np.abs(first / rate - onset) > 1e-9).sum())
    messages += (f"{shifted} onsets moved to the nearest sample.",) if shifted else ()
    samples, _, symbols, texts = (list(column) for column in zip(*found, strict=True))
    return samples, symbols, texts, messages


def _check_notes(spans: pa.Table, path: Path) -> None:
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


def _spans(notes: Any, rate: float, length: int | None, path: Path) -> tuple[pa.Table, tuple[str, ...]]:
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
    spans, left_out = spans_of_lines(found, path.suffix[1:], path.stem)
    return spans, (*messages, *left_out)


def _signals(wfdb: Any, record: str, header: Any) -> tuple[Signal, ...]:
    rate, count = float(header.fs), int(header.sig_len or 0)

    def load(channel: int, first: int, last: int) -> np.ndarray:
        return wfdb.rdrecord(record, sampfrom=first, sampto=last, channels=[channel]).p_signal[:, 0]

    names, units = header.sig_name or [], header.units or []
    return tuple(
        Signal(str(name), str(unit), rate, count, guard_load(partial(load, channel), Path(record + ".hea"), "WFDB"))
        for channel, (name, unit) in enumerate(zip(names, units, strict=True))
    )
