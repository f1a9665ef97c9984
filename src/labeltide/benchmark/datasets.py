"""Data sets of a study: from table files, or simulated, to training and test sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labeltide import _validation
from labeltide.data.sequences import Sequences
from labeltide.data.simulate import make_sequences

ROW, RECORDING, CLASS = "_row", "_recording", "_class"  # columns that loading adds


class Split(NamedTuple):
    """Labels to learn from and labels to test on; labels are clean."""

    train: Sequences
    test: Sequences


@dataclass(frozen=True)
class DatasetSpec:
    """One [datasets.NAME] of a study file.

    Attributes
    ----------
    files, or train and test : paths below the data folder
        With `train` and `test` the split is given; else `split` says how to cut.
    simulate : arguments of `make_sequences`, in place of files
    sequence, time : columns; without them the file is one recording in the order of its rows
    labels : class name → the values of the label column that belong to it; other rows are dropped
    drop_outliers : rows with a feature this many standard deviations from its mean are dropped
    trim : {value, rows}: keep this many rows around the part where the label column is not `value`
    split : {test, seed, by}: the share of windows to test on, at random, by a column, or by = "time": the last ones
    settings : parameters of every method on this data set
    faithful, note : whether the data are the paper's own, and what they are
    like : another data set of the study, whose keys and settings hold unless changed here
    """

    name: str
    like: str | None = None
    files: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    simulate: Mapping[str, Any] | None = None
    sequence: str = RECORDING
    time: str = ROW
    features: tuple[str, ...] = ()
    label: str = "label"
    labels: Mapping[str, list[Any]] = field(default_factory=dict)
    zscore: str | None = None
    window: int | None = None
    offset: int = 0
    keep_tail: bool = False
    drop_outliers: float | None = None
    trim: Mapping[str, Any] | None = None
    split: Mapping[str, Any] = field(default_factory=lambda: {"test": 0.2})
    settings: Mapping[str, Any] = field(default_factory=dict)
    faithful: bool = True
    note: str = ""

    @property
    def split_name(self) -> str:
        """The split in words."""
        if self.train:
            return "as published"
        by = self.split.get("by")
        return f"by {by}" if by else "random windows"


def read_dataset(name: str, entries: Mapping[str, Mapping[str, Any]]) -> DatasetSpec:
    """Check one data set of a study; `like` takes over the keys of another and changes some."""
    entry = dict(entries[name])
    if "like" in entry:
        other = _validation.check_choice(f"data set in [datasets.{name!r}].like", entry["like"], entries)
        entry = {**entries[other], **entry}
    allowed = [f.name for f in fields(DatasetSpec) if f.name != "name"]
    _validation.check_keys(f"key in [datasets.{name!r}]", entry, allowed)
    for key in ("files", "train", "test", "features"):
        entry[key] = tuple(entry.get(key, ()))
    spec = DatasetSpec(name=name, **entry)
    if sum((bool(spec.files), bool(spec.train and spec.test), spec.simulate is not None)) != 1:
        raise ValueError(f"[datasets.{name!r}] needs exactly one of 'files', 'train' with 'test', or 'simulate'.")
    if spec.simulate is None and (not spec.features or len(spec.labels) < 2):
        raise ValueError(f"[datasets.{name!r}] needs 'features' and at least two classes under 'labels'.")
    _validation.check_keys(f"key in [datasets.{name!r}].split", spec.split, ("test", "seed", "by"))
    return spec


@cache
def _open(path: Path) -> pa.Table:
    if not path.exists():
        raise FileNotFoundError(
            f"There is no file {path}. Point --data at the folder that holds it, or get it with "
            f"'labeltide datasets fetch {path.parent.name}'."
        )
    return pq.read_table(path)


def missing_files(spec: DatasetSpec, data: Path) -> list[str]:
    """The files of a data set that are not there."""
    return [name for name in (*spec.files, *spec.train, *spec.test) if not (data / name).exists()]


def load_dataset(spec: DatasetSpec, data: Path) -> Split:
    """Read, clean, window and split one data set."""
    if spec.simulate is not None:
        study = make_sequences(**spec.simulate)
        return _cut(study, _test_rows(spec, study, {}))
    if spec.train:
        return Split(_windows(spec, _table(spec, data, spec.train)), _windows(spec, _table(spec, data, spec.test)))
    table = _table(spec, data, spec.files)
    study = _windows(spec, table)
    by = spec.split.get("by")
    groups: dict[Any, Any] = {}
    if by not in (None, "time"):
        _check_columns(spec, table, [by])
        groups = dict(zip(table[spec.sequence].to_pylist(), table[by].to_pylist(), strict=True))
    return _cut(study, _test_rows(spec, study, groups))


def _table(spec: DatasetSpec, data: Path, names: tuple[str, ...]) -> pa.Table:
    """The rows of a data set in order, with the columns that the study works with."""
    table = pa.concat_tables([_open(data / name) for name in names], promote_options="default")
    table = table.append_column(ROW, pa.array(np.arange(len(table))))
    table = table.append_column(RECORDING, pa.array(np.zeros(len(table), np.int8)))
    _check_columns(spec, table, [spec.sequence, spec.time, spec.label, *spec.features])
    class_of = {value: code for code, values in enumerate(spec.labels.values()) for value in values}
    codes = np.array([class_of.get(value, -1) for value in table[spec.label].to_pylist()], dtype=np.int64)
    table = table.append_column(CLASS, pa.array(codes))
    if spec.trim is not None:
        table = table.filter(pa.array(_trimmed(spec, table)))
    if spec.drop_outliers is not None:
        columns = np.column_stack([table[name].to_numpy() for name in spec.features]).astype(np.float64)
        far = np.abs(columns - columns.mean(0)) >= spec.drop_outliers * columns.std(0)
        table = table.filter(pa.array(~far.any(1)))
    return table.filter(pc.greater_equal(table[CLASS], 0))


def _trimmed(spec: DatasetSpec, table: pa.Table) -> np.ndarray:
    """Keep `rows` rows before the first and after the last label that differs from `value`, in each sequence."""
    assert spec.trim is not None
    _validation.check_keys(f"key in [datasets.{spec.name!r}].trim", spec.trim, ("value", "rows"))
    busy = table[spec.label].to_numpy() != spec.trim["value"]
    sequences = np.asarray(table[spec.sequence].to_pylist())
    keep = np.zeros(len(busy), dtype=bool)
    for name in dict.fromkeys(sequences.tolist()):
        rows = np.flatnonzero(sequences == name)
        inside = np.flatnonzero(busy[rows])
        if len(inside):
            start, stop = inside[0] - spec.trim["rows"], inside[-1] + spec.trim["rows"]
            keep[rows[max(start, 0) : stop + 1]] = True
    return keep


def _windows(spec: DatasetSpec, table: pa.Table) -> Sequences:
    study = Sequences.from_table(
        table,
        sequence=spec.sequence,
        time=spec.time,
        label=CLASS,
        features=list(spec.features),
        zscore=spec.zscore or None,
        window=spec.window,
        offset=spec.offset,
        keep_tail=spec.keep_tail,
    )
    codes = np.array([*study.classes, -1], dtype=np.int8)  # a class may be absent from one of two files
    return replace(study, labels=codes[study.labels], classes=tuple(range(len(spec.labels))))


def _test_rows(spec: DatasetSpec, study: Sequences, groups: Mapping[Any, Any]) -> np.ndarray:
    share, seed = spec.split.get("test", 0.2), spec.split.get("seed", 0)
    _validation.check_number(f"[datasets.{spec.name!r}].split.test", share, 0, 0.9, above=True)
    generator = np.random.default_rng(seed)
    n_test = max(1, round(share * len(study)))
    if spec.split.get("by") == "time":
        return np.arange(len(study)) >= len(study) - n_test
    if not groups:
        return np.isin(np.arange(len(study)), generator.permutation(len(study))[:n_test])
    group_of = np.array([groups[name] for name in study.ids])
    names = generator.permutation(np.unique(group_of))
    sizes = np.cumsum([np.sum(group_of == name) for name in names])
    return np.isin(group_of, names[: 1 + np.searchsorted(sizes, n_test)])


def _cut(study: Sequences, test: np.ndarray) -> Split:
    return Split(study.take(~test), study.take(test))


def _check_columns(spec: DatasetSpec, table: pa.Table, names: list[str]) -> None:
    missing = [name for name in names if name not in table.column_names]
    if missing:
        there = ", ".join(table.column_names[:20])
        raise ValueError(
            f"[datasets.{spec.name!r}] names columns that are not there: {', '.join(missing)}. There are: {there}."
        )
