"""From the rows of a chunk to the arrays of an audit, by what was found out of the whole table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.streaming.chunks import Chunk
from labeltide.auditing.streaming.layout import Layout
from labeltide.auditing.streaming.row_times import time_numbers
from labeltide.tables.clock_columns import read_known_clocks
from labeltide.tables.coded import encode_column, find_places
from labeltide.tables.features import apply_encoders
from labeltide.tables.intake import load_table, open_table
from labeltide.tables.moments import Moments
from labeltide.tables.steps import Steps
from labeltide.tables.table_rows import UNNAMED
from labeltide.tables.windows import Windows
from labeltide.tables.wording import quoted, unique_texts

MOST_GAP = np.iinfo(np.int32).max


@dataclass(frozen=True)
class ChunkSteps:
    """The rows of a chunk as steps."""

    table: pa.Table
    steps: Steps
    moments: Moments | None
    offset: np.ndarray | int  # the place in its sequence of the first step of each
    totals: np.ndarray  # (sequences of the chunk,), steps of each in the whole table

    @property
    def positions(self) -> np.ndarray:
        """From 0 at the start of each sequence to 1 at its end: shape (steps,)."""
        offset = np.broadcast_to(self.offset, self.totals.shape)[self.steps.sequence]
        place = np.arange(len(self.steps.sequence)) - self.steps.first + offset
        return place / np.maximum(self.totals - 1, 1)[self.steps.sequence]


def read_steps(layout: Layout, chunk: Chunk) -> ChunkSteps:
    """Read a chunk, and find the steps of its rows, which are sorted."""
    table = plain_table(layout.stream.read(chunk.first_row, chunk.last_row))
    survey, columns = layout.survey, layout.columns
    totals = survey.counts[chunk.first_sequence : chunk.last_sequence]
    starts = survey.first_rows[chunk.first_sequence : chunk.last_sequence] - chunk.first_row
    new_step = np.ones(len(table), dtype=bool)
    times = np.arange(len(table))
    if columns.time is not None:
        times = time_numbers(columns.time, table[columns.time])
        new_step[1:] = times[1:] != times[:-1]
    new_step[np.maximum(starts, 0)] = True
    rows = np.flatnonzero(new_step)
    step_of_row = np.cumsum(new_step) - 1
    sequence = np.searchsorted(starts, rows, side="right") - 1
    if not chunk.last_window and not np.array_equal(np.bincount(sequence), totals):
        raise ValueError("The files of the table changed while they were read. Start the audit again.")
    people = annotator_places(layout, table)
    names = survey.names.slice(chunk.first_sequence, len(totals)).to_pylist()
    step_times = times[rows].view("datetime64[us]") if is_dated(layout) else times[rows]
    steps = Steps(rows, np.maximum(sequence, 0), names, step_times, step_of_row, people, None)
    return ChunkSteps(table, steps, _moments(layout, table), chunk.first_step, totals)


def plain_table(table: pa.Table) -> pa.Table:
    """The table with columns of odd types as texts or numbers."""
    odd = [field.name for field in table.schema if not _is_simple(field.type)]
    if not odd:
        return table
    simple = load_table(open_table(table.select(odd)))
    for name in odd:
        table = table.set_column(table.column_names.index(name), name, simple[name])
    return table


def _is_simple(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_dictionary(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_boolean(kind)
        or types.is_temporal(kind)
        or types.is_null(kind)
    )


def is_dated(layout: Layout) -> bool:
    """Whether the times are moments."""
    return layout.survey.earliest is not None


def annotator_places(layout: Layout, table: pa.Table) -> np.ndarray:
    """The annotator of every row: a place among their names, -1 where a row names none and holds no label."""
    name, known = layout.columns.annotator, layout.survey.annotators
    if name is None or known is None:
        return np.zeros(len(table), dtype=np.int64)
    column = table[name]
    if layout.survey.unnamed_hold_labels:
        column = pc.fill_null(column.cast(pa.string()), UNNAMED)
    return find_places(column, known).astype(np.int64)


def _moments(layout: Layout, table: pa.Table) -> Moments | None:
    name = layout.columns.time
    if name is None:
        return None
    column = table[name]
    nothing = pa.nulls(0)
    if not is_dated(layout):
        return Moments(nothing, None, False, nothing)
    zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    local = time_numbers(name, pc.local_timestamp(column) if zoned else column)
    return Moments(nothing, local, pa.types.is_timestamp(column.type), nothing)


def time_texts(layout: Layout, table: pa.Table) -> pa.DictionaryArray:
    """The texts of the times of all rows, each distinct one written once."""
    name = layout.columns.time
    if name is None:
        first = np.arange(len(table))
        return pa.array(first).cast(pa.string()).dictionary_encode()
    column = table[name].combine_chunks()
    kind = column.type
    encoded = column.dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    values = encoded.dictionary
    if pa.types.is_timestamp(kind):
        values = pc.local_timestamp(values) if kind.tz is not None else values
        values = values.cast(pa.timestamp(layout.survey.unit), safe=False)
    elif pa.types.is_duration(kind):
        values = pc.divide(values.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6)
    texts = values.cast(pa.string()).dictionary_encode()  # two moments may read the same when clocks go back
    return pa.DictionaryArray.from_arrays(texts.indices.take(encoded.indices), texts.dictionary)


def read_chunk(layout: Layout, chunk: Chunk) -> tuple[AuditInput, np.ndarray]:
    """The arrays of a chunk with labels of all classes, and the number of each of its rows in the user's table."""
    read = read_steps(layout, chunk)
    windows = layout.plan.windows(chunk)
    shown = to_audit_input(layout, read, windows)
    if layout.row_column is None:
        numbers = np.arange(chunk.first_row, chunk.last_row)
    else:
        numbers = read.table[layout.row_column].to_numpy()
    return shown, numbers


def to_audit_input(layout: Layout, read: ChunkSteps, windows: Windows) -> AuditInput:
    """Cut the steps of a chunk into windows; steps that belong to none, and their rows, are left out."""
    index, belongs = windows.index, windows.belongs
    real = index >= 0
    filled = windows.filled_index()
    labels = step_labels(layout, read)
    features = chunk_features(layout, read)[filled]
    features[~real] = 0
    cut = np.where(real[..., None], labels[filled], np.int8(-1))
    trusted = step_trusted(layout, read)
    cut_trusted = None if trusted is None else np.where(real, trusted[filled], np.int8(-1))
    gaps = step_gaps(layout, read.steps)
    place = np.full(len(labels), -1, dtype=np.int64)
    place[index[belongs]] = np.flatnonzero(belongs)
    clock = read_known_clocks(layout.columns, layout.clocks, read, layout.survey.earliest)
    lines = _lines(layout, read, place)
    kept = place >= 0
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    lines["line_step"] = number[lines["line_step"]]
    return AuditInput(
        features=features,
        labels=cut,
        fit_labels=np.where(belongs[..., None], cut, np.int8(-1)),
        lengths=windows.lengths,
        clock=clock[filled],
        trusted=cut_trusted,
        fit_trusted=None if cut_trusted is None else np.where(belongs, cut_trusted, np.int8(-1)),
        gaps=None if gaps is None else np.where(real, gaps[filled], 1),
        groups=windows.groups,
        index=np.where(real, number[filled], -1),
        place=place[kept],
        **lines,
        ids=pa.DictionaryArray.from_arrays(
            pa.array(read.steps.sequence[read.steps.step_of_row].astype(np.int32)), pa.array(read.steps.ids)
        ),
        times=time_texts(layout, read.table),
        sequence_names=tuple(map(str, read.steps.ids)),
        class_names=layout.survey.class_names,
        annotator_names=layout.annotator_names,
        feature_names=tuple(unique_texts(name for each in layout.encoders for name in each.names))
        or ("position in the sequence",),
        clocks=layout.clocks,
        columns=layout.columns.describe(),
        window=layout.plan.window,
        encoders=layout.encoders,
        said=(),
    )


def chunk_features(layout: Layout, read: ChunkSteps) -> np.ndarray:
    """Features of every step: float32 of shape (steps, features)."""
    if not layout.encoders:
        return (read.positions * 2 - 1).astype(np.float32)[:, None]
    columns = apply_encoders(read.table, layout.encoders, read.steps).columns
    return np.stack(columns, axis=1)


def step_labels(layout: Layout, read: ChunkSteps) -> np.ndarray:
    """Recorded labels of every step: int8 of shape (steps, annotators)."""
    survey, names = layout.survey, layout.columns.label
    if not names:
        return np.full((len(read.steps.rows), len(layout.annotator_names or " ")), -1, dtype=np.int8)
    subject = f"The label column {quoted(names)}"
    codes = [encode_column(read.table[name], survey.classes, subject) for name in names]
    if len(codes) > 1:
        return np.stack(codes, axis=1)[read.steps.rows]
    return read.steps.spread(codes[0], read.steps.annotator_of_row, len(layout.annotator_names or " "))


def step_trusted(layout: Layout, read: ChunkSteps) -> np.ndarray | None:
    """Labels known to be right: int8 of shape (steps,), -1 elsewhere."""
    name = layout.columns.trusted
    if name is None:
        return None
    codes = encode_column(read.table[name], layout.survey.classes, f"The trusted column {quoted([name])}")
    merged = np.full(len(read.steps.rows), -1, dtype=np.int8)
    known = np.flatnonzero(codes >= 0)
    merged[read.steps.step_of_row[known]] = codes[known]
    return merged


def has_gaps(layout: Layout) -> bool:
    """Whether times between steps count."""
    return bool(layout.usual) and layout.survey.n_gaps != 0


def step_gaps(layout: Layout, steps: Steps) -> np.ndarray | None:
    """How many usual steps of time lie before each step: int64 of shape (steps,), or None where no step is missing."""
    if layout.usual is None or not has_gaps(layout):
        return None
    moments = steps.times
    if is_dated(layout):
        moments = moments.astype("datetime64[us]").astype(np.int64) / 1e6
    gaps = np.ones(len(moments), dtype=np.int64)
    follows = steps.sequence[1:] == steps.sequence[:-1]
    spent = np.diff(moments.astype(np.float64))
    gaps[1:] = np.where(follows, np.clip(np.rint(spent / layout.usual), 1, MOST_GAP), 1)
    return gaps


def _lines(layout: Layout, read: ChunkSteps, place: np.ndarray) -> dict[str, Any]:
    """Row, step and annotator of every line of the steps that belong to a window of the chunk."""
    n_columns = max(len(layout.columns.label), 1)
    rows = np.flatnonzero(place[read.steps.step_of_row] >= 0)
    rows = np.repeat(rows, n_columns)
    annotator = read.steps.annotator_of_row[rows]
    if n_columns > 1:
        annotator = np.tile(np.arange(n_columns), len(rows) // n_columns)
    return {"line_row": rows, "line_step": read.steps.step_of_row[rows], "line_annotator": annotator}
