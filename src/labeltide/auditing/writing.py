"""From judged parts to labels.parquet, issues.parquet and issues.csv, and to the numbers that the page needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc, parquet

from labeltide.auditing.judging import (
    QUALITY,
    SUPPORT,
    Flags,
    JudgeJob,
    PartTotals,
    Reasons,
    Totals,
    read_part,
    work_ahead,
)
from labeltide.auditing.results import ISSUES, ISSUES_CSV, LABELS, MOST_IN_CSV
from labeltide.tables.frames import with_verdicts, write_safe_csv

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


# ----------------------------------------------------------------------------------------------------
# The labels to check of a large table, ranked: sorted on disk by ranges of quality, then written one after another.
# ----------------------------------------------------------------------------------------------------


CODES = ("annotator", "recorded", "suggested", "corrected")  # whose texts are the same in all parts
AT_ONCE = 3  # ranges that are sorted while another is written


class IssueFiles:
    """Flagged lines by their quality, one file for each range, in the order in which they came.

    Texts stand as codes, and what a reason is written from in place of the reason: sorting moves few bytes, and each
    distinct text is encoded once for each row group.
    """

    def __init__(self, folder: Path, borders: np.ndarray, sequences: pa.Array, reasons: Reasons) -> None:
        self.folder, self.borders, self.sequences, self.reasons = folder, borders, sequences, reasons
        folder.mkdir(exist_ok=True)
        self.writers: dict[int, ipc.RecordBatchStreamWriter] = {}
        self.texts: dict[str, pa.Array] = {}

    def split(self, lines: pa.Table, first_sequence: int) -> list[tuple[int, pa.Table]]:
        """The flagged lines of a part by their range of quality; several threads may split at a time."""
        self.texts.update({name: lines[name].chunk(0).dictionary for name in CODES if name not in self.texts})
        sequence = lines["sequence"].combine_chunks().indices.to_numpy().astype(np.int64) + first_sequence
        columns = {name: lines[name].combine_chunks() for name in lines.column_names}
        columns |= {name: columns[name].indices for name in CODES}
        columns |= {"sequence": pa.array(sequence), "time": columns["time"].cast(pa.string())}
        place = np.searchsorted(self.borders, lines[QUALITY].to_numpy(), side="right")
        order = np.argsort(place, kind="stable")
        table = pa.table(columns).take(pa.array(order))
        numbers, firsts = np.unique(place[order], return_index=True)
        lasts = np.append(firsts[1:], len(order))
        spans = zip(numbers.tolist(), firsts.tolist(), lasts.tolist(), strict=True)
        return [(number, table.slice(first, last - first)) for number, first, last in spans]

    def add(self, ranges: list[tuple[int, pa.Table]]) -> None:
        """Append to the files."""
        for number, lines in ranges:
            if number not in self.writers:
                options = ipc.IpcWriteOptions(compression="lz4")
                self.writers[number] = ipc.new_stream(str(self._path(number)), lines.schema, options=options)
            self.writers[number].write_table(lines)

    def write(self, schema: pa.Schema, draft: Path) -> None:
        """Rank all flagged labels, the least likely right first; `schema` is that of labels.parquet."""
        for writer in self.writers.values():
            writer.close()
        paths = [self._path(number) for number in sorted(self.writers)]
        fields = [pa.field("rank", pa.int64()), *schema]
        first, count = pa.schema(fields).empty_table(), 0
        with table_writer(draft / ISSUES, first.schema) as sink:
            for lines in work_ahead(lambda path: self._sort(path, schema.names), paths, AT_ONCE):
                ranks = pa.array(np.arange(count + 1, count + 1 + len(lines)))
                ranked = lines.add_column(0, "rank", ranks).cast(first.schema)
                first = ranked if count == 0 else first
                sink.write_table(ranked)
                count += len(lines)
            if not count:
                sink.write_table(first)
        self.folder.rmdir()
        write_safe_csv(with_verdicts(as_texts(first.slice(0, MOST_IN_CSV))), draft / ISSUES_CSV)

    def _sort(self, path: Path, names: list[str]) -> pa.Table:
        """The lines of one range in their order, with texts again."""
        with pa.OSFile(str(path)) as source:
            lines = ipc.open_stream(source).read_all()
        path.unlink()
        lines = lines.take(pa.array(np.argsort(lines[QUALITY].to_numpy(), kind="stable"))).combine_chunks()
        columns = {name: lines[name].combine_chunks() for name in lines.column_names}
        for name in CODES:
            columns[name] = pa.DictionaryArray.from_arrays(columns[name], self.texts[name])
        coded = columns["sequence"].dictionary_encode()
        columns["sequence"] = pa.DictionaryArray.from_arrays(coded.indices, self.sequences.take(coded.dictionary))
        columns["time"] = columns["time"].dictionary_encode()
        columns["reason"] = self.reasons.write(columns[SUPPORT].to_numpy(), np.ones(len(lines), dtype=bool))
        return pa.table({name: columns[name] for name in names})

    def _path(self, number: int) -> Path:
        return self.folder / f"range-{number:05d}.arrow"


def as_texts(lines: pa.Table) -> pa.Table:
    """Dictionary-encoded columns as plain texts."""
    fields = [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in lines.schema]
    return lines.cast(pa.schema(fields))


# ----------------------------------------------------------------------------------------------------
# The writer of large tables of results.
# ----------------------------------------------------------------------------------------------------


TEXTS = ("sequence", "time", "annotator", "recorded", "suggested", "corrected", "reason", "predicted")
COUNTS = ("row", "rank")


def table_writer(path: Path, schema: pa.Schema) -> parquet.ParquetWriter:
    """A Parquet file whose texts are dictionary-encoded in the file and read as texts.

    One thread encodes all of it, so that what is of no use is left out. The smallest and largest text of a row group
    took a third of the time; those of the sequence are kept, because a reader of one sequence skips row groups by them.
    Numbers of rows are stored as differences: a quarter of the time of zstd, and next to no bytes.
    """
    coded = [name for name in TEXTS if name in schema.names]
    return parquet.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=coded,
        write_statistics=[name for name in schema.names if name == "sequence" or name not in coded],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in COUNTS if name in schema.names},
        store_schema=False,
    )
