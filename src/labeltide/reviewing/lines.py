"""The labels of an audit as arrays, in the order of the table and in that of time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide.auditing.folder import LABELS
from labeltide.auditing.labels_file import read_labels

NUMBERS = ("probability_right", "suggested_probability", "clock")
NAMES = ("recorded", "suggested", "corrected")


@dataclass(frozen=True)
class Lines:
    """One entry for every line of labels.parquet.

    Attributes
    ----------
    path : the file, of which texts are read when they are shown
    row : int64 array of shape (lines,), rows of the user's table
    sequence, annotator : int32 arrays of shape (lines,), places in the names; -1 where there is none
    recorded, suggested, corrected : int32 arrays of shape (lines,), places in `classes`; -1 where there is none
    right, sure, clock : float arrays of shape (lines,)
        Probability that the recorded label is right; probability of the suggested one; first clock.
    is_issue : bool array of shape (lines,)
    step : int64 array of shape (lines,)
        Number of the moment, counted over all sequences in the order of time; annotators of one moment share it.
    """

    path: Path
    row: np.ndarray
    sequence: np.ndarray
    annotator: np.ndarray
    recorded: np.ndarray
    suggested: np.ndarray
    corrected: np.ndarray
    right: np.ndarray
    sure: np.ndarray
    clock: np.ndarray
    is_issue: np.ndarray
    step: np.ndarray
    sequence_names: list[str]
    annotator_names: list[str]
    classes: list[str]

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def by_step(self) -> np.ndarray:
        """Places of all lines in the order of steps: int64 of shape (lines,)."""
        return np.lexsort((self.annotator, self.step))

    @cached_property
    def steps_sorted(self) -> np.ndarray:
        return self.step[self.by_step]

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
        """Place of each line when sorted by sequence, annotator and table row: int64 of shape (lines,)."""
        rank = np.empty(len(self), np.int64)
        rank[np.lexsort((self.row, self.annotator, self.sequence))] = np.arange(len(self))
        return rank

    def between(self, first_step: int, end_step: int) -> np.ndarray:
        """Places of the lines of some steps, in the order of steps."""
        low, high = np.searchsorted(self.steps_sorted, [first_step, end_step])
        return self.by_step[low:high]

    def find(self, row: int, annotator: str | None) -> int | None:
        """The place of the line of a table row and an annotator."""
        code = -1 if annotator is None else self._annotator_codes.get(annotator, -2)
        low, high = np.searchsorted(self._rows_sorted, [row, row + 1])
        places = self._by_row[low:high]
        found = places[self.annotator[places] == code]
        return int(found[0]) if len(found) else None

    def texts(self, places: np.ndarray, columns: list[str]) -> dict[str, list[str | None]]:
        """Texts of some lines, read from the row groups that hold them."""
        file = parquet.ParquetFile(self.path)
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        ends = np.cumsum(sizes)
        group = np.searchsorted(ends, places, side="right")
        found: dict[str, list[str | None]] = {name: [None] * len(places) for name in columns}
        for number in np.unique(group).tolist():
            inside = np.flatnonzero(group == number)
            local = pa.array(places[inside] - (ends[number] - sizes[number]))
            table = file.read_row_group(number, columns=columns).take(local)
            for name in columns:
                for place, text in zip(inside.tolist(), table[name].to_pylist(), strict=True):
                    found[name][place] = text
        return found

    @cached_property
    def _by_row(self) -> np.ndarray:
        return np.argsort(self.row, kind="stable")

    @cached_property
    def _rows_sorted(self) -> np.ndarray:
        return self.row[self._by_row]

    @cached_property
    def _annotator_codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.annotator_names)}


def read_lines(folder: Path, classes: list[str]) -> Lines:
    """Read labels.parquet of an audit's folder; its texts stay in the file."""
    path = Path(folder) / LABELS
    table = read_labels(path, ["row", "sequence", "annotator", "time", "is_issue", *NUMBERS, *NAMES])
    row = table["row"].to_numpy()
    sequence, sequence_names = _codes(table["sequence"])
    annotator, annotator_names = _codes(table["annotator"])
    order = pa.array(classes, pa.string())
    codes = {name: pc.fill_null(pc.index_in(table[name].cast(pa.string()), order), -1) for name in NAMES}
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
        step=_number_steps(sequence, table["time"], row),
        sequence_names=sequence_names,
        annotator_names=annotator_names,
        classes=classes,
        **{name: values.to_numpy() for name, values in codes.items()},
    )


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    encoded = encoded if isinstance(encoded, pa.DictionaryArray) else pa.concat_arrays(encoded.chunks)
    return pc.fill_null(encoded.indices, -1).to_numpy(), encoded.dictionary.to_pylist()


def _number_steps(sequence: np.ndarray, times: pa.ChunkedArray, row: np.ndarray) -> np.ndarray:
    """Number the moments of all sequences in the order of time; table rows decide where times are missing."""
    moment = _sortable(times, row)
    order = np.lexsort((row, moment, sequence))
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(sequence[order]) != 0) | (np.diff(moment[order]) != 0)
    step = np.empty(len(order), np.int64)
    step[order] = np.cumsum(is_new) - 1
    return step


def _sortable(times: pa.ChunkedArray, row: np.ndarray) -> np.ndarray:
    """Numbers in the order of the times: as numbers where all are, else in the order of their texts."""
    if times.null_count:
        return row
    try:
        return times.cast(pa.float64()).to_numpy()
    except pa.ArrowException:
        encoded = times.combine_chunks().dictionary_encode()
        encoded = encoded if isinstance(encoded, pa.DictionaryArray) else pa.concat_arrays(encoded.chunks)
        rank = np.empty(len(encoded.dictionary), np.int64)
        rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
        return rank[encoded.indices.to_numpy()]
