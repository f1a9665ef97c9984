"""The specification of a method in a study file, the settings of the paper, and a trial fit of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from labeltide import _validation
from labeltide.estimators import METHODS
from labeltide_bench.studies import keys
from labeltide_bench.studies.dataset_spec import DatasetSpec
from labeltide_bench.studies.drawing import NOISE_VARIANTS
from labeltide_bench.studies.own import check_name, method_class
from labeltide_bench.studies.parts import PARTS

if TYPE_CHECKING:
    from labeltide_bench.studies.study import NoiseSpec

KNOWN_NOISE = ("temporal", "static")  # noise of the method "known": the true Q(t), or its average over time
OURS = {"device", "checkpoint", "verbose", "random_state"}  # parameters that the benchmark sets
CLEAN_METHOD = "tide"  # this method trains its last networks on trusted labels alone where all are trusted

_usable: set[tuple[str, bool, str]] = set()  # settings that were tried in this process: studies share most of theirs


# Batch sizes of the paper's data sets (its appendix D.2 and its code), and the weights of the diagonal in its code.
PAPER_DATASETS = {
    "moving": (64, 0.05),
    "senior": (256, 0.01),
    "blinking": (128, 0.001),
    "sleeping": (512, 0.01),
    "synthetic": (256, 0.05),
}
NOT_IN_THE_PAPER: dict[str, Any] = {"clip": None, "max_restarts": 0, "standardize": False}  # our steps, undone
CODE_NETWORK = {"raw_steps": True, "scaled_weights": False, "bounded_logits": False}  # of Q, in text and code
# The settings of each method in the paper's text, and in its code.
PAPER_SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ignore": ({}, {}),
    "known": ({}, {"milestones": (50, 100), "shuffle": False}),  # of its figure 5
    "anchor": ({}, {"new_network": True}),
    "plugin": ({}, {"new_network": True}),
    "volmin": ({"noise_milestones": ()}, {"noise_milestones": (50, 100)}),
    "discontinuous": ({"noise_milestones": ()}, {"noise_milestones": (50, 100), "objective": "penalised"}),
    "continuous": (
        {"noise_milestones": (), **CODE_NETWORK},
        {"noise_milestones": (50, 100), **CODE_NETWORK, "objective": "penalised"},
    ),
}


def published_settings(method: str, source: str = "text", dataset: str | None = None) -> dict[str, Any]:
    """The parameters with which a method is trained exactly as in the paper's text or in its published code.

    Parameters
    ----------
    method : one of ignore, known, anchor, plugin, volmin, discontinuous, continuous
    source : {"text", "code"}, default "text"
        Nagaraj and others (2025), or the code that they published, which differs from it in places.
    dataset : one of moving, senior, blinking, sleeping, synthetic, optional
        Adds the batch size of this data set and, for the code, the weight of the diagonal of Q.

    Examples
    --------
    >>> import labeltide as lt
    >>> lt.published_settings("plugin", "code", "moving")
    {'clip': None, 'max_restarts': 0, 'standardize': False, 'new_network': True, 'batch_size': 64}
    >>> clf = lt.ContinuousClassifier(**lt.published_settings("continuous", "code"), random_state=0)
    >>> clf.objective
    'penalised'
    """
    _validation.check_choice("source", source, ("text", "code"))
    _validation.check_choice("method of the paper", method, PAPER_SETTINGS)
    settings = NOT_IN_THE_PAPER | PAPER_SETTINGS[method][source == "code"]
    if dataset is not None:
        _validation.check_choice("data set of the paper", dataset, PAPER_DATASETS)
        settings["batch_size"], diagonal_weight = PAPER_DATASETS[dataset]
        if "objective" in settings:
            settings["diagonal_weight"] = diagonal_weight
    return settings


@dataclass(frozen=True)
class MethodSpec:
    """A method under the name of the study, with its settings.

    With `published`, "text" or "code", parameters that the study does not name are those of the paper
    (`labeltide.published_settings`).
    With `clean` it is an upper bound, not a competitor: it is trained on the clean labels. With `same_information` it
    is trained on as many of them as carry the information of the noisy ones (`drawing.keep_information`). `without`
    names parts of `tide` that are switched off. `variants` and `rates` limit the noise it is fitted to; empty: all.
    """

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    per_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published: str = ""
    clean: bool = False
    same_information: bool = False
    without: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()

    def takes(self, noise: NoiseSpec) -> bool:
        """Whether this method is fitted to labels with this noise."""
        of_variant = not self.variants or noise.variant in self.variants
        return of_variant and (not self.rates or noise.level.get("rate") in self.rates)

    @property
    def where(self) -> str:
        """The name of the table, for errors."""
        return f"[methods.{self.label!r}]"

    def settings_for(self, dataset: DatasetSpec) -> dict[str, Any]:
        """Published settings, overridden by those of the data set, of the method and of the pair, in this order."""
        pair = self.per_dataset.get(dataset.name, self.per_dataset.get(dataset.like or "", {}))
        published: dict[str, Any] = {}
        if self.published:
            name = next((each for each in (dataset.name, dataset.like) if each in PAPER_DATASETS), None)
            published = published_settings(self.method, self.published, name)
        every = {**published, **dataset.settings, **self.settings, **pair}
        defaults = method_class(self.method)().get_params()
        # TOML has no None: `clip = false` stands for it.
        return {k: None if v is False and not isinstance(defaults[k], bool) else v for k, v in every.items()}


def read_method(label: str, entry: Any, datasets: Sequence[str]) -> MethodSpec:
    """Check one [methods.NAME] of a study."""
    where = f"[methods.{label!r}]"
    settings = dict(keys.table(where, entry))
    method = check_name(f"method in {where}", settings.pop("method", label), METHODS)
    published = settings.pop("settings", "")
    if published:
        try:
            published_settings(method, published)
        except ValueError as error:
            raise ValueError(f"{where}.settings: {error}") from None
    clean = keys.flag(f"{where}.clean", settings.pop("clean", False))
    same_information = keys.flag(f"{where}.same_information", settings.pop("same_information", False))
    without, variants = (_texts(f"{where}.{key}", settings.pop(key, None)) for key in ("without", "variants"))
    for part in without:
        _validation.check_choice(f"part in {where}.without", part, PARTS)
    for variant in variants:
        _validation.check_choice(f"variant in {where}.variants", variant, NOISE_VARIANTS)
    rates = tuple(keys.value_list(f"{where}.rates", settings.pop("rates"))) if "rates" in settings else ()
    if clean or same_information:
        _check_clean(where, label, method)
    per_dataset = keys.table(f"{where}.datasets", settings.pop("datasets", {}))
    for name, values in per_dataset.items():
        _validation.check_choice(f"data set in {where}.datasets", name, datasets)
        _check_names(f"{where}.datasets.{name!r}", method, keys.table(f"{where}.datasets.{name!r}", values))
    _check_names(where, method, settings)
    if method == "known":
        settings.setdefault("noise", KNOWN_NOISE[0])
    comparison = (clean, same_information, without, variants, rates)
    return MethodSpec(label, method, settings, per_dataset, published, *comparison)


def _texts(where: str, value: Any) -> tuple[str, ...]:
    return () if value is None else tuple(keys.text_list(where, value))


def _check_clean(where: str, label: str, method: str) -> None:
    if method != CLEAN_METHOD:
        raise ValueError(f"{where}.clean is for method = {CLEAN_METHOD!r}, which can train on trusted labels alone.")
    if not label.casefold().startswith("clean"):
        raise ValueError(f"{where} sees clean labels. Let its name begin with 'clean', so that no page ranks it.")


def _check_names(where: str, method: str, values: Mapping[str, Any]) -> None:
    defaults = {name: value for name, value in method_class(method)().get_params().items() if name not in OURS}
    _validation.check_keys(f"setting in {where}", values, defaults)
    for name, value in values.items():
        if isinstance(defaults[name], bool):
            keys.flag(f"{where}.{name}", value)
        if name == "noise":
            _validation.check_choice(f"noise in {where}", value, KNOWN_NOISE)


def check_settings(methods: Iterable[MethodSpec], datasets: Iterable[DatasetSpec]) -> None:
    """Fit every method with every setting to a small example, so that errors come before hours of work."""
    for dataset in datasets:
        for method in methods:
            _check_names(f"{dataset.where}.settings", method.method, dataset.settings)
            settings = method.settings_for(dataset)
            if (key := (method.method, method.clean, repr(sorted(settings.items())))) not in _usable:
                _try(f"{method.where} on {dataset.where}", method, settings)
                _usable.add(key)


def _try(where: str, method: MethodSpec, settings: dict[str, Any]) -> None:
    """Fit a few short sequences for one epoch: enough of them for methods that fold or hold out."""
    toy, labels = np.random.default_rng(0).normal(size=(16, 6, 2)), np.tile([0, 0, 1, 1, 0, 1], (16, 1))
    known = {"noise": np.eye(2)} if "noise" in settings else {}
    try:
        if "epochs" in settings:
            _validation.check_number("epochs", settings["epochs"], 1, whole=True)
        ours = {**known, "epochs": 1, "device": "cpu", "random_state": 0}
        method_class(method.method)(**{**settings, **ours}).fit(toy, labels, trusted=labels if method.clean else None)
    except Exception as error:  # any error here would stop the study later
        raise ValueError(f"{where}: these settings cannot be used. {error}") from None


def known_noise(kind: str, matrices: np.ndarray) -> np.ndarray:
    """The noise of the method "known": Q(t), or its average at every step."""
    return matrices if kind == "temporal" else np.broadcast_to(matrices.mean(0), matrices.shape)
