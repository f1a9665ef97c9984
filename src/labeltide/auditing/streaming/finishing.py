"""From judged parts to labels.parquet, issues.parquet and issues.csv, and to the numbers that the page needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing.folder import LABELS
from labeltide.auditing.streaming.ahead import work_ahead
from labeltide.auditing.streaming.flags import Flags
from labeltide.auditing.streaming.issue_files import IssueFiles
from labeltide.auditing.streaming.judging import SUPPORT, JudgeJob, read_part
from labeltide.auditing.streaming.reasons import Reasons
from labeltide.auditing.streaming.result_writer import table_writer
from labeltide.auditing.streaming.totals import PartTotals, Totals

BUCKET = 400_000  # flagged labels that are sorted at once


class _Finished(NamedTuple):
    """A part as it is written: its lines, the flagged ones by their range of quality, and what is counted of it."""

    lines: pa.Table
    issues: list[tuple[int, pa.Table]]
    totals: PartTotals


def finish(
    job: JudgeJob,
    flags: Flags,
    totals: Totals,
    draft: Path,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> None:
    """Write the three files, and count.

    Threads read, flag and count parts ahead. This thread encodes them for Parquet, and does nothing else that takes
    time: pyarrow encodes a file on one thread.
    """
    survey, chunks = job.layout.survey, job.layout.plan.chunks
    reasons = Reasons(job.layout.class_names)
    issues = IssueFiles(draft.with_name("buckets"), flags.buckets(BUCKET), survey.names, reasons)
    writer = None

    def prepare(number: int) -> _Finished:
        part = read_part(job.folder, number)
        flagged = flags.of(part)
        reason = reasons.write(part[SUPPORT].to_numpy(), flagged)
        part = part.append_column("corrected", _replace(part["recorded"], part["suggested"], flagged))
        part = part.append_column("is_issue", pa.array(flagged))
        lines = part.drop_columns([SUPPORT]).append_column("reason", reason)
        found = issues.split(part.filter(pa.array(flagged)), chunks[number].first_sequence)
        return _Finished(lines, found, totals.count(part, flagged))

    for chunk, part in zip(chunks, work_ahead(prepare, range(len(chunks))), strict=True):
        totals.add(part.totals, chunk.first_sequence)
        writer = writer or table_writer(draft / LABELS, part.lines.schema)
        writer.write_table(part.lines)
        issues.add(part.issues)
        on_rows(chunk.last_row)
    assert writer is not None
    writer.close()
    issues.write(part.lines.schema, draft)


def _replace(recorded: pa.ChunkedArray, suggested: pa.ChunkedArray, flagged: np.ndarray) -> pa.DictionaryArray:
    """The recorded labels with the suggested label in place of each flagged one; both have one dictionary."""
    recorded, suggested = recorded.combine_chunks(), suggested.combine_chunks()
    codes = pc.if_else(pa.array(flagged), suggested.indices, recorded.indices)
    return pa.DictionaryArray.from_arrays(codes, recorded.dictionary)
