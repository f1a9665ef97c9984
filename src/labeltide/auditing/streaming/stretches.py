"""The sequences with the most issues, step by step, for the page of a large audit to draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from labeltide.auditing.page.results import COLUMNS
from labeltide.auditing.streaming.chunk_reader import read_chunk
from labeltide.auditing.streaming.chunks import Chunk
from labeltide.auditing.streaming.flags import Flags
from labeltide.auditing.streaming.judging import JudgeJob, judge_lines
from labeltide.auditing.streaming.totals import Totals
from labeltide.auditing.timelines import SEQUENCES, rounded, worst_stretch
from labeltide.kernels.threads import torch_on_one_thread


def describe_stretches(
    job: JudgeJob, flags: Flags, totals: Totals, signals: list[int]
) -> tuple[list[dict[str, Any]], pa.Table]:
    """The part `timelines` of audit.json, and the lines that it shows, with their position in labels.parquet."""
    timelines, shown = [], []
    with torch_on_one_thread():
        for sequence in totals.worst_sequences(SEQUENCES):
            chunk, base = _chunk_of(job, totals, sequence)
            timeline, lines = _stretch(job, chunk, base, flags, signals)
            timelines.append(timeline)
            shown.append(lines)
    if shown:
        return timelines, pa.concat_tables(shown)
    return timelines, pa.table({name: pa.array([], pa.string()) for name in (*COLUMNS, "position")})


def _chunk_of(job: JudgeJob, totals: Totals, sequence: int) -> tuple[Chunk, int]:
    """The rows of a sequence, or of the first part of a long one, and the position of its first line."""
    plan, survey = job.layout.plan, job.layout.survey
    firsts = np.array([chunk.first_sequence for chunk in plan.chunks])
    place = int(np.searchsorted(firsts, sequence, side="left"))
    if place < len(firsts) and plan.chunks[place].last_window:
        return plan.chunks[place], totals.positions[place]
    place = int(np.searchsorted(firsts, sequence, side="right")) - 1
    chunk = plan.chunks[place]
    ends = np.append(survey.first_rows, survey.n_rows)
    first, last = int(ends[sequence]), int(ends[sequence + 1])
    each = max(len(job.layout.columns.label), 1)
    base = totals.positions[place] + (first - chunk.first_row) * each
    return Chunk(first, last, sequence, sequence + 1, 0, 0, 0), base


def _stretch(
    job: JudgeJob, chunk: Chunk, base: int, flags: Flags, signals: list[int]
) -> tuple[dict[str, Any], pa.Table]:
    table, numbers = read_chunk(job.layout, chunk)
    lines = judge_lines(job, table, numbers)
    flagged = flags.of(lines)
    n_steps = len(table.place)
    issues = np.bincount(table.line_step[flagged], minlength=n_steps) > 0
    stretch = worst_stretch(np.append(0, np.cumsum(issues)), 0, n_steps)
    first = table.first_lines()[stretch]
    timeline = {
        "sequence": table.sequence_names[0],
        "times": table.times.take(pa.array(table.line_row[first])).to_pylist(),
        "signals": {table.feature_names[place]: rounded(table.signal(place)[stretch]) for place in signals},
        "rows": (base + first).tolist(),
    }
    kept = (table.line_step >= stretch[0]) & (table.line_step <= stretch[-1])
    lines = lines.append_column("is_issue", pa.array(flagged))
    lines = lines.append_column("position", pa.array(base + np.arange(len(lines)))).select([*COLUMNS, "position"])
    fields = [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in lines.schema]
    return timeline, lines.filter(pa.array(kept)).cast(pa.schema(fields))
