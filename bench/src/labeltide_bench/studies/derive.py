"""Feature engineering of a study: derived features, the clock and thinning of rows. Labels are not used."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from labeltide_bench.studies.dataset_spec import CLOCK, DatasetSpec
from labeltide_bench.studies.rows import numbers


def derive(spec: DatasetSpec, table: pa.Table) -> tuple[pa.Table, list[str]]:
    """The rows to work with, in order, with the clock and all features; and the names of the features.

    Distances (`moved`) are computed over all rows, before `keep` and `every` leave some out.
    """
    table = _in_order(spec, table)
    for name, moved in spec.moved.items():
        table = table.append_column(name, pa.array(_distance(spec, table, moved["columns"], moved["rows"])))
    for column, value in spec.keep.items():
        table = table.filter(pa.array([cell_value == value for cell_value in table[column].to_pylist()], pa.bool_()))
    if not len(table):
        raise ValueError("no row is left; look at keep")
    first = _first_rows(spec, table)
    if spec.clock is not None:
        table = table.append_column(CLOCK, pa.array(_moments(spec, table, first)))
    table = table.filter(pa.array((np.arange(len(table)) - first) % spec.every == 0))
    names = [*spec.features, *spec.moved]
    for column in spec.levels:
        values = np.array(table[column].to_pylist())
        for value in np.unique(values):
            names.append(f"{column} {value}")
            table = table.append_column(names[-1], pa.array((values == value).astype(np.float32)))
    return table, names


def _in_order(spec: DatasetSpec, table: pa.Table) -> pa.Table:
    """Rows by sequence, in the order in which sequences first come, then by time."""
    sequences = table[spec.sequence].to_pylist()
    index = {name: number for number, name in enumerate(dict.fromkeys(sequences))}
    return table.take(pa.array(np.lexsort((table[spec.time].to_numpy(), [index[name] for name in sequences]))))


def _first_rows(spec: DatasetSpec, table: pa.Table) -> np.ndarray:
    """For each row of an ordered table the first row of its sequence."""
    sequences = table[spec.sequence].to_pylist()
    first: dict[object, int] = {}
    return np.array([first.setdefault(name, row) for row, name in enumerate(sequences)], dtype=np.intp)


def _distance(spec: DatasetSpec, table: pa.Table, columns: tuple[str, ...], rows: int) -> np.ndarray:
    """log(1 + distance) of the columns from their values so many rows ago, or at the first row of the sequence."""
    before = np.maximum(np.arange(len(table)) - rows, _first_rows(spec, table))
    values = np.stack([numbers(table, name) for name in columns])  # (columns, rows)
    return np.log1p(np.linalg.norm(values - values[:, before], axis=0))


def _moments(spec: DatasetSpec, table: pa.Table, first: np.ndarray) -> np.ndarray:
    """The centre of the bin of the clock in which each row lies."""
    assert spec.clock is not None
    times = numbers(table, spec.time)
    cells = np.floor((times - times[first]) / spec.clock["per"] / spec.clock["step"] + 1e-9)
    return np.round((cells + 0.5) * spec.clock["step"], 9)  # rounded, so that equal cells are equal numbers
