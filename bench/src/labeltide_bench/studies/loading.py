"""Load a data set: from files or a simulation to training and test sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from labeltide.data.sequences import Sequences
from labeltide.data.simulate import make_sequences
from labeltide_bench.studies import splits
from labeltide_bench.studies.dataset_spec import BY_TIME, CLOCK, DERIVED, DatasetSpec

if TYPE_CHECKING:
    import pyarrow as pa


class Split(NamedTuple):
    """Training and test sequences. Their labels are clean, or those of real annotators."""

    train: Sequences
    test: Sequences


def missing_files(spec: DatasetSpec, data: Path) -> list[str]:
    """The files of a data set that are not there."""
    return [name for name in (*spec.files, *spec.train, *spec.test) if not (data / name).is_file()]


def load_dataset(spec: DatasetSpec, data: Path) -> Split:
    """Read, clean, cut into windows and split one data set; the first fold where there are several."""
    return load_folds(spec, data)[0]


def load_folds(spec: DatasetSpec, data: Path) -> tuple[Split, ...]:
    """One split, or one for each fold of a cross-validation."""
    try:
        parts = _load(spec, data)
        for split in parts:
            _check_split(spec, split)
    except ValueError as error:
        raise ValueError(f"{spec.where}: {str(error).rstrip('.')}.") from None
    return parts


def _load(spec: DatasetSpec, data: Path) -> tuple[Split, ...]:
    if spec.simulate is not None:
        return _cut(spec, make_sequences(**spec.simulate), {})
    from labeltide_bench.studies import rows  # here, so that simulated studies need no tables
    from labeltide_bench.studies.derive import derive

    if spec.train:
        tables = [rows.read_rows(spec, data, files) for files in (spec.train, spec.test)]
        rows.check_label_values(spec, *tables)
        return (Split(*(_windows(spec, rows.clean_rows(spec, table), spec.features) for table in tables)),)
    table = rows.read_rows(spec, data, spec.files)
    rows.check_label_values(spec, table)
    table, features = rows.clean_rows(spec, table), list(spec.features)
    if any(getattr(spec, name) != DatasetSpec.__dataclass_fields__[name].default for name in DERIVED):
        table, features = derive(spec, table)
    by_column = spec.split.get("by", BY_TIME) != BY_TIME
    return _cut(spec, _windows(spec, table, features), rows.groups_of_sequences(spec, table) if by_column else {})


def _windows(spec: DatasetSpec, table: pa.Table, features: Sequence[str]) -> Sequences:
    """Sequences with one annotator for each column of labels, coded in the order of the classes of the study."""
    by_column = [_windows_of(spec, table, features, column) for column in spec.label_columns.values()]
    labels = np.concatenate(
        [np.array([*sequences.classes, -1], dtype=np.int8)[sequences.labels] for sequences in by_column], axis=2
    )
    classes = tuple(range(len(spec.labels)))  # a class may be absent from one of two files
    names = tuple(spec.label_columns) if spec.annotators else None
    return replace(by_column[0], labels=labels, classes=classes, annotators=names)


def _windows_of(spec: DatasetSpec, table: pa.Table, features: Sequence[str], column: str) -> Sequences:
    codes = table[column].to_numpy()
    present = np.unique(codes[codes >= 0])
    if len(present) < 2:
        raise ValueError(f"all rows are of the class {list(spec.labels)[present[0]]!r}. There must be two classes")
    return Sequences.from_table(
        table,
        sequence=spec.sequence,
        time=spec.time,
        label=column,
        features=list(features),
        clock=CLOCK if spec.clock else None,
        zscore=spec.zscore or None,
        window=spec.window,
        offset=spec.offset,
        keep_tail=spec.keep_tail,
    )


def _cut(spec: DatasetSpec, study: Sequences, groups: Mapping[Any, Any]) -> tuple[Split, ...]:
    share, seed, by = (spec.split.get(key, default) for key, default in (("test", 0.2), ("seed", 0), ("by", None)))
    n_pieces = len({groups[name] for name in study.ids}) if groups else len(study)
    if n_pieces < max(2, spec.folds):
        what = f"{'one value' if n_pieces == 1 else f'{n_pieces} values'} of {by!r}" if groups else "one window"
        needed = f"{spec.folds}: one for each fold" if spec.annotators else "two: one to train on, one to test on"
        raise ValueError(f"there is only {what}, and a split needs {needed}")
    if spec.annotators:
        fold = splits.fold_of([groups[name] for name in study.ids], spec.folds, seed)
        return tuple(
            Split(study.take(fold != test_fold), study.take(fold == test_fold)) for test_fold in range(spec.folds)
        )
    if by == BY_TIME:
        test = splits.by_time(study.ids, share)
    elif groups:
        test = splits.by_group([groups[name] for name in study.ids], share, seed)
    else:
        test = splits.at_random(len(study), share, seed)
    return (Split(study.take(~test), study.take(test)),)


def _check_split(spec: DatasetSpec, split: Split) -> None:
    names: list[Any] = list(spec.labels) or list(split.train.classes)
    for part, study in zip(split._fields, split, strict=True):
        if not len(study) or not (study.labels >= 0).any():
            raise ValueError(f"the split leaves nothing to {part}. Lower split.test, or cut shorter windows")
    absent = [name for code, name in enumerate(names) if not (split.train.labels == code).any()]
    if absent:
        raise ValueError(f"the training part holds no label of the class {absent[0]!r}. Choose another split.seed")
