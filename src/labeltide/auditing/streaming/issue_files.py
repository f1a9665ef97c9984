"""The labels to check of a large table, ranked: sorted on disk by ranges of quality, then written one after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from labeltide.auditing.folder import ISSUES, ISSUES_CSV, MOST_IN_CSV
from labeltide.auditing.spreadsheet import with_verdicts, write_safe_csv
from labeltide.auditing.streaming.ahead import work_ahead
from labeltide.auditing.streaming.flags import QUALITY
from labeltide.auditing.streaming.judging import SUPPORT
from labeltide.auditing.streaming.reasons import Reasons
from labeltide.auditing.streaming.result_writer import table_writer

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
