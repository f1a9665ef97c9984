"""What a benchmark study is, and how its TOML file is read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from labeltide import _validation
from labeltide.benchmark.datasets import DatasetSpec, read_dataset
from labeltide.estimators import METHODS
from labeltide.noise.fixed import FixedNoise
from labeltide.noise.shapes import SHAPES, make_noise

VARIANTS = ("uniform", "class-conditional")
KNOWN_NOISE = (
    "temporal",
    "static",
)  # what the method "known" is told: the true Q(t), or its average over time


@dataclass(frozen=True)
class NoiseSpec:
    """One noise shape at one level: a requested average rate, or the paper's own constants."""

    shape: str
    level: Mapping[str, Any]
    variant: str = "uniform"
    datasets: tuple[str, ...] = ()  # empty: all of the study

    def make(self, n_classes: int, n_steps: int) -> FixedNoise:
        """The noise function for a data set's classes and steps."""
        conditional = self.variant == "class-conditional"
        return make_noise(self.shape, n_classes, n_steps, class_conditional=conditional, **self.level)


@dataclass(frozen=True)
class MethodSpec:
    """A method under the name the study gives it, with its settings."""

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    per_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings_for(self, dataset: DatasetSpec) -> dict[str, Any]:
        """The data set's settings, then the method's, then those for the pair: the last one named holds."""
        pair = self.per_dataset.get(dataset.name, self.per_dataset.get(dataset.like or "", {}))
        return {**dataset.settings, **self.settings, **pair}


@dataclass(frozen=True)
class Study:
    """Every combination of data set, noise, method and draw is one run."""

    name: str
    title: str
    description: str
    draws: int
    datasets: tuple[DatasetSpec, ...]
    noise: tuple[NoiseSpec, ...]
    methods: tuple[MethodSpec, ...]
    text: str  # the file itself, kept beside the results

    def noise_for(self, dataset: DatasetSpec) -> Iterator[NoiseSpec]:
        """The noise that this data set is tried with."""
        return (noise for noise in self.noise if not noise.datasets or dataset.name in noise.datasets)


def read_study(path: str | Path) -> Study:
    """Read and check a study file; whatever is wrong is named with its key and the choices there are."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no study file {path}.")
    text = path.read_text(encoding="utf-8")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}.") from None
    try:
        return _parse(path.stem, content, text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parse(name: str, content: dict[str, Any], text: str) -> Study:
    keys = ("title", "description", "draws", "datasets", "noise", "methods")
    _validation.check_keys("key in the study", content, keys)
    for key in ("datasets", "noise", "methods"):
        if not content.get(key):
            raise ValueError(f"The study needs at least one entry under '{key}'.")
    draws = content.get("draws", 10)
    _validation.check_number("draws", draws, 1, whole=True)
    datasets = tuple(read_dataset(label, content["datasets"]) for label in content["datasets"])
    names = [dataset.name for dataset in datasets]
    return Study(
        name=name,
        title=content.get("title", name),
        description=content.get("description", ""),
        draws=draws,
        datasets=datasets,
        noise=tuple(spec for entry in content["noise"] for spec in _read_noise(entry, names)),
        methods=tuple(_read_method(label, entry, names) for label, entry in content["methods"].items()),
        text=text,
    )


def _read_noise(entry: dict[str, Any], datasets: list[str]) -> Iterator[NoiseSpec]:
    _validation.check_keys("key in [[noise]]", entry, ("shape", "rates", "constants", "variants", "datasets"))
    shape = _validation.check_choice("noise shape", entry.get("shape"), SHAPES)
    if ("rates" in entry) == ("constants" in entry):
        raise ValueError(f"[[noise]] {shape} needs either 'rates' or 'constants', a list of levels.")
    levels = [{"rate": rate} for rate in entry.get("rates", ())] or [{"constants": c} for c in entry["constants"]]
    chosen = tuple(_validation.check_choice("data set in [[noise]]", d, datasets) for d in entry.get("datasets", ()))
    for variant in entry.get("variants", VARIANTS[:1]):
        _validation.check_choice("noise variant", variant, VARIANTS)
        for level in levels:
            spec = NoiseSpec(shape, level, variant, chosen)
            spec.make(2, 100)  # an impossible rate or an unknown constant is said before anything runs
            yield spec


def _read_method(label: str, entry: dict[str, Any], datasets: list[str]) -> MethodSpec:
    settings = dict(entry)
    method = settings.pop("method", label)
    per_dataset = settings.pop("datasets", {})
    _validation.check_choice(f"method in [methods.{label!r}]", method, METHODS)
    allowed = METHODS[method]().get_params()
    for name, values in {"": settings, **per_dataset}.items():
        if name:
            _validation.check_choice(f"data set in [methods.{label!r}.datasets]", name, datasets)
        _validation.check_keys(f"setting of [methods.{label!r}]", values, allowed)
    if method == "known":
        settings["noise"] = _validation.check_choice("noise of 'known'", settings.get("noise", "temporal"), KNOWN_NOISE)
    return MethodSpec(label, method, settings, per_dataset)


def told_noise(kind: str, matrices: np.ndarray) -> np.ndarray:
    """What the method "known" is told: Q(t) itself, or its average at every step."""
    return matrices if kind == "temporal" else np.broadcast_to(matrices.mean(0), matrices.shape)
