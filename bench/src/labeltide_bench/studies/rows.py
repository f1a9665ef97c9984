"""Table rows of a data set: reading, class codes, trimming and outliers, as Arrow tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.columns import open_table
from labeltide_bench.studies.dataset_spec import BY_TIME, CLASS, RECORDING, ROW, DatasetSpec


def read_rows(spec: DatasetSpec, data: Path, files: tuple[str, ...]) -> pa.Table:
    """All table rows of the files in order, with the columns that the study names and their class codes."""
    table = pa.concat_tables([_open(spec, data / name) for name in files], promote_options="permissive")
    if not len(table):
        raise ValueError(f"the files {', '.join(files)} hold no row")
    table = table.append_column(ROW, pa.array(np.arange(len(table))))
    table = table.append_column(RECORDING, pa.array(np.zeros(len(table), np.int8)))
    class_of = {value: code for code, values in enumerate(spec.labels.values()) for value in values}
    for label, column in spec.label_columns.items():
        codes = np.array([class_of.get(value, -1) for value in table[label].to_pylist()], dtype=np.int64)
        table = table.append_column(column, pa.array(codes))
    return table


def check_label_values(spec: DatasetSpec, *tables: pa.Table) -> None:
    """Every value under `labels` occurs in some row."""
    columns = [table[label] for table in tables for label in spec.label_columns]
    there = list(dict.fromkeys(value for column in columns for value in column.unique().to_pylist()))
    absent = [value for values in spec.labels.values() for value in values if value not in there]
    if absent:
        raise ValueError(
            f"labels has values that no row of column {' or '.join(map(repr, spec.label_columns))} holds: "
            f"{_shorten(absent)}. "
            f"There are: {_shorten(there)}"
        )


def clean_rows(spec: DatasetSpec, table: pa.Table) -> pa.Table:
    """Leave out trimmed ends, outliers and rows of no class. Recorded labels are missing there instead."""
    if spec.trim is not None:
        table = table.filter(pa.array(_inside(spec, table)))
    if spec.drop_outliers is not None:
        columns = np.column_stack([numbers(table, name) for name in spec.features])
        distance, scale = np.abs(columns - columns.mean(0)), columns.std(0)
        far = (distance >= spec.drop_outliers * scale) & (scale > 0)  # a constant has no outliers
        table = table.filter(pa.array(~far.any(1)))
    if not spec.annotators:
        table = table.filter(pc.greater_equal(table[CLASS], 0))
    if not len(table):
        raise ValueError("no row is left; look at labels, trim and drop_outliers")
    return table


def groups_of_sequences(spec: DatasetSpec, table: pa.Table) -> dict[Any, Any]:
    """Sequence → its one value in the column to split by."""
    column = spec.split["by"]
    if table[column].null_count:
        raise ValueError(f"split.by = {column!r} must be given in every row. {table[column].null_count} rows lack it")
    groups: dict[Any, Any] = {}
    for name, group in zip(table[spec.sequence].to_pylist(), table[column].to_pylist(), strict=True):
        if groups.setdefault(name, group) != group:
            raise ValueError(
                f"split.by = {column!r} must be one value for each sequence. Sequence {name!r} has "
                f"{groups[name]!r} and {group!r}; name a sequence column that lies within it"
            )
    return groups


def _open(spec: DatasetSpec, path: Path) -> pa.Table:
    """The columns of one file that the study names."""
    there, load, _ = open_table(path)
    by = spec.split.get("by", BY_TIME)
    wanted = [spec.sequence, spec.time, *spec.label_columns, *spec.feature_columns, *spec.keep]
    wanted += [spec.zscore] if spec.zscore not in ("", "sequence") or spec.zscore in there else []
    wanted += [by] if by != BY_TIME else []
    names = [name for name in dict.fromkeys(wanted) if name not in (ROW, RECORDING)]
    absent = [name for name in names if name not in there]
    if absent:
        raise ValueError(f"{path} has no column {_shorten(absent)}. It has: {_shorten(there, 20)}")
    return load(names).to_arrow()


def _inside(spec: DatasetSpec, table: pa.Table) -> np.ndarray:
    """Keep `rows` rows before the first and after the last label that differs from `value`, in each sequence."""
    assert spec.trim is not None
    busy = np.array([label != spec.trim["value"] for label in table[spec.label].to_pylist()])
    times = table[spec.time].to_numpy()
    sequences = np.array(table[spec.sequence].to_pylist(), dtype=object)
    keep = np.zeros(len(busy), dtype=bool)
    for name in dict.fromkeys(sequences):
        rows = np.flatnonzero(sequences == name)
        rows = rows[np.argsort(times[rows], kind="stable")]
        inside = np.flatnonzero(busy[rows])
        if len(inside):
            start, stop = inside[0] - spec.trim["rows"], inside[-1] + spec.trim["rows"]
            keep[rows[max(start, 0) : stop + 1]] = True
    return keep


def numbers(table: pa.Table, name: str) -> np.ndarray:
    """A feature column as floats."""
    try:
        return table[name].cast(pa.float64()).to_numpy()
    except pa.ArrowException:
        raise ValueError(f"the feature column {name!r} must hold numbers. Got {table[name].type}") from None


def _shorten(values: list[Any], most: int = 8) -> str:
    shown = ", ".join(repr(value) for value in values[:most])
    return shown + (f", ... ({len(values)} in all)" if len(values) > most else "")
