"""Train several estimators of one method as one batched program (a fleet); a single fit is a fleet of one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labeltide import _validation
from labeltide._clock import Cells, one_period, wrap_clock
from labeltide._fleet import member_generators, stack
from labeltide.estimators.log_probs import model_log_probs
from labeltide.estimators.prepare import prepare
from labeltide.estimators.registry import METHODS
from labeltide.estimators.settings import UNRELATED, check_fleet, find_seed
from labeltide.models import make_model
from labeltide.models.base import SequenceModel
from labeltide.models.checks import check_logits
from labeltide.noise.base import NoiseFunction
from labeltide.objectives.objective import Objective
from labeltide.tables.sources import Sources
from labeltide.training import (
    AugmentedLagrangian,
    Checkpoint,
    Fleet,
    FleetData,
    History,
    Schedule,
    epoch_bar,
    fingerprint,
    free_memory,
    train,
)

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier

logger = logging.getLogger("labeltide.estimators")

MEMORY_SHARE = 0.6  # of the free memory, for what the estimate of a member's need leaves out
NOISE_BYTES = 8 * 2**20  # the paper's network for Q, its gradient, Adam's moments and snapshots
CHECKPOINT_PREFIX = "labeltide-fit-"  # the only files in a checkpoint folder that we ever delete

Noise = TypeVar("Noise", bound=NoiseFunction)


class FittedFleet(NamedTuple):
    """Trained networks, noise functions and histories of all members."""

    model: SequenceModel
    noise: NoiseFunction
    history: History
    learned: Sequence[dict[str, Any]] = ()  # more attributes for each estimator
    networks: Sequence[int] = ()  # how many each estimator has; one where left out


@dataclass(frozen=True)
class FleetFit:
    """A request to fit several estimators on the same features, and the training steps that methods are made of."""

    estimators: Sequence[NoisyLabelClassifier]
    data: FleetData
    classes: tuple[Any, ...]
    seeds: tuple[int, ...]
    sources: Sources  # who stands where along the last axis of the labels
    cells: Cells | None = None  # of several clocks, for which the moments of `data` are numbers of cells
    clusters: np.ndarray | None = None  # of each row, such as its person: int64 (rows,)
    part: str = ""  # distinguishes the checkpoints of a fleet that is trained in parts
    extra_inputs: tuple[Any, ...] = ()  # inputs of `fit` outside the data, which the fingerprint of checkpoints needs

    @property
    def settings(self) -> NoisyLabelClassifier:
        """The estimator whose shared parameters hold for all."""
        return self.estimators[0]

    @property
    def members(self) -> int:
        return len(self.estimators)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def new_model(self) -> SequenceModel:
        """Untrained networks, each initialised from its member's seed."""
        settings = self.settings
        n_features = self.data.features.shape[-1]
        options = {"hidden_size": settings.hidden_size, "causal": settings.causal}
        model = make_model(settings.model, self.members, n_features, self.n_classes, **options)
        model.initialise(member_generators(self.seeds)).to(self.data.features.device)
        with torch.no_grad():
            logits = model(
                self.data.features[:1].expand(self.members, 1, -1, -1),
                self.data.mask[:1].expand(self.members, 1, -1),
            )
        check_logits(logits.shape, (self.members, 1, self.data.features.shape[1], self.n_classes))
        return model

    def new_noise(self, noise: Noise) -> Noise:
        """An initialised noise function; its random numbers differ from those of the network."""
        seeds = [int(np.random.SeedSequence([seed, 1]).generate_state(1)[0]) for seed in self.seeds]
        return noise.initialise(member_generators(seeds)).to(self.data.features.device)

    def train(
        self,
        model: SequenceModel,
        noise: NoiseFunction | None,
        objective: Objective,
        *,
        stage: str = "train",
        epochs: int | None = None,
        batch_size: int | None = None,
        lagrangian: AugmentedLagrangian | None = None,
        **more: Any,
    ) -> History:
        """Train networks and noise jointly, in place; `more` goes to the `Schedule`."""
        settings = self.settings
        schedule = Schedule(
            epochs=settings.epochs if epochs is None else epochs,
            batch_size=settings.batch_size if batch_size is None else batch_size,
            learning_rate=settings.learning_rate,
            lagrangian=lagrangian,
            **more,
        )
        fleet = Fleet(model, noise)
        checkpoint = self._checkpoint(stage, fleet, objective, schedule)
        with epoch_bar(f"{settings.name} {stage}", schedule.epochs, settings.verbose) as on_epoch:
            return train(fleet, self.data, objective, schedule, self.seeds, checkpoint=checkpoint, on_epoch=on_epoch)

    def log_probs(self, model: SequenceModel) -> Tensor:
        """Predictions on the training data: shape (members, rows, steps, classes)."""
        return model_log_probs(model, self.data.features, self.data.mask, self.data.features.device)

    def _checkpoint(self, stage: str, fleet: Fleet, objective: Objective, schedule: Schedule) -> Checkpoint | None:
        if self.settings.checkpoint is None:
            return None
        shared = {k: str(v) for k, v in self.settings.get_params().items() if k not in UNRELATED}
        terms = [part for penalty in objective.penalties for part in (penalty.name, penalty.weight)]
        # Without the targets and the noise that earlier stages computed: on a GPU these differ in the last digits after
        # a fit was resumed.
        inputs = [value for name, value in vars(self.data).items() if name != "targets"]
        inputs += [*self.extra_inputs, *(self.cells.axes if self.cells else ())]
        inputs += [] if self.clusters is None else [self.clusters]
        parts = [*inputs, *fleet.model.state_dict().values(), *terms, shared, schedule, self.seeds]
        return Checkpoint(
            Path(self.settings.checkpoint) / f"{CHECKPOINT_PREFIX}{stage}{self.part}.safetensors", fingerprint(*parts)
        )


def fit_fleet(
    estimators: Sequence[NoisyLabelClassifier],
    X: ArrayLike,
    labels: Sequence[ArrayLike],
    *,
    clock: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    trusted: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    gaps: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
) -> None:
    """Fit estimators that differ only in their seed (and given noise), each to its own labels, all at once.

    Every estimator ends as if it had been fitted alone, in far less time; `classes_` are those of all label arrays
    together.

    Parameters
    ----------
    estimators : estimators of one method
    X : array of shape (n, steps, features)
        Shared by all.
    labels : one array for each estimator, as `fit` takes it
    clock, lengths, trusted, groups, gaps, clusters : as `fit` takes them

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2)
    >>> fits = [lt.IgnoreClassifier(epochs=2, random_state=seed) for seed in range(3)]
    >>> lt.fit_fleet(fits, data.features, [data.labels] * 3)
    >>> [clf.predict(data.features).shape for clf in fits]
    [(20, 10), (20, 10), (20, 10)]
    """
    check_fleet(estimators, labels)
    device = _validation.check_device(estimators[0].device)
    seeds = tuple(find_seed(estimator.random_state) for estimator in estimators)
    held_out = estimators[0].validation_fraction if estimators[0].early_stopping else 0.0
    more: dict[str, Any] = {"clock": clock, "lengths": lengths, "trusted": trusted, "groups": groups, "gaps": gaps}
    more |= {"clusters": clusters, "splits": estimators[0].cross_fits or estimators[0].early_stopping}
    if np.ndim(clock) == 3 and not estimators[0].several_clocks:  # type: ignore[arg-type]
        takers = " and ".join(method.name for method in METHODS.values() if method.several_clocks)
        raise ValueError(
            f"Several clocks at once are for {takers} alone. Give {estimators[0].name} one: shape (n, steps)."
        )
    more |= {"held_out": held_out, "period": estimators[0].period}
    data, classes, sources, cells, people = prepare(X, labels, seeds, **more)
    for number, part in enumerate(_parts(estimators[0], data, device)):
        name = f"-{number}" if number else ""
        own = data.members_in(part).to(device)
        fleet_fit = FleetFit(estimators[part], own, classes, seeds[part], sources, cells, people, name)
        _store(fleet_fit, estimators[0]._fit_fleet(fleet_fit))
    _remove_checkpoints(estimators[0].checkpoint)


def _store(fleet_fit: FleetFit, fitted: FittedFleet) -> None:
    """Set the fitted attributes of each estimator from its member."""
    model, noise = fitted.model.cpu().eval(), fitted.noise.cpu().eval()
    counts = list(fitted.networks) or [1] * fleet_fit.members
    firsts = np.cumsum([0, *counts]).tolist()
    for index, estimator in enumerate(fleet_fit.estimators):
        estimator.model_, estimator.noise_ = model.member(firsts[index], counts[index]), noise.member(index)
        estimator.history_ = fitted.history.member(index)
        estimator.classes_ = as_array(fleet_fit.classes)
        estimator.sources_ = fleet_fit.sources.names
        estimator.n_features_in_ = fleet_fit.data.features.shape[-1]
        estimator.cells_ = fleet_fit.cells
        estimator.clock_grid_ = (
            fleet_fit.data.grid.double().cpu().numpy() if fleet_fit.cells is None else fleet_fit.cells.grid
        )
        estimator.noise_matrices_, estimator.annotator_matrices_ = grid_matrices(estimator)
        for name, value in fitted.learned[index].items() if fitted.learned else ():
            setattr(estimator, name, value)


def grid_matrices(estimator: NoisyLabelClassifier) -> tuple[np.ndarray, np.ndarray | None]:
    """Q over the training clock, (points, classes, classes), and that of every source; None where all share one."""
    noise, moments = estimator.noise_, find_moments(estimator, estimator.clock_grid_)
    return noise.common_at(moments), noise.at(moments) if noise.annotators > 1 else None


def find_moments(estimator: NoisyLabelClassifier, clock: ArrayLike) -> np.ndarray:
    """Moments as the noise function of a fitted estimator takes them: with several clocks, indices of cells."""
    clock = np.asarray(clock, dtype=np.float64)
    if not np.isfinite(clock).all():
        raise ValueError("clock must be finite. Got NaN or infinity.")
    return estimator.cells_.places(clock) if estimator.cells_ else wrap_clock(clock, one_period(estimator.period))


def _parts(settings: NoisyLabelClassifier, data: FleetData, device: str) -> list[slice]:
    """Split a fleet that would not fit into memory."""
    rows = min(settings.batch_size, len(data.features))
    floats_per_step = 2 * data.features.shape[2] + (16 if settings.model == "gru" else 128) * settings.hidden_size
    models, noises = settings._networks_at_once(data.labels.shape[-1])
    needed = models * 4 * rows * data.features.shape[1] * floats_per_step + noises * NOISE_BYTES
    free = free_memory(device)
    most = max(1, int(MEMORY_SHARE * free / needed))
    if most < data.members:
        logger.info("%d fits are trained %d at a time: %.1f GiB are free.", data.members, most, free / 2**30)
    return [slice(start, start + most) for start in range(0, data.members, most)]


def predict_fleet(
    estimators: Sequence[NoisyLabelClassifier], X: ArrayLike, lengths: ArrayLike | None = None
) -> np.ndarray:
    """The probabilities that fitted estimators of one method give for the same sequences, all at once.

    Returns
    -------
    array of shape (estimators, n, steps, classes), zero on padding
    """
    features, counts = estimators[0]._check_features(X, lengths)
    mask = _validation.steps_mask(counts, features.shape[1])
    device = _validation.check_device(estimators[0].device)
    model = stack([estimator.model_ for estimator in estimators]).to(device)
    probabilities = model_log_probs(model, torch.from_numpy(features), torch.from_numpy(mask), device).exp()
    ensembles = probabilities.split([estimator.model_.members for estimator in estimators])
    probabilities = torch.stack([networks.mean(0) for networks in ensembles])
    return np.where(mask[..., None], probabilities.double().cpu().numpy(), 0.0)


def as_array(classes: Sequence[Any]) -> np.ndarray:
    """Class names as a one-dimensional array, of objects where NumPy would change them."""
    if len({type(name) for name in classes}) == 1 and isinstance(classes[0], str | int | float | bool):
        return np.asarray(classes)
    array = np.empty(len(classes), dtype=object)
    for index, name in enumerate(classes):
        array[index] = name
    return array


def _remove_checkpoints(folder: str | Path | None) -> None:
    if folder is None:
        return
    for path in Path(folder).glob(f"{CHECKPOINT_PREFIX}*.safetensors"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # someone else's files lie there too
        Path(folder).rmdir()
