"""The span table: one line for every labelled interval, as an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema(
    [
        ("onset", pa.float64()),  # seconds from the start of the recording
        ("duration", pa.float64()),  # seconds, 0 for an event
        ("label", pa.string()),
        ("annotator", pa.string()),  # null where the file names none
        ("recording", pa.string()),
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
    said : sentences about what was left out or changed
    observations : of BORIS, the observation of each recording; a recording is an observation and a subject
    """

    spans: pa.Table
    signals: tuple[Signal, ...] = ()
    start: datetime | None = None
    said: tuple[str, ...] = ()
    observations: dict[str, str] = field(default_factory=dict)


def make_spans(
    onset: Any, duration: Any, label: Sequence[Any], annotator: Names = None, recording: Names = None
) -> tuple[pa.Table, tuple[str, ...]]:
    """A span table, ordered by recording, annotator and onset, and sentences about spans that were left out.

    Labels lose the blanks around them. Spans without a label, and spans whose onset or duration is no finite number or
    whose duration is negative, are left out and counted.
    """
    onsets, durations = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (onset, duration))
    labels = [None if value is None or not str(value).strip() else str(value).strip() for value in label]
    table = pa.table(
        [onsets, durations, pa.array(labels, pa.string()), *(_names(n, len(labels)) for n in (annotator, recording))],
        schema=SCHEMA,
    )
    placed = np.isfinite(onsets) & np.isfinite(durations) & (durations >= 0)
    named = np.array([text is not None for text in labels], dtype=bool)
    order = [(name, "ascending") for name in ("recording", "annotator", "onset")]
    kept = table.filter(pa.array(placed & named)).sort_by(order)
    return kept, _say_left_out(int((~placed).sum()), int((placed & ~named).sum()))


def no_spans() -> pa.Table:
    """A span table without lines."""
    return SCHEMA.empty_table()


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
    parts = {}
    for value in pc.unique(column).to_pylist():
        chosen = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
        parts[value] = spans.filter(chosen)
    return parts


def _names(names: Names, count: int) -> pa.Array:
    every = [names] * count if names is None or isinstance(names, str) else list(names)
    return pa.array([None if name is None or not name.strip() else name.strip() for name in every], pa.string())


def _say_left_out(misplaced: int, unnamed: int) -> tuple[str, ...]:
    said = []
    if misplaced:
        said.append(
            f"{misplaced} span{'s' if misplaced > 1 else ''} without a sound onset and duration in seconds left out."
        )
    if unnamed:
        said.append(f"{unnamed} span{'s' if unnamed > 1 else ''} without a label left out.")
    return tuple(said)
