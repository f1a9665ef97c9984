"""The folder of an audit opened for review: its numbers, its labels, and the table that it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide.auditing.audit_json import load_audit_json
from labeltide.auditing.decisions import audit_identity, find_table
from labeltide.auditing.page.payload import read_times
from labeltide.auditing.results import LABELS, read_labels
from labeltide.tables.columns import code_values, is_number
from labeltide.tables.files import open_file

OTHER_AUDIT = (
    "The folder {!r} was audited anew while this review was open, so nothing was written. Stop the review, then "
    "start it again."
)


@dataclass
class AuditFolder:
    """An audit that can be reviewed."""

    folder: Path
    summary: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path) -> AuditFolder:
        """Read audit.json."""
        return cls(Path(folder), load_audit_json(folder, ["table.classes"]))

    @cached_property
    def identity(self) -> str:
        return audit_identity(self.summary)

    def check_current(self) -> None:
        """Refuse to write into a folder that holds another audit by now: its rows may be other rows."""
        if audit_identity(load_audit_json(self.folder)) != self.identity:
            raise ValueError(OTHER_AUDIT.format(str(self.folder)))

    @property
    def table(self) -> Mapping[str, Any]:
        return self.summary["table"]

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in self.table["classes"]]

    @cached_property
    def lines(self) -> Lines:
        return read_lines(self.folder, self.classes)

    def open_table(self, named: Path | None) -> Signals | None:
        """The signals of the table; None where the audit was of a data frame and no file is named."""
        path = find_table(self.summary, self.folder, named)
        return None if path is None else open_signals(path, self.summary)


# The labels of an audit as arrays, in the order of the table and in that of time.

NUMBERS = ("probability_right", "suggested_probability", "clock")
NAMES = ("recorded", "suggested", "corrected")


@dataclass(frozen=True)
class Lines:
    """One entry for every line of labels.parquet: arrays of shape (lines,), and names."""

    path: Path  # the file; texts are read from it when they are shown
    row: np.ndarray  # int64, rows of the user's table
    sequence: np.ndarray  # int32, indices into the names; -1 where there is none
    annotator: np.ndarray  # likewise
    recorded: np.ndarray  # int32, indices into `classes`; -1 where there is none
    suggested: np.ndarray  # likewise
    corrected: np.ndarray  # likewise
    right: np.ndarray  # probability that the recorded label is right
    sure: np.ndarray  # probability of the suggested label
    clock: np.ndarray  # the first one
    is_issue: np.ndarray
    step: np.ndarray  # int64, number of the moment over all sequences in the order of time, shared by annotators
    sequence_names: list[str]
    annotator_names: list[str]
    classes: list[str]

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def by_step(self) -> np.ndarray:
        """Indices of all lines in the order of steps: int64 of shape (lines,)."""
        return np.lexsort((self.annotator, self.step))

    @cached_property
    def wrong(self) -> np.ndarray:
        """The model's probability that each recorded label is wrong, NaN where nothing was recorded."""
        return np.where(self.recorded >= 0, 1 - np.clip(self.right, 0, 1), np.nan)

    @cached_property
    def sequence_steps(self) -> np.ndarray:
        """The first step of each sequence and one past its last: int64 of shape (sequences, 2)."""
        first = np.full(len(self.sequence_names), np.iinfo(np.int64).max)
        last = np.full(len(self.sequence_names), -1, np.int64)
        np.minimum.at(first, self.sequence, self.step)
        np.maximum.at(last, self.sequence, self.step)
        return np.stack([first, last + 1], axis=1)

    @cached_property
    def table_rank(self) -> np.ndarray:
        """Rank of each line when sorted by sequence, annotator and table row: int64 of shape (lines,)."""
        rank = np.empty(len(self), np.int64)
        rank[np.lexsort((self.row, self.annotator, self.sequence))] = np.arange(len(self))
        return rank

    def between(self, first_step: int, end_step: int) -> np.ndarray:
        """Indices of the lines of some steps, in the order of steps."""
        low, high = np.searchsorted(self.step, [first_step, end_step], sorter=self.by_step)
        return self.by_step[low:high]

    def find(self, row: int, annotator: str | None) -> int | None:
        """The index of the line of a table row and an annotator."""
        names = [None, *self.annotator_names]
        code = names.index(annotator) - 1 if annotator in names else -2
        low, high = np.searchsorted(self.row, [row, row + 1], sorter=self._by_row)
        indices = self._by_row[low:high]
        found = indices[self.annotator[indices] == code]
        return int(found[0]) if len(found) else None

    def texts(self, indices: np.ndarray, columns: list[str]) -> dict[str, list[str | None]]:
        """Texts of some lines, read from the row groups that hold them."""
        file = parquet.ParquetFile(self.path)
        return take_rows(file, indices, partial(file.read_row_group, columns=columns)).to_pydict()

    @cached_property
    def _by_row(self) -> np.ndarray:
        return np.argsort(self.row, kind="stable")


def read_lines(folder: Path, classes: list[str]) -> Lines:
    """Read labels.parquet of an audit's folder; its texts stay in the file."""
    path = Path(folder) / LABELS
    table = read_labels(path, ["row", "sequence", "annotator", "time", "is_issue", *NUMBERS, *NAMES])
    row = table["row"].to_numpy()
    sequence, sequences = code_values(table["sequence"].cast(pa.string()))
    annotator, annotators = code_values(table["annotator"].cast(pa.string()))
    # Number the moments of all sequences in the order of time; table rows decide where times are missing.
    moment = _sortable(table["time"], row)
    order = np.lexsort((row, moment, sequence))
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(sequence[order]) != 0) | (np.diff(moment[order]) != 0)
    step = np.empty(len(order), np.int64)
    step[order] = np.cumsum(is_new) - 1
    names = pa.array(classes, pa.string())
    codes = {name: pc.fill_null(pc.index_in(table[name].cast(pa.string()), names), -1) for name in NAMES}
    numbers = {name: pc.fill_null(table[name].cast(pa.float64()), np.nan).to_numpy() for name in NUMBERS}
    return Lines(
        path=path,
        row=row,
        sequence=sequence,
        annotator=annotator,
        right=numbers["probability_right"],
        sure=numbers["suggested_probability"],
        clock=numbers["clock"],
        is_issue=pc.fill_null(table["is_issue"], False).to_numpy(),
        step=step,
        sequence_names=sequences.to_pylist(),
        annotator_names=annotators.to_pylist(),
        classes=classes,
        **{name: values.to_numpy() for name, values in codes.items()},
    )


def take_rows(source: parquet.ParquetFile, rows: np.ndarray, read_group: Callable[[int], pa.Table]) -> pa.Table:
    """Some rows of a file in their order; only the row groups that hold them are read."""
    sizes = [source.metadata.row_group(group).num_rows for group in range(source.num_row_groups)]
    ends = np.cumsum(sizes)
    group = np.searchsorted(ends, rows, side="right")
    order = np.argsort(group, kind="stable")
    parts = []
    for number in np.unique(group).tolist() or [0]:  # of no rows, still the columns
        inside = rows[order[group[order] == number]]
        parts.append(read_group(number).take(pa.array(inside - (ends[number] - sizes[number]))))
    return pa.concat_tables(parts).take(pa.array(np.argsort(order)))


def _sortable(times: pa.ChunkedArray, row: np.ndarray) -> np.ndarray:
    """Numbers in the order of the times: numbers, moments, or else the order of their texts."""
    if times.null_count:
        return row
    try:
        return read_times(times)[0]
    except pa.ArrowException:
        return pc.rank(times, tiebreaker="dense").to_numpy().astype(np.int64)


# The signals of the user's table around an item: only the row groups and columns that are shown are read.

MAX_SIGNALS = 6
CACHED = 4  # row groups kept in memory


class Signals:
    """Some columns of numbers of an open Parquet file or of a table in memory, read by table row."""

    def __init__(self, source: parquet.ParquetFile | pa.Table, names: list[str]) -> None:
        self.names = names
        self._source = source if isinstance(source, parquet.ParquetFile) else source.select(names)
        if isinstance(source, parquet.ParquetFile):
            self._read_group = lru_cache(maxsize=CACHED)(partial(source.read_row_group, columns=names))

    def read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Values of some table rows, NaN where there is none: arrays of shape (rows,)."""
        if isinstance(self._source, pa.Table):
            part = self._source.take(pa.array(rows))
        else:
            part = take_rows(self._source, rows, self._read_group)
        found = {}
        for name in self.names:
            numbers = pc.fill_null(part[name].cast(pa.float64(), safe=False), np.nan).to_numpy()
            found[name] = np.where(np.isfinite(numbers), numbers, np.nan)
        return found


def open_signals(path: Path, summary: Mapping[str, Any]) -> Signals:
    """The features of a table; of many those that the timelines of the audit show, which tell classes apart best."""
    source = open_file(path)
    schema = source.schema_arrow if isinstance(source, parquet.ParquetFile) else source.schema
    columns = {encoder["column"] for encoder in summary.get("encoders") or []}
    columns |= set(summary["table"].get("features") or [])
    names = [name for name in schema.names if name in columns and is_number(schema.field(name).type)]
    n_rows = source.metadata.num_rows if isinstance(source, parquet.ParquetFile) else len(source)
    rows = int(summary["table"].get("rows") or 0)
    if rows and n_rows != rows:
        raise ValueError(
            f"The table {str(path)!r} must have the {rows} rows that were audited. It has {n_rows}. Name the table as "
            "it was with --table."
        )
    if len(names) > MAX_SIGNALS:
        shown = {name for timeline in summary.get("timelines") or [] for name in timeline.get("signals") or ()}
        of_page = {each["column"] for each in summary.get("encoders") or [] if shown.intersection(each["names"])}
        names = [name for name in names if name in of_page] or names[:MAX_SIGNALS]
    return Signals(source, names)
