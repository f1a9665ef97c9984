"""The span table: one line for every labelled interval, as an Arrow table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide._files import library_errors, write_atomically

SCHEMA = pa.schema(
    [
        ("onset", pa.float64()),  # seconds from the start of the recording
        ("duration", pa.float64()),  # seconds, 0 for an event
        ("label", pa.string()),
        ("annotator", pa.string()),  # null where the file names none
        ("recording", pa.string()),
        ("confidence", pa.float64()),  # of the annotator in the label, from 0 to 1; null where the file says none
    ]
)
Names = str | None | Sequence[str | None]


@dataclass(frozen=True)
class Signal:
    """One channel, sampled evenly.

    Attributes
    ----------
    rate : samples in a second
    count : how many samples there are
    load : gives the samples from one number up to another as float64, NaN where none was recorded
    """

    name: str
    unit: str
    rate: float
    count: int
    load: Callable[[int, int], np.ndarray] = field(repr=False)


@dataclass(frozen=True)
class SpanFile:
    """What a file holds: spans, and signals where the format has them.

    Attributes
    ----------
    spans : Arrow table with the columns of `SCHEMA`
    start : the wall clock at second 0, where the file says it
    messages : sentences about what was left out or changed
    observations : of BORIS, the observation of each recording; a recording is an observation and a subject
    """

    spans: pa.Table = field(default_factory=SCHEMA.empty_table)
    signals: tuple[Signal, ...] = ()
    start: datetime | None = None
    messages: tuple[str, ...] = ()
    observations: dict[str, str] = field(default_factory=dict)


def make_spans(
    onset: Any,
    duration: Any,
    label: Sequence[Any],
    annotator: Names = None,
    recording: Names = None,
    confidence: Any = None,
) -> tuple[pa.Table, tuple[str, ...]]:
    """A span table, ordered by recording, annotator and onset, and sentences about spans that were left out.

    Labels lose the blanks around them; annotators and recordings keep theirs, so that "p0" and "p0 " stay two. Spans
    without a label, and spans whose onset or duration is not a finite number or whose duration is negative, are left
    out and counted.
    """
    onsets, durations = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (onset, duration))
    labels = [None if value is None or not str(value).strip() else str(value).strip() for value in label]
    both = [[who] * len(labels) if who is None or isinstance(who, str) else who for who in (annotator, recording)]
    names = (pa.array([name if name and name.strip() else None for name in each], pa.string()) for each in both)
    sure = pa.array([None] * len(labels) if confidence is None else confidence, pa.float64(), from_pandas=True)
    table = pa.table([onsets, durations, pa.array(labels, pa.string()), *names, sure], schema=SCHEMA)
    placed = np.isfinite(onsets) & np.isfinite(durations) & (durations >= 0)
    named = np.array([text is not None for text in labels], dtype=bool)
    order = [(name, "ascending") for name in ("recording", "annotator", "onset")]
    kept = table.filter(pa.array(placed & named)).sort_by(order)
    left_out = {
        "without a valid onset and duration in seconds": int((~placed).sum()),
        "without a label": int((placed & ~named).sum()),
    }
    return kept, tuple(f"{n} span{'s' if n > 1 else ''} {which} left out." for which, n in left_out.items() if n)


def file_of_lines(
    lines: Sequence[tuple[Any, ...]],
    annotator: Names = None,
    recording: Names = None,
    messages: tuple[str, ...] = (),
    **about: Any,
) -> SpanFile:
    """`make_spans` of lines of onset, duration and label, perhaps with annotator, recording and confidence."""
    onset, duration, label, *names = zip(*lines, strict=True) if lines else ((), (), ())
    spans, left_out = make_spans(onset, duration, label, *names, *(annotator, recording)[len(names) :])
    return SpanFile(spans, messages=(*left_out, *messages), **about)


def lines_of(spans: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns of spans, line by line: onset, duration and label unless others are named."""
    return zip(*(spans[name].to_pylist() for name in names or ("onset", "duration", "label")), strict=True)


def write_with(save: Callable[[Path], None], path: str | Path) -> None:
    """Write a file, whole or not at all, by a library that writes to a path of the same name."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / Path(path).name
        save(draft)
        write_atomically(Path(path), draft.read_bytes())


def by_recording(spans: pa.Table) -> dict[str | None, pa.Table]:
    """The spans of each recording, in the order of the table."""
    return _split(spans, "recording")


def by_annotator(spans: pa.Table) -> dict[str | None, pa.Table]:
    """The spans of each annotator, in the order of the table."""
    return _split(spans, "annotator")


def count_overlaps(spans: pa.Table) -> int:
    """How many spans begin before an earlier one of the same annotator and recording has ended."""
    count = 0
    for recording in by_recording(spans).values():
        for part in by_annotator(recording).values():
            onset = part["onset"].to_numpy()
            end = np.maximum.accumulate(onset + part["duration"].to_numpy())
            count += int((onset[1:] < end[:-1] - 1e-9).sum())
    return count


def _split(spans: pa.Table, name: str) -> dict[str | None, pa.Table]:
    column = spans[name]
    return {
        value: spans.filter(pc.is_null(column) if value is None else pc.equal(column, value))
        for value in pc.unique(column).to_pylist()
    }


# Checks that the file formats share: files that cannot be read, texts that cannot be written, safe XML.

MAX_DEPTH = 100  # elements of XML within each other


def guard_load(load: Callable[[int, int], np.ndarray], path: Path, kind: str) -> Callable[[int, int], np.ndarray]:
    """A function that loads samples later; what its library raises then is a sentence, too."""

    def load_samples(first: int, last: int) -> np.ndarray:
        with library_errors(path, kind):
            return np.asarray(load(first, last), dtype=np.float64)

    return load_samples


def parse_xml(path: Path) -> Element:
    """The root of an XML file; document type declarations, and with them entities, are refused."""
    builder, parser, depth = TreeBuilder(), expat.ParserCreate(), 0

    def refuse(*_: Any) -> None:
        raise ValueError("document type declarations and entities are not allowed")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"elements lie more than {MAX_DEPTH} deep within each other")
        builder.start(name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.Parse(path.read_bytes(), True)
    return builder.close()


def check_writable(spans: pa.Table, kind: str, *single: str) -> None:
    """Refuse spans that a file cannot hold: none, texts with control characters, several values of `single` columns."""
    if not spans.num_rows:
        raise ValueError(f"A file of {kind} must hold at least one span. Got none.")
    for name in ("label", "annotator", "recording"):
        for text in spans[name].unique().to_pylist():
            if text is not None and not text.isprintable() and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text):
                raise ValueError(
                    f"No {name} in a file of {kind} may hold line breaks, tabs or other control characters. "
                    f"Got {text!r}. Rename it."
                )
    for name in single:
        count = len(spans[name].unique())
        if count > 1:
            raise ValueError(f"A file of {kind} holds the spans of one {name}. Got {count}. Write one file for each.")
