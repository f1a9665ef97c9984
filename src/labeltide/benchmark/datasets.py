"""Data sets of a study: what a [datasets.NAME] of its file may say."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labeltide import _validation
from labeltide.benchmark import keys
from labeltide.data.simulate import make_sequences

ROW, RECORDING, CLASS = "_row", "_recording", "_class"  # columns that loading adds
BY_TIME = "time"  # splits by anything else are by the column of that name


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
    zscore : the column within whose groups features are centred and scaled; "" for none
    drop_outliers : rows with a feature this many standard deviations from its mean are dropped
    trim : {value, rows}: keep this many rows around the part where the label column is not `value`
    split : {test, seed, by}: the share of windows to test on, taken at random; by = COLUMN keeps the windows of
        one value together, and by = "time" takes the last ones of each sequence
    settings : parameters of every method on this data set
    optional : leave the data set out where its files are missing, instead of refusing to run
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
    zscore: str = ""
    window: int | None = None
    offset: int = 0
    keep_tail: bool = False
    drop_outliers: float | None = None
    trim: Mapping[str, Any] | None = None
    split: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False
    faithful: bool = True
    note: str = ""

    @property
    def where(self) -> str:
        """The data set as an error names it."""
        return f"[datasets.{self.name!r}]"

    @property
    def split_name(self) -> str:
        """The split in words."""
        if self.train:
            return "as published"
        by = self.split.get("by")
        return f"by {by}" if by else "random windows"

    @property
    def n_classes(self) -> int:
        if self.simulate is None:
            return len(self.labels)
        return int(self.simulate.get("n_classes", SIMULATE["n_classes"].default))

    @property
    def n_steps(self) -> int | None:
        """The steps of a window; None where only the data can tell."""
        if self.simulate is None:
            return self.window
        return int(self.simulate.get("n_steps", SIMULATE["n_steps"].default))


def read_dataset(name: str, entries: Mapping[str, Any]) -> DatasetSpec:
    """Check one data set of a study; `like` takes over the keys of another and changes some."""
    where = f"[datasets.{name!r}]"
    entry = keys.table(where, entries[name])
    if "like" in entry:
        others = [other for other in entries if other != name]
        other = _validation.check_choice(f"data set in {where}.like", entry["like"], others)
        base = keys.table(f"[datasets.{other!r}]", entries[other])
        if "like" in base:
            raise ValueError(f"{where}.like must name a data set without a 'like' of its own. Got {other!r}.")
        entry = {**base, **entry}
    spec = DatasetSpec(name=name, **keys.table_of(CHECKS)(where, entry))
    _check_source(spec, entry)
    if spec.simulate is None:
        _check_columns_named(spec)
    return spec


def _check_source(spec: DatasetSpec, entry: Mapping[str, Any]) -> None:
    given = [bool(spec.files), bool(spec.train or spec.test), spec.simulate is not None]
    if sum(given) != 1 or bool(spec.train) != bool(spec.test):
        raise ValueError(f"{spec.where} needs exactly one of 'files', 'train' with 'test', or 'simulate'.")
    if spec.train and "split" in entry:
        raise ValueError(f"{spec.where} has 'train' and 'test', which are its split. Take out 'split'.")
    if spec.simulate is not None:
        idle = sorted(set(entry) & TABLE_KEYS)
        if idle or "by" in spec.split:
            what = ", ".join(idle) or "split.by"
            raise ValueError(f"{spec.where} is simulated and has no columns. Take out: {what}.")


def _check_columns_named(spec: DatasetSpec) -> None:
    if not spec.features:
        raise ValueError(f"{spec.where} needs 'features', the columns to learn from.")
    if not spec.labels:
        raise ValueError(f"{spec.where} needs 'labels', such as {{ still = [0], moving = [1, 2] }}.")
    if spec.label in spec.features:
        raise ValueError(f"{spec.where}.features must not hold {spec.label!r}, the column of labels.")


def _labels(where: str, value: Any) -> dict[str, list[Any]]:
    classes = {name: keys.items(f"{where}.{name}", values) for name, values in keys.table(where, value).items()}
    _validation.check_classes(classes, where)
    owner: dict[Any, str] = {}
    for name, values in classes.items():
        for one in values:
            if not isinstance(one, str | int | float):
                raise ValueError(f"{where}.{name} must hold texts or numbers. Got {one!r}.")
            if one in owner:
                raise ValueError(f"{where} must give every value to one class. Got {one!r} in {owner[one]} and {name}.")
            owner[one] = name
    return classes


def _simulate(where: str, value: Any) -> dict[str, Any]:
    arguments = keys.table(where, value)
    _validation.check_keys(f"key in {where}", arguments, SIMULATE)
    try:
        _validation.check_number("n", arguments.get("n", 2), 2, whole=True)
        make_sequences(**{**arguments, "n": 2})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None
    return arguments


SIMULATE = inspect.signature(make_sequences).parameters
CHECKS: dict[str, keys.Check] = {
    "like": keys.text,
    "files": keys.texts,
    "train": keys.texts,
    "test": keys.texts,
    "simulate": _simulate,
    "sequence": keys.text,
    "time": keys.text,
    "features": keys.texts,
    "label": keys.text,
    "labels": _labels,
    "zscore": keys.text,
    "window": keys.number(1, whole=True),
    "offset": keys.number(0, whole=True),
    "keep_tail": keys.flag,
    "drop_outliers": keys.number(0, above=True),
    "trim": keys.table_of({"value": lambda where, value: value, "rows": keys.number(0, whole=True)}, ("value", "rows")),
    "split": keys.table_of(
        {"test": keys.number(0, 0.9, above=True), "seed": keys.number(0, whole=True), "by": keys.text}
    ),
    "settings": keys.table,
    "optional": keys.flag,
    "faithful": keys.flag,
    "note": keys.text,
}
# Keys that say something about a table, and nothing about simulated data.
TABLE_KEYS = set(CHECKS) - {"like", "simulate", "split", "settings", "optional", "faithful", "note"}
