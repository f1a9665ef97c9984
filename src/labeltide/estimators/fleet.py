"""Fit several estimators of one method as one fleet; a single fit is a fleet of one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from torch import Tensor

from labeltide import _validation
from labeltide._fleet import member_generators
from labeltide.data.sequences import Sequences
from labeltide.models import make_model
from labeltide.models.base import SequenceModel
from labeltide.noise.base import NoiseFunction
from labeltide.objectives.objective import Objective
from labeltide.training import (
    AugmentedLagrangian,
    Checkpoint,
    Fleet,
    FleetData,
    History,
    Schedule,
    clock_grid,
    epoch_bar,
    fingerprint,
    train,
)

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier

PER_MEMBER = {"random_state", "noise"}  # the parameters in which the estimators of one fleet may differ


UNRELATED = PER_MEMBER | {
    "device",
    "checkpoint",
    "verbose",
    "model",
}  # parameters that a resumed fit may change
CHECKPOINT_PREFIX = "labeltide-fit-"  # the only files in a checkpoint folder that we ever delete


class FittedFleet(NamedTuple):
    """What a method leaves behind for all members."""

    model: SequenceModel
    noise: NoiseFunction
    history: History


@dataclass(frozen=True)
class FleetJob:
    """One fleet to be fitted: the estimators, their data and the steps that methods are made of."""

    estimators: Sequence[NoisyLabelClassifier]
    data: FleetData
    classes: tuple[Any, ...]
    seeds: tuple[int, ...]

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
        """Untrained networks, each member's drawn from its own seed."""
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
        _validation.check_logits(logits.shape, (self.members, 1, self.data.features.shape[1], self.n_classes))
        return model

    def new_noise(self, noise: NoiseFunction) -> NoiseFunction:
        """A noise function ready to be learned; its draws differ from those of the network."""
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
        lagrangian: AugmentedLagrangian | None = None,
    ) -> History:
        """Train networks and noise together in place."""
        settings = self.settings
        schedule = Schedule(
            epochs=settings.epochs if epochs is None else epochs,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            lagrangian=lagrangian,
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
        terms = [(penalty.name, penalty.weight) for penalty in objective.penalties]
        parts = [*vars(self.data).values(), *fleet.state_dict().values(), terms, shared, schedule, self.seeds]
        return Checkpoint(
            Path(self.settings.checkpoint) / f"{CHECKPOINT_PREFIX}{stage}.safetensors", fingerprint(*parts)
        )


def fit_fleet(
    estimators: Sequence[NoisyLabelClassifier],
    X: ArrayLike,
    labels: Sequence[ArrayLike],
    *,
    clock: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    trusted: ArrayLike | None = None,
) -> None:
    """Fit estimators that differ only in their seed (and given noise), each to its own labels, all at once.

    Every estimator ends as if it had been fitted alone, in far less time.

    Parameters
    ----------
    estimators : estimators of one method
    X : array of shape (n, steps, features)
        Shared by all.
    labels : one array for each estimator, as `fit` takes it
    clock, lengths, trusted : as `fit` takes them
    """
    _check_fleet(estimators, labels)
    device = _validation.check_device(estimators[0].device)
    names = _union_of_classes(X, labels, lengths)
    studies = [Sequences.from_arrays(X, y, clock=clock, lengths=lengths, classes=names) for y in labels]
    seeds = tuple(_seed(estimator.random_state) for estimator in estimators)
    data = _fleet_data(studies, seeds, estimators[0], trusted).to(device)
    fitted = estimators[0]._fit_fleet(FleetJob(estimators, data, studies[0].classes, seeds))
    model, noise = fitted.model.cpu().eval(), fitted.noise.cpu().eval()
    for index, estimator in enumerate(estimators):
        estimator.model_, estimator.noise_ = model.member(index), noise.member(index)
        estimator.history_ = fitted.history.member(index)
        estimator.classes_ = as_array(studies[0].classes)
        estimator.n_features_in_ = data.features.shape[-1]
        estimator.clock_grid_ = data.grid.double().cpu().numpy()
        estimator.noise_matrices_ = estimator.noise_.at(estimator.clock_grid_)
    _remove_checkpoints(estimators[0].checkpoint)


@torch.no_grad()
def model_log_probs(
    model: SequenceModel, features: Tensor, mask: Tensor, device: str | torch.device, rows: int = 1024
) -> Tensor:
    """Predictions of every member for the same sequences: shape (members, n, steps, classes)."""
    pieces = []
    model.eval()
    for start in range(0, len(features), rows):
        chunk, real = features[start : start + rows].to(device), mask[start : start + rows].to(device)
        shared = chunk.expand(model.members, -1, -1, -1)
        pieces.append(model(shared, real.expand(model.members, -1, -1)).log_softmax(-1))
    return torch.cat(pieces, 1)


def as_array(classes: Sequence[Any]) -> np.ndarray:
    """Class names as a one-dimensional array, of objects where NumPy would change them."""
    if len({type(name) for name in classes}) == 1 and isinstance(classes[0], str | int | float | bool):
        return np.asarray(classes)
    array = np.empty(len(classes), dtype=object)
    for index, name in enumerate(classes):
        array[index] = name
    return array


def _check_fleet(estimators: Sequence[NoisyLabelClassifier], labels: Sequence[ArrayLike]) -> None:
    if not len(estimators) or len(estimators) != len(labels):
        raise ValueError(f"Give one label array for each estimator. Got {len(estimators)} and {len(labels)}.")
    first = estimators[0]
    _check_settings(first)
    for other in estimators[1:]:
        given, wanted = other.get_params(deep=False), first.get_params(deep=False)
        differing = [name for name in wanted if name not in PER_MEMBER and given.get(name, wanted) != wanted[name]]
        if type(other) is not type(first) or differing:
            raise ValueError(
                "The estimators of one fleet must be of one method and differ in "
                f"{' and '.join(sorted(PER_MEMBER))} only. Got {type(other).__name__} with other values of {differing}."
            )


def _check_settings(estimator: NoisyLabelClassifier) -> None:
    for name in ("hidden_size", "epochs", "batch_size"):
        _validation.check_number(name, getattr(estimator, name), 1, whole=True)
    _validation.check_number("learning_rate", estimator.learning_rate, 0, above=True)
    _validation.check_number("validation_fraction", estimator.validation_fraction, 0, 0.9, above=True)


def _union_of_classes(X: ArrayLike, labels: Sequence[ArrayLike], lengths: ArrayLike | None) -> tuple[Any, ...] | None:
    """The classes of all members together; None leaves a lone member to name its own."""
    if len(labels) == 1:
        return None
    shape = np.shape(X)[:2]
    stacked = [_validation.check_labels(y, *shape) for y in labels]
    counts = _validation.check_lengths(lengths, *shape)
    real = _validation.steps_mask(counts, shape[1])[..., None]
    together = np.concatenate(stacked, -1)
    return _validation.find_classes(together, real & ~_validation.missing_labels(together))


def _fleet_data(
    studies: Sequence[Sequences],
    seeds: Sequence[int],
    settings: NoisyLabelClassifier,
    trusted: ArrayLike | None,
) -> FleetData:
    first = studies[0]
    grid, points = clock_grid(first.clock, first.mask)
    held_out = np.zeros((len(studies), len(first)), dtype=bool)
    if settings.early_stopping:
        held_out = np.stack([_hold_out(seed, len(first), settings.validation_fraction) for seed in seeds])
    return FleetData(
        features=torch.from_numpy(first.features),
        mask=torch.from_numpy(first.mask),
        labels=torch.from_numpy(np.stack([study.labels for study in studies])),
        grid=torch.from_numpy(grid),
        points=None if points is None else torch.from_numpy(points),
        weights=torch.from_numpy(~held_out).float(),
        held_out=torch.from_numpy(held_out),
        trusted=None if trusted is None else torch.from_numpy(_encode_trusted(trusted, first)),
    )


def _encode_trusted(trusted: ArrayLike, study: Sequences) -> np.ndarray:
    labels = _validation.check_labels(trusted, *study.features.shape[:2])
    if labels.shape[2] != 1:
        raise ValueError(f"trusted must hold one label per step. Got shape {labels.shape}.")
    present = study.mask[..., None] & ~_validation.missing_labels(labels)
    return _validation.encode_labels(labels, present, study.classes, "trusted")[..., 0]


def _hold_out(seed: int, n: int, fraction: float) -> np.ndarray:
    if n < 2:
        raise ValueError("early_stopping needs at least two sequences, one of them to hold out. Got 1.")
    chosen = np.random.default_rng([seed, 2]).permutation(n)[: min(max(1, round(fraction * n)), n - 1)]
    return np.isin(np.arange(n), chosen)


def _remove_checkpoints(folder: str | Path | None) -> None:
    if folder is None:
        return
    for path in Path(folder).glob(f"{CHECKPOINT_PREFIX}*.safetensors"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # someone else's files lie there too
        Path(folder).rmdir()


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        _validation.check_number("random_state", random_state, 0, 2**32 - 1, whole=True)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
