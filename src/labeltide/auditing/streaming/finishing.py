"""From judged parts to labels.parquet, issues.parquet and issues.csv, and to the numbers that the page needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from labeltide.auditing.contested_findings import FEWEST, PARTS
from labeltide.auditing.findings import SEQUENCES
from labeltide.auditing.folder import ISSUES, ISSUES_CSV, LABELS, MOST_IN_CSV
from labeltide.auditing.spreadsheet import with_verdicts, write_safe_csv
from labeltide.auditing.streaming.ahead import work_ahead
from labeltide.auditing.streaming.flags import QUALITY, Flags
from labeltide.auditing.streaming.judging import SUPPORT, JudgeJob, read_part
from labeltide.auditing.streaming.reasons import write_reasons
from labeltide.inference.audit import MIN_CONFIDENCE, LabelAudit
from labeltide.inference.averaged_quality import averaged_share

BUCKET = 400_000  # flagged labels that are sorted at once
TEXTS = ("sequence", "time", "annotator", "recorded", "suggested", "corrected", "reason", "predicted")


@dataclass
class Totals:
    """Sums over all labels.

    Attributes
    ----------
    edges : borders of the parts of the first clock
    codes : of each class of the table among those that are judged, -1 for others: (classes + 1,)
    by_class : labels, issues, sum of slips and sum of contested labels of each class: (4, classes)
    by_clock : labels, sum of slips and sum of contested labels in each part of the clock: (3, parts)
    by_sequence : labels and issues of each sequence: (2, sequences)
    by_annotator : labels of each annotator
    wrong : the expected number of wrong labels
    position : lines before each chunk
    """

    edges: np.ndarray
    codes: np.ndarray
    by_class: np.ndarray
    by_sequence: np.ndarray
    by_annotator: np.ndarray
    by_clock: np.ndarray = field(default_factory=lambda: np.zeros((3, PARTS)))
    corrected: int = 0
    false_alarms: float = 0.0
    wrong: float = 0.0
    several: bool = False
    positions: list[int] = field(default_factory=lambda: [0])

    def add(self, part: pa.Table, flagged: np.ndarray, first_sequence: int) -> None:
        """Count the lines of a part."""
        codes = self.codes[_codes(part, "recorded")]
        there = codes >= 0
        quality, slip, contested = (
            part[name].to_numpy()[there].astype(np.float64)
            for name in (QUALITY, "probability_slip", "probability_contested")
        )
        classes, flags = codes[there], flagged[there]
        for place, weights in enumerate((None, flags, slip, contested)):
            self.by_class[place] += np.bincount(classes, weights, minlength=self.by_class.shape[1])
        clock = part["clock"].to_numpy()[there]
        at = np.clip(np.searchsorted(self.edges, clock, side="right") - 1, 0, PARTS - 1)
        for place, weights in enumerate((None, slip, contested)):
            self.by_clock[place] += np.bincount(at, weights, minlength=PARTS)
        sequence = first_sequence + _codes(part, "sequence")[there]
        for place, chosen in enumerate((sequence, sequence[flags])):
            if len(chosen):
                counted = np.bincount(chosen - first_sequence)
                self.by_sequence[place, first_sequence : first_sequence + len(counted)] += counted
        people = _codes(part, "annotator")[there]
        self.by_annotator += np.bincount(people[people >= 0], minlength=len(self.by_annotator))
        self.corrected += int((self.codes[_codes(part, "corrected")][there] != classes).sum())
        self.false_alarms += float(quality[flags].sum())
        self.wrong += float((1 - quality).sum())
        self.positions.append(self.positions[-1] + len(part))

    @property
    def share_wrong(self) -> float:
        """The expected share of wrong labels."""
        labels = float(self.by_class[0].sum())
        return self.wrong / labels if labels else float("nan")

    def describe_issues(self, names: pa.Array, classes: tuple[str, ...], judged: LabelAudit) -> dict[str, Any]:
        """The part `issues` of audit.json."""
        labels, issues = self.by_sequence
        worst = self.worst_sequences(SEQUENCES)
        count = int(self.by_class[1].sum())
        return {
            "count": count,
            "fdr": judged.fdr,
            "spend_fdr": judged.spend_fdr,
            "expected_false_alarms": averaged_share(judged.false_alarms, self.false_alarms / count) if count else 0.0,
            "corrected": self.corrected,
            "min_confidence": MIN_CONFIDENCE,
            "by_class": [
                {"recorded": name, "labels": int(self.by_class[0, code]), "issues": int(self.by_class[1, code])}
                for code, name in enumerate(classes)
            ],
            "by_sequence": [
                {"sequence": names[int(place)].as_py(), "labels": int(labels[place]), "issues": int(issues[place])}
                for place in worst
            ],
        }

    def worst_sequences(self, most: int) -> list[int]:
        """The sequences with the most issues."""
        issues = self.by_sequence[1]
        return [int(place) for place in np.argsort(-issues, kind="stable")[:most] if issues[place]]

    def describe_contested(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """The part `contested` of audit.json."""
        labels, _, slips, contested = self.by_class
        middles = (self.edges[1:] + self.edges[:-1]) / 2
        return {
            "from_several": self.several,
            **_shares(labels.sum(), slips.sum(), contested.sum()),
            "by_class": [
                {"recorded": name, "labels": int(labels[code]), **_shares(labels[code], slips[code], contested[code])}
                for code, name in enumerate(classes)
            ],
            "over_clock": [
                {"clock": float(middle), "labels": int(values[0]), **_shares(*values)}
                for middle, values in zip(middles, self.by_clock.T, strict=True)
                if values[0] >= FEWEST
            ],
        }


def finish(
    job: JudgeJob,
    flags: Flags,
    totals: Totals,
    draft: Path,
    on_rows: Callable[[int], None] = lambda rows: None,
    *,
    corrects: bool = True,
) -> None:
    """Write the three files, and count; without `corrects` every label stays as recorded."""
    classes = job.layout.class_names
    buckets = _Buckets(draft.with_name("buckets"), flags.buckets(BUCKET))
    chunks = job.layout.plan.chunks
    writer = None

    def flag(number: int) -> tuple[pa.Table, np.ndarray, pa.Table]:
        part = read_part(job.folder, number)
        if not corrects:
            part = part.set_column(part.column_names.index("corrected"), "corrected", part["recorded"])
        flagged = flags.of(part)
        reason = write_reasons(part[SUPPORT].to_numpy(), flagged, classes)
        lines = part.drop_columns([SUPPORT]).append_column("is_issue", pa.array(flagged))
        lines = lines.append_column("reason", reason)
        return lines, flagged, _as_texts(lines.filter(pa.array(flagged)))

    for chunk, (lines, flagged, issues) in zip(chunks, work_ahead(flag, range(len(chunks))), strict=True):
        totals.add(lines, flagged, chunk.first_sequence)
        writer = writer or table_writer(draft / LABELS, lines.schema)
        writer.write_table(lines)
        buckets.add(issues)
        on_rows(chunk.last_row)
    assert writer is not None
    writer.close()
    _write_issues(buckets, lines.schema, draft)


def table_writer(path: Path, schema: pa.Schema) -> parquet.ParquetWriter:
    """Texts are dictionary-encoded in the file and read as texts."""
    coded = [name for name in TEXTS if name in schema.names]
    return parquet.ParquetWriter(
        path, schema, compression="zstd", compression_level=1, use_dictionary=coded, store_schema=False
    )


class _Buckets:
    """Flagged lines by their quality, one file for each range, in the order in which they came."""

    def __init__(self, folder: Path, borders: np.ndarray) -> None:
        self.folder, self.borders = folder, borders
        folder.mkdir(exist_ok=True)
        self.writers: dict[int, ipc.RecordBatchStreamWriter] = {}

    def add(self, lines: pa.Table) -> None:
        place = np.searchsorted(self.borders, lines[QUALITY].to_numpy(), side="right")
        for number in np.unique(place).tolist():
            if number not in self.writers:
                options = ipc.IpcWriteOptions(compression="lz4")
                self.writers[number] = ipc.new_stream(str(self._path(number)), lines.schema, options=options)
            self.writers[number].write_table(lines.filter(pa.array(place == number)))

    def read(self) -> list[Path]:
        """The files, the lowest quality first."""
        for writer in self.writers.values():
            writer.close()
        return [self._path(number) for number in sorted(self.writers)]

    def _path(self, number: int) -> Path:
        return self.folder / f"bucket-{number:05d}.arrow"


def _as_texts(lines: pa.Table) -> pa.Table:
    """Dictionaries differ from part to part, and a stream keeps one."""
    fields = [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in lines.schema]
    return lines.cast(pa.schema(fields))


def _write_issues(buckets: _Buckets, schema: pa.Schema, draft: Path) -> None:
    """Rank the flagged labels, the least likely right first, one range of quality after the other."""
    fields = [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in schema]
    plain = pa.schema([pa.field("rank", pa.int64()), *fields])
    first: pa.Table | None = None
    count = 0
    with table_writer(draft / ISSUES, plain) as writer:
        for path in buckets.read():
            with pa.OSFile(str(path)) as source:
                lines = ipc.open_stream(source).read_all()
            lines = lines.take(pa.array(np.argsort(lines[QUALITY].to_numpy(), kind="stable")))
            lines = lines.add_column(0, "rank", pa.array(np.arange(count + 1, count + 1 + len(lines)))).cast(plain)
            first = lines.slice(0, MOST_IN_CSV) if first is None else first
            writer.write_table(lines)
            count += len(lines)
            path.unlink()
        if first is None:
            first = plain.empty_table()
            writer.write_table(first)
    buckets.folder.rmdir()
    write_safe_csv(with_verdicts(first), draft / ISSUES_CSV)


def _codes(part: pa.Table, name: str) -> np.ndarray:
    """Codes of a dictionary-encoded column, -1 for null."""
    array = part[name].chunk(0) if part[name].num_chunks == 1 else part[name].combine_chunks()
    return array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _shares(labels: float, slips: float, contested: float) -> dict[str, float | None]:
    if not labels:
        return {"slip": None, "contested": None}
    return {"slip": float(slips / labels), "contested": float(contested / labels)}
