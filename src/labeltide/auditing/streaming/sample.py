"""The windows that were drawn as the arrays of an audit, and what they say of the whole table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from labeltide._validation import UnanswerableError
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.rare_classes import leave_out
from labeltide.auditing.streaming.chunk_reader import (
    ChunkSteps,
    annotator_places,
    is_dated,
    step_labels,
    to_audit_input,
)
from labeltide.auditing.streaming.draw import DrawnWindow
from labeltide.auditing.streaming.layout import Layout
from labeltide.auditing.streaming.row_times import time_numbers
from labeltide.tables.clock_columns import read_clocks
from labeltide.tables.column_counts import TableCounts
from labeltide.tables.features import Features, encode_features
from labeltide.tables.intake import whole
from labeltide.tables.labels import say_trusted
from labeltide.tables.moments import Moments, read_moments, say_gaps, written_length
from labeltide.tables.steps import Steps
from labeltide.tables.windows import Windows


def read_sample(layout: Layout, drawn: list[DrawnWindow], counts: TableCounts) -> tuple[Layout, AuditInput, Features]:
    """Fit the encoding of features, find the clocks and the usual step, and cut the windows.

    `counts` are those of the columns of the whole table.

    Returns
    -------
    the layout with these, the windows in order with sentences about what was read, and the features
    """
    table = pa.concat_tables([each.table for each in drawn]).unify_dictionaries().combine_chunks()
    read, step_of_window = _steps(layout, table, drawn)
    windows = _windows(drawn, step_of_window)
    fitted, features, said = _fit(layout, read, windows, counts)
    sample = to_audit_input(fitted, read, windows)
    names = sorted(set(sample.sequence_names))
    place = {name: number for number, name in enumerate(names)}
    sample = replace(
        sample,
        groups=np.array([place[str(name)] for name in read.steps.ids]),
        sequence_names=tuple(names),
        ids=sample.ids.cast(pa.string()),
        times=sample.times.cast(pa.string()),
        all_steps=int(layout.plan.counts.sum()),
        said=said,
    )
    return fitted, leave_out(sample, layout.rare), features


def _steps(layout: Layout, table: pa.Table, drawn: list[DrawnWindow]) -> tuple[ChunkSteps, np.ndarray]:
    """Every window as a sequence of its own, whose first step holds the last values before it."""
    sizes = np.array([len(each.table) for each in drawn])
    begins = np.cumsum(sizes) - sizes
    new_step = np.ones(len(table), dtype=bool)
    times = np.arange(len(table))
    if layout.columns.time is not None:
        times = time_numbers(layout.columns.time, table[layout.columns.time])
        new_step[1:] = times[1:] != times[:-1]
    new_step[begins] = True
    new_step[begins + 1] = True
    rows = np.flatnonzero(new_step)
    sequence = np.searchsorted(begins, rows, side="right") - 1
    names = layout.survey.names.take(pa.array([each.sequence for each in drawn])).to_pylist()
    step_times = times[rows].view("datetime64[us]") if is_dated(layout) else times[rows]
    people = annotator_places(layout, table)
    steps = Steps(rows, sequence, names, step_times, np.cumsum(new_step) - 1, people, None)
    moments = read_moments(layout.columns.time, whole(table[layout.columns.time])) if layout.columns.time else None
    totals = layout.plan.counts[[each.sequence for each in drawn]]
    offset = np.array([each.start - 1 for each in drawn])
    return ChunkSteps(table, steps, moments, offset, totals), np.searchsorted(sequence, np.arange(len(drawn)))


def _windows(drawn: list[DrawnWindow], first_steps: np.ndarray) -> Windows:
    lengths = np.array([each.length for each in drawn])
    warm_up = np.array([each.warm_up for each in drawn])
    return Windows(first_steps + 1, lengths, warm_up, np.arange(len(drawn)), int(lengths.max()))


def _fit(
    layout: Layout, read: ChunkSteps, windows: Windows, counts: TableCounts
) -> tuple[Layout, Features, tuple[str, ...]]:
    """The layout with encoders, clocks and the usual step, from the steps that belong to the windows."""
    own = np.zeros(len(read.steps.rows), dtype=bool)
    own[windows.index[windows.belongs]] = True
    rows = np.flatnonzero(own[read.steps.step_of_row])
    table = read.table.take(pa.array(rows))
    number = np.cumsum(own) - 1
    step_of_row = number[read.steps.step_of_row[rows]]
    first = np.searchsorted(step_of_row, np.arange(own.sum()))
    steps = replace(
        read.steps,
        rows=first,
        sequence=read.steps.sequence[own],
        times=read.steps.times[own],
        step_of_row=step_of_row,
        annotator_of_row=read.steps.annotator_of_row[rows],
    )
    labels = step_labels(layout, ChunkSteps(table, steps, None, 0, read.totals))
    columns = layout.columns
    tidy = layout.stream.tidy
    of_whole = counts.of_whole(tidy.as_numbers, tidy.in_text, len(windows.starts) < layout.size.windows)
    features = encode_features(table, columns.features, steps, labels, named=columns.features_named, of_whole=of_whole)
    moments = _take_moments(read.moments, rows)
    _, clocks, clocks_said = read_clocks(table, columns.clock, columns.time, moments, steps)
    trusted_said = [say_trusted(layout.survey.trusted, columns.trusted)] if columns.trusted else []
    usual, gaps_said = _find_gaps(layout, read.steps, windows)
    said = [*(moments.said if moments else ()), *features.said, *clocks_said, *trusted_said]
    said += [*_without_features(layout, features), *gaps_said]
    return replace(layout, encoders=features.encoders, clocks=clocks, usual=usual), features, tuple(said)


def _find_gaps(layout: Layout, steps: Steps, windows: Windows) -> tuple[float | None, list[str]]:
    """The usual step and a sentence about gaps: of all rows, or where these were not counted of the windows."""
    survey = layout.survey
    if layout.columns.time is None:
        return None, []
    if survey.n_gaps is not None and survey.usual is not None:
        return survey.usual, [say_gaps(survey.n_gaps, survey.usual, is_dated(layout))] if survey.n_gaps else []
    usual = _usual_step(layout, steps, windows)
    if usual is None:
        return None, []
    return usual, [
        f"Times between steps differ too much for gaps to be counted in parts. The usual step, "
        f"{written_length(usual, is_dated(layout))}, comes from the windows learned from: the longer the gap, the less "
        "the labels before it say of those after."
    ]


def _without_features(layout: Layout, features: Features) -> list[str]:
    if features.columns:
        return []
    if len(layout.annotator_names or ()) < 2:
        raise UnanswerableError(
            "With one annotator an audit needs features: nothing else can tell a wrong label from a right one. No "
            "column is left that can be one. Name some with the option features (--features COLUMN,...)."
        )
    return ["No column is left for features, so the audit rests on the annotators and the position in the sequence."]


def _take_moments(moments: Moments | None, rows: np.ndarray) -> Moments | None:
    if moments is None:
        return None
    local = None if moments.local is None else moments.local[rows]
    return replace(moments, order=moments.order.take(pa.array(rows)), local=local, texts=pa.nulls(0))


def _usual_step(layout: Layout, steps: Steps, windows: Windows) -> float | None:
    """The median time from one step to the next, in seconds or the unit of the column; None where there is none."""
    moments = steps.times.astype(np.int64) / 1e6 if is_dated(layout) else steps.times
    index, places = windows.index, np.arange(int(windows.lengths.max()))
    follows = windows.belongs & (places > 0)
    after = index[follows]
    with np.errstate(invalid="ignore", over="ignore"):
        spent = moments[after].astype(np.float64) - moments[after - 1].astype(np.float64)
    usual = float(np.median(spent)) if len(spent) else 0.0
    return usual if 0 < usual < np.inf else None
