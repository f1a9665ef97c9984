"""The specification of a data set in a study file: the keys of a [datasets.NAME] table and their checks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from labeltide import _validation
from labeltide.data.simulate import make_sequences
from labeltide_bench.studies import keys

ROW, RECORDING, CLASS, CLOCK = "_row", "_recording", "_class", "_clock"  # columns that loading adds
AGREEMENT, MAJORITY = "agreement", "majority"  # what recorded labels may be measured against
CLEAN = "clean"  # the third: a column of clean labels
BY_TIME = "time"  # splits by anything else are by the column of that name


@dataclass(frozen=True)
class DatasetSpec:
    """One [datasets.NAME] of a study file.

    Attributes
    ----------
    files, or train and test : paths below the data folder
        `train` and `test` fix the split; with `files`, `split` says how to cut.
    simulate : arguments of `make_sequences`, in place of files
    sequence, time : columns; without them the file is one recording in the order of its rows
    labels : class name → the values of the label column that belong to it; other rows are dropped
    annotators : columns of labels by real annotators, in place of `label`; methods see the labels of one at a time
        Values that are not under `labels` are missing labels, and no row is dropped.
    reference : the labels that predictions are compared with where there are `annotators`; no fit sees them
        "agreement" is the label on which all of them agree, "majority" that of most of the others; missing where
        there is none.
    clean : column of clean labels, where `label` holds recorded ones, such as self-reports beside a measurement
        Methods see `label`. Predictions and Q(t) are compared with `clean`, which no fit sees. `label` is then the one
        annotator.
    keep : column → the one value that rows must have there
    every : keep every n-th row, after features are computed
    moved : feature → {columns, rows}: log(1 + Euclidean distance of these columns from their values so many rows ago)
    levels : categorical columns, one-hot encoded
    clock : {per, step, name}: time since the first row of a sequence, in units of `per` of the time column, rounded
        to bins of width `step`; the position in the window by default
    zscore : features are standardised within the groups of this column; "" for none
    drop_outliers : rows with a feature this many standard deviations from its mean are dropped
    trim : {value, rows}: keep this many rows around the part where the label column is not `value`
    split : {test, seed, by}: the share of windows in the test part, chosen at random; by = COLUMN keeps the windows of
        one group together, and by = "time" takes the last windows of each sequence
        With `annotators` or `clean` {by, folds, seed}: grouped cross-validation, each fold being one draw.
    settings : parameters of every method on this data set
    optional : leave the data set out where its files are missing, instead of raising an error
    faithful, note : whether the data are those of the paper, and a description
    like : another data set of the study, whose keys are the defaults here
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
    annotators: tuple[str, ...] = ()
    reference: str = AGREEMENT
    clean: str = ""
    keep: Mapping[str, Any] = field(default_factory=dict)
    every: int = 1
    moved: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    clock: Mapping[str, Any] | None = None
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
        """The name of the table, for errors."""
        return f"[datasets.{self.name!r}]"

    @property
    def split_by_people(self) -> bool:
        """Whether training and test part share no person, night or recording: then methods go by these units too."""
        return bool(self.annotators) or self.split.get("by", BY_TIME) != BY_TIME

    @property
    def split_name(self) -> str:
        """The split in words."""
        if self.train:
            return "as published"
        by = self.split.get("by")
        where = f"by {by}" if by else "random windows"
        return f"{self.folds} folds {where}" if self.annotators else where

    @property
    def folds(self) -> int:
        """Number of splits into training and test part."""
        return int(self.split.get("folds", 1))

    @property
    def label_columns(self) -> dict[str, str]:
        """Column of labels → the column of class codes that loading adds."""
        recorded = (*self.annotators, self.clean) if self.clean else self.annotators
        return {name: f"{CLASS} {name}" for name in recorded} or {self.label: CLASS}

    @property
    def feature_columns(self) -> list[str]:
        """The columns of the files that features are computed from."""
        made = [column for movement in self.moved.values() for column in movement["columns"]]
        return [*self.features, *made, *self.levels]

    @property
    def n_classes(self) -> int:
        if self.simulate is None:
            return len(self.labels)
        return int(self.simulate.get("n_classes", SIMULATE["n_classes"].default))

    @property
    def n_steps(self) -> int | None:
        """The steps of a window; None where they are known after loading only."""
        if self.simulate is None:
            return self.window
        return int(self.simulate.get("n_steps", SIMULATE["n_steps"].default))


def read_dataset(name: str, entries: Mapping[str, Any]) -> DatasetSpec:
    """Check one data set of a study; `like` copies the keys of another data set."""
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
    if spec.clean:
        spec = _with_clean_column(spec, entry)
    _check_source(spec, entry)
    if spec.simulate is None:
        _check_columns_named(spec, entry)
    return spec


def _with_clean_column(spec: DatasetSpec, entry: Mapping[str, Any]) -> DatasetSpec:
    """The label column as the one annotator, measured by the clean column."""
    idle = sorted(set(entry) & {"annotators", "reference"})
    if idle:
        raise ValueError(f"{spec.where} has 'clean', which is the reference of 'label'. Take out: {', '.join(idle)}.")
    if spec.clean == spec.label:
        raise ValueError(f"{spec.where}.clean must be another column than 'label'. Got {spec.clean!r} for both.")
    return replace(spec, annotators=(spec.label,), reference=CLEAN)


def _check_source(spec: DatasetSpec, entry: Mapping[str, Any]) -> None:
    for path in map(PurePath, (*spec.files, *spec.train, *spec.test)):
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{spec.where} must name files below the data folder. Got {str(path)!r}.")
    sources = [bool(spec.files), bool(spec.train or spec.test), spec.simulate is not None]
    if sum(sources) != 1 or bool(spec.train) != bool(spec.test):
        raise ValueError(f"{spec.where} needs exactly one of 'files', 'train' with 'test', or 'simulate'.")
    idle = sorted(set(entry) & {"split", *DERIVED}) if spec.train else []
    if idle:
        raise ValueError(
            f"{spec.where} has 'train' and 'test', which are its split. Their rows are taken as they are. "
            f"Take out: {', '.join(idle)}."
        )
    if spec.simulate is not None:
        idle = sorted(set(entry) & TABLE_KEYS)
        if idle or "by" in spec.split:
            what = ", ".join(idle) or "split.by"
            raise ValueError(f"{spec.where} is simulated and has no columns. Take out: {what}.")


def _check_columns_named(spec: DatasetSpec, entry: Mapping[str, Any]) -> None:
    if not spec.feature_columns:
        raise ValueError(f"{spec.where} needs 'features', the columns to learn from.")
    if not spec.labels:
        raise ValueError(f"{spec.where} needs 'labels', such as {{ still = [0], moving = [1, 2] }}.")
    for label in spec.label_columns:
        if label in spec.feature_columns:
            raise ValueError(f"{spec.where}.features must not hold {label!r}, the column of labels.")
    if spec.annotators:
        _check_recorded(spec, entry)
    elif "reference" in entry or "folds" in spec.split:
        raise ValueError(
            f"{spec.where}: 'reference' and split.folds are for labels of real people. Name 'annotators', or a column "
            "'clean'."
        )


def _check_recorded(spec: DatasetSpec, entry: Mapping[str, Any]) -> None:
    """Recorded labels come from files, need a second column of labels as reference, and are split by groups."""
    named = "clean" if spec.clean else "annotators"
    idle = sorted(set(entry) & {"trim", "train", "test", *(() if spec.clean else ("label",))})
    if idle:
        raise ValueError(f"{spec.where} has {named!r}, beside which these say nothing. Take out: {', '.join(idle)}.")
    if len(spec.label_columns) < 2:
        raise ValueError(f"{spec.where}.annotators must name at least two columns: one is measured by the others.")
    if "folds" not in spec.split or "test" in spec.split or spec.split.get("by", BY_TIME) == BY_TIME:
        raise ValueError(
            f"{spec.where} has {named!r} and needs split = {{ by = COLUMN, folds = NUMBER }}. Got {dict(spec.split)}."
        )


def _labels(where: str, value: Any) -> dict[str, list[Any]]:
    classes = {name: keys.value_list(f"{where}.{name}", values) for name, values in keys.table(where, value).items()}
    _validation.check_classes(classes, where)
    owner: dict[Any, str] = {}
    for name, values in classes.items():
        for label_value in values:
            if not isinstance(label_value, str | int | float):
                raise ValueError(f"{where}.{name} must hold texts or numbers. Got {label_value!r}.")
            if label_value in owner:
                both = f"{owner[label_value]} and {name}"
                raise ValueError(f"{where} must give every value to one class. Got {label_value!r} in {both}.")
            owner[label_value] = name
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


MOVED = keys.table_of({"columns": keys.text_list, "rows": keys.number_between(1, whole=True)}, ("columns", "rows"))
SIMULATE = inspect.signature(make_sequences).parameters
CHECKS: dict[str, keys.Check] = {
    "like": keys.text,
    "files": keys.text_list,
    "train": keys.text_list,
    "test": keys.text_list,
    "simulate": _simulate,
    "sequence": keys.text,
    "time": keys.text,
    "features": keys.text_list,
    "label": keys.text,
    "labels": _labels,
    "annotators": keys.text_list,
    "reference": lambda where, value: _validation.check_choice(where, value, (AGREEMENT, MAJORITY)),
    "clean": keys.text,
    "keep": keys.table,
    "every": keys.number_between(1, whole=True),
    "moved": lambda where, value: {
        name: MOVED(f"{where}.{name}", entry) for name, entry in keys.table(where, value).items()
    },
    "levels": keys.text_list,
    "clock": keys.table_of(
        {"per": keys.number_between(0, above=True), "step": keys.number_between(0, above=True), "name": keys.text},
        ("per", "step", "name"),
    ),
    "zscore": keys.text,
    "window": keys.number_between(1, whole=True),
    "offset": keys.number_between(0, whole=True),
    "keep_tail": keys.flag,
    "drop_outliers": keys.number_between(0, above=True),
    "trim": keys.table_of(
        {"value": lambda where, value: value, "rows": keys.number_between(0, whole=True)}, ("value", "rows")
    ),
    "split": keys.table_of(
        {
            "test": keys.number_between(0, 0.9, above=True),
            "seed": keys.number_between(0, whole=True),
            "by": keys.text,
            "folds": keys.number_between(2, whole=True),
        }
    ),
    "settings": keys.table,
    "optional": keys.flag,
    "faithful": keys.flag,
    "note": keys.text,
}
DERIVED = {"keep", "every", "moved", "levels", "clock"}  # keys that make something of the table's columns
# Keys that say something about a table, and nothing about simulated data.
TABLE_KEYS = set(CHECKS) - {"like", "simulate", "split", "settings", "optional", "faithful", "note"}
