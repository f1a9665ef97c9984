"""Judge every row, chunk by chunk: a chunk is a task of its own, and its result a file that is written whole."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from labeltide._files import write_atomically
from labeltide._workers import Workers, current_workers
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.rare_classes import kept_codes, leave_out
from labeltide.auditing.streaming.ahead import work_ahead
from labeltide.auditing.streaming.chunk_reader import read_chunk
from labeltide.auditing.streaming.layout import Layout
from labeltide.auditing.streaming.reasons import pack_support
from labeltide.auditing.streaming.scorer import Scorer, Scores
from labeltide.inference.explanations import find_support
from labeltide.kernels.threads import torch_on_one_thread

SUPPORT = "support"  # the column of parts from which reasons are written once the flags are known


class JudgeJob(NamedTuple):
    """All that judging a chunk needs; it can be sent to another process.

    Attributes
    ----------
    folder : where parts are written
    class_shares : float array of shape (classes,), the mean posterior, with which error rates are averaged
    """

    layout: Layout
    scorer: Scorer
    folder: Path
    class_shares: np.ndarray


def judge_range(job: JudgeJob, first: int, last: int) -> int:
    """Judge the chunks from first to last that have not been judged yet; give back the number of their rows."""
    chunks = job.layout.plan.chunks[first:last]
    with torch_on_one_thread():
        for number, chunk in enumerate(chunks, first):
            path = part_path(job.folder, number)
            if not path.exists():
                shown, rows = read_chunk(job.layout, chunk)
                write_atomically(path, partial(_write_part, judge_lines(job, shown, rows)))
    return sum(chunk.last_row - chunk.first_row for chunk in chunks)


def judge_all(job: JudgeJob, on_rows: Callable[[int], None]) -> None:
    """Judge all chunks: on as many threads as torch has, or by the workers of the context."""
    engine = current_workers()
    if engine.count > 1:
        _judge_by_workers(job, engine, on_rows)
        return
    done = 0
    for rows in work_ahead(lambda place: judge_range(job, place, place + 1), range(len(job.layout.plan.chunks))):
        done += rows
        on_rows(done)


def _judge_by_workers(job: JudgeJob, engine: Workers, on_rows: Callable[[int], None]) -> None:
    """Workers read and judge chunks, and this process writes them: only the table need be within their reach."""
    chunks = job.layout.plan.chunks
    left = [number for number in range(len(chunks)) if not part_path(job.folder, number).exists()]
    done = sum(chunk.last_row - chunk.first_row for chunk in chunks) - _rows(job, left)
    # A copy, because torch moves tensors that are sent to a process to shared memory, away from arrays on them.
    for place, content in engine.run(_judge_chunk, copy.deepcopy(job), left):
        write_atomically(part_path(job.folder, left[place]), content)
        done += _rows(job, [left[place]])
        on_rows(done)


def _rows(job: JudgeJob, numbers: list[int]) -> int:
    return sum(job.layout.plan.chunks[number].last_row - job.layout.plan.chunks[number].first_row for number in numbers)


def _judge_chunk(job: JudgeJob, number: int) -> bytes:
    """The result of one chunk, as its file holds it."""
    with torch_on_one_thread():
        return _part_bytes(judge_lines(job, *read_chunk(job.layout, job.layout.plan.chunks[number])))


def part_path(folder: Path, number: int) -> Path:
    """The file of the result of a chunk."""
    return folder / f"part-{number:06d}.arrow"


def read_parts(folder: Path, count: int, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """The results of all chunks in their order, some columns or all; threads read ahead."""
    return work_ahead(lambda number: read_part(folder, number, columns), range(count))


def read_part(folder: Path, number: int, columns: list[str] | None = None) -> pa.Table:
    """The result of a chunk, some columns or all."""
    with pa.memory_map(str(part_path(folder, number))) as source:
        names = ipc.open_file(source).schema.names
        places = None if columns is None else [names.index(name) for name in columns]
        return ipc.open_file(source, options=ipc.IpcReadOptions(included_fields=places)).read_all()


def judge_lines(job: JudgeJob, given: AuditInput, numbers: np.ndarray) -> pa.Table:
    """The lines of labels.parquet but for flags, in whose place stands what speaks for another label.

    Parameters
    ----------
    given : the windows of a chunk with labels of all classes; those of rare ones are kept as they are
    numbers : int64 array, the number of each row in the user's table
    """
    rare = job.layout.rare
    table = leave_out(given, rare)
    scores = job.scorer.score(table)
    step, who = table.line_step, table.line_annotator
    recorded = given.from_steps(given.labels)[step, who]
    recorded[who < 0] = -1
    label = kept_codes(rare)[recorded]
    there = label >= 0
    code = np.where(there, label, 0).astype(np.int64)
    suggested = scores.posterior.argmax(1).astype(np.int8)
    sure = scores.posterior.max(1)
    quality = _where(there, scores.posterior[step, code])
    names, people = pa.array(given.class_names), pa.array(table.annotator_names or (), pa.string())
    suggested_class = np.flatnonzero(~rare).astype(np.int8)[suggested[step]]
    rows = pa.array(table.line_row)
    columns = {
        "row": pa.array(numbers[table.line_row]),
        "sequence": table.ids.take(rows),
        "time": table.times.take(rows),
        "annotator": _coded(who if len(people) else np.full(len(who), -1), people),
        **_clocks(table),
        "recorded": _coded(recorded, names),
        "probability_right": quality,
        "probability_contested": _where(there, 1 - scores.another[step, code]),
        "suggested": _coded(suggested_class, names),
        "suggested_probability": sure[step],
        SUPPORT: _support(job, table, scores, suggested),
    }
    return pa.table(columns)


def _part_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    _write_part(table, sink)
    return bytes(sink.getvalue())


def _write_part(table: pa.Table, sink: Path | pa.NativeFile) -> None:
    options = ipc.IpcWriteOptions(compression="lz4")
    with ipc.new_file(str(sink) if isinstance(sink, Path) else sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())


def _where(there: np.ndarray, values: np.ndarray) -> pa.Array:
    return pa.array(values.astype(np.float32, copy=False), mask=None if there.all() else ~there)


def _coded(codes: np.ndarray, names: pa.Array) -> pa.DictionaryArray:
    small = codes.astype(np.int8 if len(names) < 128 else np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(small, mask=codes < 0), names)


def _clocks(table: AuditInput) -> dict[str, np.ndarray]:
    titles = ["clock", *(f"clock_{number}" for number in range(2, 1 + len(table.clocks)))]
    return {
        title: table.from_steps(values)[table.line_step] for title, values in zip(titles, table.each_clock, strict=True)
    }


def _support(job: JudgeJob, table: AuditInput, scores: Scores, suggested: np.ndarray) -> np.ndarray:
    """What speaks for the suggested label, packed in one number: uint64 of shape (lines,), 0 where labels agree."""
    shape = table.index.shape
    best = np.full(shape[0] * shape[1], -1, dtype=np.int8)
    best[table.place] = suggested
    best = best.reshape(shape)
    signal = np.zeros((shape[0] * shape[1], scores.signal.shape[1]), dtype=np.float32)
    signal[table.place] = scores.signal
    differs = (table.fit_labels >= 0) & (table.fit_labels != best[..., None])
    rates = (job.scorer.error_rates @ job.class_shares).astype(np.float32)  # (annotators or 1, points)
    flat = np.zeros((len(rates), best.size), dtype=np.float32)
    flat[:, table.place] = rates[:, scores.point]
    wrong = np.broadcast_to(np.moveaxis(flat.reshape(len(rates), *shape), 0, -1), table.labels.shape)
    found = find_support(table.fit_labels, differs, best, signal.reshape(*shape, -1), wrong)
    packed = np.zeros(table.labels.shape, dtype=np.uint64)
    packed[differs] = pack_support(found)
    of_lines = packed.reshape(-1, table.labels.shape[2])[table.place[table.line_step], table.line_annotator]
    of_lines[table.line_annotator < 0] = 0
    return of_lines
