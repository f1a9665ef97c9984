"""The signals of the user's table around an item: only the row groups and columns that are shown are read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide.reviewing.lines import Lines
from labeltide.tables.files import open_file
from labeltide.tables.intake import is_number

MOST_SIGNALS = 6
SLICES, SLICE = 8, 2500  # parts of the table from which the most telling features are chosen
CACHED = 4  # row groups kept in memory


class Signals:
    """Some columns of numbers of a table, read by table row.

    Parameters
    ----------
    source : an open Parquet file, or a table in memory
    names : the columns
    """

    def __init__(self, source: parquet.ParquetFile | pa.Table, names: list[str]) -> None:
        self.names = names
        self._source = source if isinstance(source, parquet.ParquetFile) else source.select(names)
        self._groups: OrderedDict[int, pa.Table] = OrderedDict()
        self._ends = _group_ends(self._source)

    @property
    def n_rows(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Values of some table rows, NaN where there is none: arrays of shape (rows,)."""
        found = {name: np.full(len(rows), np.nan) for name in self.names}
        group = np.searchsorted(self._ends, rows, side="right")
        for number in np.unique(group).tolist():
            inside = np.flatnonzero(group == number)
            start = self._ends[number - 1] if number else 0
            part = self._group(number).take(pa.array(rows[inside] - start))
            for name in self.names:
                found[name][inside] = _floats(part[name])
        return found

    def take(self, names: list[str]) -> Signals:
        """The same table with fewer columns."""
        return Signals(self._source, names)

    def _group(self, number: int) -> pa.Table:
        if isinstance(self._source, pa.Table):
            return self._source
        if number not in self._groups:
            self._groups[number] = self._source.read_row_group(number, columns=self.names)
            while len(self._groups) > CACHED:
                self._groups.popitem(last=False)
        self._groups.move_to_end(number)
        return self._groups[number]


def open_signals(path: Path, summary: Mapping[str, Any], lines: Lines) -> Signals:
    """The most telling features of a table: those whose means differ most between recorded classes."""
    source = open_file(path)
    schema = source.schema_arrow if isinstance(source, parquet.ParquetFile) else source.schema
    columns = {encoder["column"] for encoder in summary.get("encoders") or []}
    columns |= set(summary["table"].get("features") or [])
    names = [name for name in schema.names if name in columns and is_number(schema.field(name).type)]
    signals = Signals(source, names)
    rows = int(summary["table"].get("rows") or 0)
    if rows and signals.n_rows != rows:
        raise ValueError(
            f"The table {str(path)!r} must have the {rows} rows that were audited. It has {signals.n_rows}. Name the "
            "table as it was with --table."
        )
    return signals if len(names) <= MOST_SIGNALS else signals.take(_most_telling(signals, lines))


class _Spread(NamedTuple):
    name: str
    share: float


def _most_telling(signals: Signals, lines: Lines) -> list[str]:
    """The names of the features with the largest correlation ratio (Fisher 1925), in the table's order."""
    starts = np.linspace(0, max(len(lines) - SLICE, 0), SLICES).astype(np.int64)
    places = np.unique(np.concatenate([np.arange(start, min(start + SLICE, len(lines))) for start in starts]))
    places = places[lines.recorded[places] >= 0]
    values = signals.read(lines.row[places])
    spreads = [_Spread(name, correlation_ratio(values[name], lines.recorded[places])) for name in signals.names]
    best = {spread.name for spread in sorted(spreads, key=lambda spread: -spread.share)[:MOST_SIGNALS]}
    return [name for name in signals.names if name in best]


def correlation_ratio(values: np.ndarray, classes: np.ndarray) -> float:
    """The share of a variable's variance that lies between classes."""
    known = np.isfinite(values)
    if not known.any():
        return 0.0
    values, classes = values[known], classes[known]
    counts = np.bincount(classes)
    means = np.bincount(classes, values) / np.maximum(counts, 1)
    total = float(((values - values.mean()) ** 2).sum())
    return float((counts * (means - values.mean()) ** 2).sum()) / total if total > 0 else 0.0


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    numbers = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy()
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _group_ends(source: parquet.ParquetFile | pa.Table) -> np.ndarray:
    if isinstance(source, pa.Table):
        return np.array([len(source)])
    return np.cumsum([source.metadata.row_group(group).num_rows for group in range(source.num_row_groups)])
