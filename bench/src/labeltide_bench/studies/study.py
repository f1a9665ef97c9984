"""A benchmark study: data sets, noise, methods and draws, read from a TOML file and checked."""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from labeltide import _validation
from labeltide.noise.functions import FixedNoise
from labeltide.noise.simulate import LEVELS, SHAPES
from labeltide_bench.studies import keys
from labeltide_bench.studies.dataset_spec import DatasetSpec, read_dataset
from labeltide_bench.studies.drawing import CONDITIONAL, NOISE_VARIANTS, REVERSED
from labeltide_bench.studies.measure import METRICS
from labeltide_bench.studies.method_spec import MethodSpec, check_settings, read_method
from labeltide_bench.studies.own import check_name, is_own, shaped_noise

PAPER_RATES = "paper"  # in place of a list of rates: all levels of the paper
RECORDED = "recorded"  # not a shape: labels, and their errors, are those of real annotators


@dataclass(frozen=True)
class NoiseSpec:
    """One noise shape at one level: a rate as the paper names its levels, constants, or a real annotator."""

    shape: str
    level: Mapping[str, Any]
    variant: str = "uniform"
    datasets: tuple[str, ...] = ()  # empty: all of the study

    def make(self, n_classes: int, n_steps: int) -> FixedNoise:
        """The noise function for a data set's classes and steps."""
        conditional = self.variant == CONDITIONAL
        noise = shaped_noise(self.shape, n_classes, n_steps, class_conditional=conditional, **self.level)
        return FixedNoise(np.asarray(noise)[..., ::-1, ::-1].copy()) if self.variant == REVERSED else noise


@dataclass(frozen=True)
class Study:
    """Every combination of data set, noise, method and draw is one run.

    With `same_noise` all draws have the labels of the first and differ in the initialisation of the networks alone.
    """

    name: str
    title: str
    description: str
    draws: int
    same_noise: bool
    metrics: tuple[str, ...]  # those that records keep
    datasets: tuple[DatasetSpec, ...]
    noise: tuple[NoiseSpec, ...]
    methods: tuple[MethodSpec, ...]
    text: str  # the file itself, kept beside the results

    def noise_for(self, dataset: DatasetSpec) -> Iterator[NoiseSpec]:
        """The noise of this data set; for recorded labels one entry for each annotator."""
        for noise in self.noise:
            if noise.datasets and dataset.name not in noise.datasets:
                continue
            if noise.shape == RECORDED and dataset.annotators:
                yield from (replace(noise, level={"annotator": name}) for name in dataset.annotators)
            else:
                yield noise

    def draws_for(self, dataset: DatasetSpec) -> int:
        """Number of draws of each cell of this data set."""
        return dataset.folds if dataset.annotators else self.draws

    @property
    def n_runs(self) -> int:
        """The number of runs of the study."""
        return sum(
            self.draws_for(dataset) * method.takes(noise)
            for dataset in self.datasets
            for noise in self.noise_for(dataset)
            for method in self.methods
        )


def part_of(study: Study, datasets: Sequence[str] = (), methods: Sequence[str] = (), draws: int | None = None) -> Study:
    """Some data sets, methods or first draws of a study; its parts share one folder of records."""
    for what, names, known in (
        ("data set", datasets, [each.name for each in study.datasets]),
        ("method", methods, [each.label for each in study.methods]),
    ):
        for name in names:
            _validation.check_choice(what, name, known)
    return replace(
        study,
        datasets=tuple(each for each in study.datasets if not datasets or each.name in datasets),
        methods=tuple(each for each in study.methods if not methods or each.label in methods),
        draws=keys.number_between(1, study.draws, whole=True)("draws", study.draws if draws is None else draws),
    )


def read_study(path: str | Path) -> Study:
    """Read and check a study file. Errors name the key, the rule and the choices.

    Examples
    --------
    >>> import labeltide as lt
    >>> study = lt.read_study("small.toml")
    >>> study.title, [method.label for method in study.methods]
    ('A small study', ['ignore'])
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no study file {path}.")
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        if (folder := str(path.parent.resolve())) not in sys.path:  # for noise and methods of the user's own
            sys.path.append(folder)
        return _parse(path.stem, tomllib.loads(text), text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        none = " TOML has no None: write false, as in clip = false." if re.search(r"=\s*None\b", text) else ""
        raise ValueError(f"{path} is not valid TOML: {error}.{none}") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be a study.") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parse(name: str, content: dict[str, Any], text: str) -> Study:
    allowed = ("title", "description", "draws", "same_noise", "metrics", "datasets", "noise", "methods")
    _validation.check_keys("key in the study", content, allowed)
    for key in ("datasets", "noise", "methods"):
        if not content.get(key):
            raise ValueError(f"The study needs at least one entry under '{key}'.")
    entries = keys.table("[datasets]", content["datasets"])
    datasets = tuple(read_dataset(label, entries) for label in entries)
    names = [dataset.name for dataset in datasets]
    methods = keys.table("[methods]", content["methods"])
    study = Study(
        name=name,
        title=keys.text("title", content.get("title", name)),
        description=keys.text("description", content.get("description", "")),
        draws=keys.number_between(1, whole=True)("draws", content.get("draws", 10)),
        same_noise=keys.flag("same_noise", content.get("same_noise", False)),
        metrics=_read_metrics(content.get("metrics", list(METRICS))),
        datasets=datasets,
        noise=tuple(spec for entry in _noise_entries(content["noise"]) for spec in _read_noise(entry, names)),
        methods=tuple(read_method(label, entry, names) for label, entry in methods.items()),
        text=text,
    )
    _check_noise(study)
    _check_known_noise(study)
    check_settings(study.methods, study.datasets)
    return study


def _read_metrics(value: Any) -> tuple[str, ...]:
    return tuple(_validation.check_choice("metric", name, METRICS) for name in keys.text_list("metrics", value))


def _noise_entries(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise ValueError("noise must be a list of tables, each under a line [[noise]] with two brackets.")
    return [keys.table("[[noise]]", entry) for entry in value]


def _read_noise(entry: dict[str, Any], datasets: list[str]) -> Iterator[NoiseSpec]:
    _validation.check_keys("key in [[noise]]", entry, ("shape", "rates", "constants", "variants", "datasets"))
    shape = check_name("noise shape", entry.get("shape"), (*SHAPES, RECORDED))
    where = f"[[noise]] of shape {shape!r}:"
    chosen = keys.text_list(f"{where} datasets", entry["datasets"]) if "datasets" in entry else ()
    for name in chosen:
        _validation.check_choice(f"data set in {where} datasets", name, datasets)
    if shape == RECORDED:
        _validation.check_keys(f"key in {where[:-1]}", entry, ("shape", "datasets"))
        yield NoiseSpec(shape, {}, RECORDED, chosen)
        return
    if ("rates" in entry) == ("constants" in entry):
        raise ValueError(f"{where} it needs either 'rates' or 'constants', a list of levels.")
    if "rates" in entry:
        levels = [{"rate": rate} for rate in _read_rates(where, shape, entry["rates"])]
    else:
        constants = keys.value_list(f"{where} constants", entry["constants"])
        levels = [{"constants": keys.table(f"{where} every level of constants", level)} for level in constants]
    for variant in keys.text_list(f"{where} variants", entry.get("variants", ["uniform"])):
        _validation.check_choice(f"variant in {where} variants", variant, NOISE_VARIANTS)
        yield from (NoiseSpec(shape, level, variant, chosen) for level in levels)


def _read_rates(where: str, shape: str, value: Any) -> list[Any]:
    if value == PAPER_RATES:
        if is_own(shape):
            raise ValueError(f"{where} rates = 'paper' is for the shapes of the paper. Name a list of rates.")
        return [percent / 100 for percent in LEVELS[shape]]
    return keys.value_list(f"{where} rates", value)


def _check_noise(study: Study) -> None:
    """Refuse noise that is impossible for the number of classes, repeated or missing, before anything runs."""
    possible = set()
    for dataset in study.datasets:
        chosen = [(noise.shape, repr(noise.level), noise.variant) for noise in study.noise_for(dataset)]
        if not chosen:
            raise ValueError(f"{dataset.where} has no [[noise]]. Name it under 'datasets' of one, or take it out.")
        (shape, level, variant), count = Counter(chosen).most_common(1)[0]
        if count > 1:
            raise ValueError(f"[[noise]] {shape}, {variant}, {level} is there {count} times for {dataset.where}.")
        if any((shape == RECORDED) != bool(dataset.annotators) for shape, _, _ in chosen):
            raise ValueError(
                f"{dataset.where}: data sets with 'annotators', and only they, have [[noise]] of shape {RECORDED!r} "
                "and no other. Name the data sets of each [[noise]] under its 'datasets'."
            )
        drawn = [] if dataset.annotators else list(study.noise_for(dataset))
        for noise, name in zip(drawn, chosen, strict=False):
            size = (dataset.n_classes, dataset.n_steps or 100)
            if (*name, *size) not in possible:
                possible.add((*name, *size))
                _check_level(noise, dataset, *size)


def _check_known_noise(study: Study) -> None:
    """Recorded labels have no known truth, so that methods which need it are refused."""
    recorded = next((dataset for dataset in study.datasets if dataset.annotators), None)
    for method in study.methods:
        if recorded and (method.clean or method.same_information or method.method == "known"):
            where = recorded.where
            why = f"which {where} keeps for measuring" if recorded.clean else f"which nobody knows of {where}"
            raise ValueError(f"{method.where} is given the truth, {why}. Take it out.")


def _check_level(noise: NoiseSpec, dataset: DatasetSpec, n_classes: int, n_steps: int) -> None:
    try:
        noise.make(n_classes, n_steps)
    except ValueError as error:
        raise ValueError(
            f"[[noise]] of shape {noise.shape!r} with {dataset.where} ({n_classes} classes, {noise.variant}): {error}"
        ) from None
