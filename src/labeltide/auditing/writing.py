"""From judged parts to labels.parquet, issues.parquet and issues.csv, and to the numbers that the page needs."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc, parquet

from labeltide.auditing.findings import PartTotals, Totals, as_texts
from labeltide.auditing.judging import QUALITY, STEP, SUPPORT, Flags, JudgeJob, Reasons, kinds_of, work_ahead
from labeltide.auditing.results import ISSUES, ISSUES_CSV, LABEL_COLUMNS, LABELS, MAX_IN_CSV, ROW_GROUP
from labeltide.inference.audit import KINDS, RUN
from labeltide.tables.columns import with_verdicts, write_safe_csv

BUCKET = 400_000  # flagged labels that are sorted at once


def write_lines(
    job: JudgeJob, flags: Flags, totals: Totals, draft: Path | None, work: Path | None, on_rows: Callable[[int], None]
) -> pa.Table | None:
    """Flag and count the judged lines, write labels.parquet, issues.parquet and issues.csv, and give back the lines of
    a table in memory. Without a `draft` nothing is written; `work` is a folder for temporary files.

    Threads read, flag and count parts, and number the texts of row groups ahead. This thread encodes row groups for
    Parquet, and does nothing else that takes time: pyarrow encodes a file on one thread.
    """
    table, in_memory = job.table, job.folder is None
    reasons = Reasons(table.class_names)
    issues = writer = None
    if draft is not None and work is not None:
        most = None if in_memory else MAX_IN_CSV
        issues = IssueFiles(work / "issues", flags.buckets(BUCKET), table.sequence_names, reasons, most)
    held: list[pa.Table] = []

    def prepare(number: int) -> tuple[pa.Table, list[tuple[int, pa.Table]], PartTotals]:
        part = job.read_part(number)
        flagged = flags.of(part)
        reason = reasons.write(part[SUPPORT].to_numpy(), flagged)
        kinds = kinds_of(part[SUPPORT].to_numpy(), flagged)
        undecided = (kinds.indices.fill_null(0).to_numpy() == KINDS.index(RUN)) | (part["shift"].to_numpy() < 0)
        recorded, suggested = (part[name].combine_chunks() for name in ("recorded", "suggested"))  # of one dictionary
        codes = pc.if_else(pa.array(flagged & ~undecided), suggested.indices, recorded.indices)
        part = part.append_column("corrected", pa.DictionaryArray.from_arrays(codes, recorded.dictionary))
        part = part.append_column("is_issue", pa.array(flagged)).append_column("kind", kinds)
        lines = part.drop_columns([SUPPORT, STEP]).append_column("reason", reason)
        found = issues.split(part.filter(pa.array(flagged)), table.chunks[number].first_sequence) if issues else []
        return lines, found, totals.count(part, flagged)

    def count_parts() -> Iterator[pa.Table]:
        prepared = work_ahead(prepare, range(len(table.chunks)))
        for chunk, (lines, found, counted) in zip(table.chunks, prepared, strict=True):
            totals.add(counted, chunk.first_sequence)
            if issues is not None:
                issues.add(found)
            if in_memory:
                held.append(lines)
            on_rows(chunk.last_row)
            yield lines

    if draft is None or issues is None:
        deque(count_parts(), maxlen=0)
    else:
        for group in work_ahead(join_group, row_groups(count_parts())):
            writer = writer or table_writer(draft / LABELS, group.schema)
            writer.write_table(group)
        if writer is not None:
            writer.close()
            issues.write(group.schema, draft)
    return as_texts(pa.concat_tables(held)) if in_memory else None


CODES = ("annotator", "recorded", "suggested", "corrected", "kind")  # whose texts are the same in all parts
AT_ONCE = 3  # ranges that are sorted while another is written


class IssueFiles:
    """Flagged lines by their quality, one file for each range, in the order in which they came.

    Texts stand as codes, and what a reason is written from in place of the reason: sorting moves few bytes, and each
    distinct text is encoded once for each row group.
    """

    def __init__(
        self, folder: Path, borders: np.ndarray, sequences: pa.Array, reasons: Reasons, most_in_csv: int | None
    ) -> None:
        self.folder, self.borders, self.sequences, self.reasons = folder, borders, sequences, reasons
        self.most_in_csv = most_in_csv
        shutil.rmtree(folder, ignore_errors=True)  # of an interrupted audit
        folder.mkdir()
        self.writers: dict[int, ipc.RecordBatchStreamWriter] = {}
        self.texts: dict[str, pa.Array] = {}

    def split(self, lines: pa.Table, first_sequence: int) -> list[tuple[int, pa.Table]]:
        """The flagged lines of a part by their range of quality; several threads may split at a time."""
        if not len(lines):
            return []
        self.texts.update({name: lines[name].chunk(0).dictionary for name in CODES if name not in self.texts})
        sequence = lines["sequence"].combine_chunks().indices.to_numpy().astype(np.int64) + first_sequence
        columns = {name: lines[name].combine_chunks() for name in lines.column_names}
        columns |= {name: columns[name].indices for name in CODES}
        columns |= {"sequence": pa.array(sequence), "time": columns["time"].cast(pa.string())}
        bucket = np.searchsorted(self.borders, lines[QUALITY].to_numpy(), side="right")
        order = np.argsort(bucket, kind="stable")
        table = pa.table(columns).take(pa.array(order))
        numbers, firsts = np.unique(bucket[order], return_index=True)
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
        empty, count, shown = pa.schema(fields).empty_table(), 0, []
        with table_writer(draft / ISSUES, empty.schema) as sink:
            for lines in work_ahead(lambda path: self._sort(path, schema.names), paths, AT_ONCE):
                ranks = pa.array(np.arange(count + 1, count + 1 + len(lines)))
                ranked = lines.add_column(0, "rank", ranks).cast(empty.schema)
                if self.most_in_csv is None or count < self.most_in_csv:
                    shown.append(as_texts(ranked))
                sink.write_table(ranked)
                count += len(lines)
            if not count:
                sink.write_table(empty)
        self.folder.rmdir()
        in_csv = pa.concat_tables(shown or [as_texts(empty)]).slice(0, self.most_in_csv)
        write_safe_csv(with_verdicts(in_csv), draft / ISSUES_CSV)

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


TEXTS = (*(name for name, holds in LABEL_COLUMNS.items() if holds == "text"), "predicted")
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


def row_groups(parts: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    """The lines of parts in groups of a fixed number, so that a file does not depend on the parts; without copies."""
    group: list[pa.Table] = []
    held = 0
    for part in parts:
        while len(part):
            some = part.slice(0, ROW_GROUP - held)
            part = part.slice(len(some))
            group.append(some)
            held += len(some)
            if held == ROW_GROUP:
                yield group
                group, held = [], 0
    if group:
        yield group


def join_group(slices: list[pa.Table]) -> pa.Table:
    """One row group, whose texts that stand as codes are numbered anew in the order in which they are met."""
    joined = [pa.table({name: _renumber(part[name].combine_chunks()) for name in part.column_names}) for part in slices]
    return pa.concat_tables(joined).unify_dictionaries().combine_chunks()


def _renumber(column: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(column.type):
        return column
    met = column.indices.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        met.indices.cast(column.type.index_type), column.dictionary.take(met.dictionary)
    )
