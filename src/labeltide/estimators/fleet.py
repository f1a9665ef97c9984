"""Train several estimators of one method as one batched program (a fleet); a single fit is a fleet of one."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from torch import Tensor

from labeltide import _validation
from labeltide._clock import Cells, Period, check_clocks, check_gaps, check_period, find_cells, one_period, wrap_clock
from labeltide._fleet import member_generators, put_members, stack
from labeltide._workers import current_workers
from labeltide.data.clusters import (
    ClusterWarning,
    Sources,
    count_clusters,
    draw_units,
    encode_clusters,
    find_sources,
    neighbours_look_alike,
    splitting_units,
    spread_labels,
)
from labeltide.data.scaler import MAX_STEPS, apply_scaling, find_scaling
from labeltide.models import MODELS, make_model
from labeltide.models.base import SequenceModel, check_logits
from labeltide.noise.functions import FixedNoise, NoiseFunction
from labeltide.training import (
    Checkpoint,
    Fleet,
    FleetData,
    History,
    Schedule,
    clock_grid,
    epoch_bar,
    fingerprint,
    free_memory,
    train,
)
from labeltide.training.objective import Objective

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier


logger = logging.getLogger("labeltide.estimators")

MEMORY_SHARE = 0.6  # of the free memory, for what the estimate of a member's need leaves out
NOISE_BYTES = 8 * 2**20  # the paper's network for Q, its gradient, Adam's moments and snapshots
MAX_UNIT_FEATURES = 16  # features of unit variance; more are scaled down together
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

    def repeat(self, copies: int) -> FleetFit:
        """Several copies of each fit, next to each other and with its seed."""
        estimators = [estimator for estimator in self.estimators for _ in range(copies)]
        seeds = tuple(seed for seed in self.seeds for _ in range(copies))
        return replace(self, estimators=estimators, data=self.data.repeat_members(copies), seeds=seeds)

    def new_model(self) -> SequenceModel:
        """Untrained networks, each initialised from its member's seed."""
        settings = self.settings
        n_features = self.data.features.shape[-1]
        options = {"hidden_size": settings.hidden_size, "causal": settings.causal}
        model = make_model(settings.model, self.members, n_features, self.n_classes, **options)
        model.initialise(member_generators(self.seeds)).to(self.data.features.device)
        first = self.data.features[:1].expand(self.members, 1, -1, -1)
        try:
            with torch.no_grad():
                logits = model(first, self.data.mask[:1].expand(self.members, 1, -1))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            shape = tuple(first.shape[1:])
            raise ValueError(f"The model cannot be run on features of shape {shape}: {error}") from error
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
        **options: Any,
    ) -> History:
        """Train networks and noise jointly, in place; `options` of the `Schedule` precede those of the estimators."""
        settings = self.settings
        names = ("epochs", "batch_size", "learning_rate", "clip", "max_restarts")
        schedule = Schedule(**{name: getattr(settings, name) for name in names} | options)
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
    settings = estimators[0]
    device = _validation.check_device(settings.device)
    if np.ndim(clock) == 3 and not settings.several_clocks:  # type: ignore[arg-type]
        takers = " and ".join(method.name for method in METHODS.values() if method.several_clocks)
        raise ValueError(f"Several clocks at once are for {takers} alone. Give {settings.name} one: shape (n, steps).")
    inputs = {"clock": clock, "lengths": lengths, "trusted": trusted, "groups": groups, "gaps": gaps}
    fleet_fit, scaling = prepare(estimators, X, labels, {**inputs, "clusters": clusters})
    for number, part in enumerate(_parts(settings, fleet_fit.data, device)):
        own = replace(
            fleet_fit,
            estimators=estimators[part],
            data=fleet_fit.data.members_in(part).to(device),
            seeds=fleet_fit.seeds[part],
            part=f"-{number}" if number else "",
        )
        store(own, settings._fit_fleet(own), scaling)
    if settings.checkpoint is not None:
        folder = Path(settings.checkpoint)
        for path in folder.glob(f"{CHECKPOINT_PREFIX}*.safetensors"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # someone else's files lie there too
            folder.rmdir()


def store(fleet_fit: FleetFit, fitted: FittedFleet, scaling: np.ndarray | None) -> None:
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
        estimator.scaling_ = scaling
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
    try:
        clock = np.asarray(_validation.plain_array(clock), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"clock must be numbers. Got {clock!r}.") from None
    if not np.isfinite(clock).all():
        raise ValueError("clock must be finite. Got NaN or infinity.")
    return estimator.cells_.cell_of(clock) if estimator.cells_ else wrap_clock(clock, one_period(estimator.period))


def _parts(settings: NoisyLabelClassifier, data: FleetData, device: str) -> list[slice]:
    """Split a fleet that would not fit into memory."""
    rows = min(settings.batch_size, len(data.features))
    known = MODELS.get(settings.model) if isinstance(settings.model, str) else None
    kept_per_unit = (known or SequenceModel).kept_per_unit
    floats_per_step = 2 * data.features.shape[2] + kept_per_unit * settings.hidden_size
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
    if any(not np.array_equal(each.scaling_, estimators[0].scaling_) for each in estimators[1:]):  # type: ignore[arg-type]
        return np.concatenate([predict_fleet([each], X, lengths) for each in estimators])
    features, counts = estimators[0]._check_features(X, lengths)
    return predict_scaled(estimators, features, _validation.steps_mask(counts, features.shape[1]))


def predict_scaled(estimators: Sequence[NoisyLabelClassifier], features: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """`predict_fleet` for features as `_check_features` gives them, with a mask of shape (n, steps)."""
    device = _validation.check_device(estimators[0].device)
    model = stack([estimator.model_ for estimator in estimators]).to(device)
    probabilities = model_log_probs(model, torch.from_numpy(features), torch.from_numpy(mask), device).exp()
    ensembles = probabilities.split([estimator.model_.members for estimator in estimators])
    probabilities = torch.stack([networks.mean(0) for networks in ensembles])
    return np.where(mask[..., None], probabilities.double().cpu().numpy(), 0.0)


def learn_scaling(X: ArrayLike, mask: np.ndarray) -> np.ndarray:
    """The scaling of each feature, (4, features), without padding; of very many rows, from evenly spaced ones.

    Many features are scaled down together, so that the norm of a step is that of `MAX_UNIT_FEATURES` features of unit
    variance: the initial weights and the learning rate are made for that (docs/decisions/026-standardised-features.md).
    """
    every = -(-mask.size // MAX_STEPS)
    scaling = find_scaling(np.asarray(np.asarray(_validation.plain_array(X))[::every], dtype=np.float64)[mask[::every]])
    scaling[3] *= max(1.0, scaling.shape[1] / MAX_UNIT_FEATURES) ** 0.5
    return scaling


def scale_features(X: ArrayLike, features: np.ndarray, mask: np.ndarray, scaling: np.ndarray | None) -> np.ndarray:
    """Standardise X into `features`, which hold it in single precision; padding is zero.

    The scaling starts from X itself: single precision would lose what varies around a large offset.
    """
    if scaling is None:
        return features
    given = np.asarray(_validation.plain_array(X))
    if np.may_share_memory(features, given):
        features = np.empty_like(features)
    rows = max(1, STEPS_AT_ONCE // mask.shape[1])
    for start in range(0, len(features), rows):
        part = slice(start, start + rows)
        features[part] = np.where(mask[part, :, None], apply_scaling(given[part], scaling), 0.0)
    return features


def as_array(classes: Sequence[Any]) -> np.ndarray:
    """Class names as a one-dimensional array, of objects where NumPy would change them."""
    if len({type(name) for name in classes}) == 1 and isinstance(classes[0], str | int | float | bool):
        return np.asarray(classes)
    return np.fromiter(classes, dtype=object, count=len(classes))


class Training(NamedTuple):
    """Networks to be trained with the forward loss and a fixed Q, in place."""

    fleet_fit: FleetFit
    model: SequenceModel
    noise: FixedNoise
    stage: str
    how: dict[str, Any]  # for `FleetFit.train`; with "stop_together" so many members stay in one part

    def run(self) -> None:
        """Train all networks here."""
        self.fleet_fit.train(self.model, self.noise, Objective(), stage=self.stage, **self.how)


def train_all(trainings: Sequence[Training]) -> None:
    """Train independent fleets: one after the other here, or in parts by the workers of the context.

    There are as many parts of a fleet as workers, each of whole groups that stop together.
    """
    engine = current_workers()
    if engine.count == 1:
        for training in trainings:
            training.run()
        return
    # A copy, because torch moves a tensor that is sent to a process to shared memory, away from arrays on it.
    shared = [(replace(each.fleet_fit, data=each.fleet_fit.data.to("cpu", copy=True)), each.how) for each in trainings]
    parts = []  # (which of the trainings, members of it, and these untrained)
    for index, (fleet_fit, model, noise, stage, how) in enumerate(trainings):
        members = torch.arange(fleet_fit.members).unflatten(0, (-1, how.get("stop_together", 1)))
        pieces = [piece.flatten() for piece in members.tensor_split(engine.count) if len(piece)]
        for number, piece in enumerate(pieces, 1):
            name = f"{stage}, part {number} of {len(pieces)}" if len(pieces) > 1 else stage
            parts.append((index, piece, model.take(piece).cpu(), noise.take(piece).cpu(), name))
    for number, trained in engine.run(_train_part, shared, parts):
        index, members = parts[number][:2]
        device = trainings[index].fleet_fit.data.features.device
        every = torch.arange(len(members), device=device)
        put_members(trainings[index].model, members.to(device), trained.to(device), every)


def _train_part(
    shared: list[tuple[FleetFit, dict[str, Any]]], part: tuple[int, Tensor, SequenceModel, FixedNoise, str]
) -> SequenceModel:
    """Train some members of a fleet, on the device that the worker has."""
    index, members, model, noise, stage = part
    whole, how = shared[index]
    device = _validation.check_device(whole.settings.device)
    whole.settings.verbose = False  # the bars of several workers would mix
    estimators, seeds = zip(*((whole.estimators[i], whole.seeds[i]) for i in members.tolist()), strict=True)
    fleet_fit = replace(whole, estimators=estimators, data=whole.data.members_in(members).to(device), seeds=seeds)
    Training(fleet_fit, model.to(device), noise.to(device), stage, how).run()
    return model.cpu()


# Of several clocks, up to `FEW_CLASSES` classes and beyond (docs/decisions/007-families-of-q.md).
MAX_CELLS, MAX_CELLS_MANY_CLASSES = 576, 144  # by hand
FEW_CLASSES = 3
# Share of the labelled rows that one cluster may hold without a warning (docs/decisions/019-people-are-the-unit.md).
MAX_CLUSTER_SHARE = 0.6  # by hand


def prepare(
    estimators: Sequence[NoisyLabelClassifier],
    X: ArrayLike,
    labels: Sequence[ArrayLike],
    inputs: Mapping[str, Any],
) -> tuple[FleetFit, np.ndarray | None]:
    """Check and encode the arguments of `fit_fleet`, hold rows out, and standardise the features.

    Returns the request to fit all members, and the scaling of the features, None without `standardize`. Where the
    method splits rows, it warns of rows that depend on each other and are told apart by no clusters.
    """
    groups, clusters, trusted = inputs["groups"], inputs["clusters"], inputs["trusted"]
    settings, seeds = estimators[0], tuple(find_seed(estimator.random_state) for estimator in estimators)
    features, counts = _validation.check_features(X, inputs["lengths"])
    n, n_steps = features.shape[:2]
    mask = _validation.steps_mask(counts, n_steps)
    moments = check_clocks(inputs["clock"], counts, n_steps)
    between = check_gaps(inputs["gaps"], counts, n_steps)
    arrays = [_validation.check_labels(y, *mask.shape) for y in labels]
    if len({y.shape for y in arrays}) > 1:
        raise ValueError("The label arrays of one fleet must have one shape. Pad annotators who are missing with -1.")
    together = np.stack(arrays)
    present = mask[..., None] & ~_validation.missing_labels(together)
    classes = _validation.find_classes(together, present)
    for y, recorded in zip(arrays, present, strict=True):
        _validation.find_classes(y, recorded)  # each member needs two classes
    codes = _validation.encode_labels(together, present, classes)
    sources = find_sources(codes.shape[-1], groups, n)
    codes = spread_labels(codes, sources.columns(groups, n), len(sources.names))
    grid, points, cells = find_grid(moments, mask, settings.period, len(classes))
    labelled = np.asarray((codes >= 0).any((2, 3)))  # (members, rows)
    people = None if clusters is None else encode_clusters(clusters, n)
    held = np.zeros((len(labels), n), dtype=bool)
    if settings.early_stopping:
        share = settings.validation_fraction
        held = np.stack([hold_out(seed, rows, share, people) for seed, rows in zip(seeds, labelled, strict=True)])
    if settings.cross_fits or settings.early_stopping:
        _warn_of_splits(features, mask, labelled, people)
    known = None if trusted is None else torch.from_numpy(_validation.encode_trusted(trusted, mask, classes))
    scaling = learn_scaling(X, mask) if settings.standardize else None
    data = FleetData(
        features=torch.from_numpy(scale_features(X, features, mask, scaling)),
        mask=torch.from_numpy(mask),
        labels=torch.from_numpy(codes),
        grid=torch.from_numpy(grid),
        points=None if points is None else torch.from_numpy(points),
        weights=torch.from_numpy(~held).float(),
        held_out=torch.from_numpy(held),
        trusted=known,
        gaps=None if between is None else torch.from_numpy(between),
    )
    return FleetFit(estimators, data, classes, seeds, sources, cells, people), scaling


def find_grid(
    moments: np.ndarray, mask: np.ndarray, period: Period, n_classes: int
) -> tuple[np.ndarray, np.ndarray | None, Cells | None]:
    """The distinct moments of the clock and the index of each step among them; with several clocks, their cells."""
    if moments.ndim == 3:
        cells = find_cells(moments, mask, period, MAX_CELLS if n_classes <= FEW_CLASSES else MAX_CELLS_MANY_CLASSES)
        return np.arange(len(cells.grid), dtype=np.float64), cells.cell_of(moments), cells
    return *clock_grid(wrap_clock(moments, one_period(period)), mask), None


def hold_out(seed: int, labelled: np.ndarray, fraction: float, clusters: np.ndarray | None = None) -> np.ndarray:
    """Draw a validation share of the rows that hold a label, in whole clusters: only those can decide when to stop."""
    n = int(labelled.sum())
    if n < 2:
        raise ValueError(f"early_stopping needs at least two sequences with labels, one to hold out. Got {n}.")
    target = min(max(1, round(fraction * n)), n - 1)
    return draw_units(splitting_units(clusters, labelled), labelled, target, np.random.default_rng([seed, 2]))


def _warn_of_splits(features: np.ndarray, mask: np.ndarray, labelled: np.ndarray, clusters: np.ndarray | None) -> None:
    """Warn where rows that look dependent are split one by one, or where a cluster leaves too little beside itself."""
    message = None
    if clusters is None:
        if neighbours_look_alike(features, mask):
            message = (
                "Adjacent rows look alike, as windows of one person do, so rows that are held out say less than they "
                "seem to. Pass clusters=, naming the person, night or recording of each row."
            )
    elif min(count_clusters(clusters, rows) for rows in labelled) < 2:
        message = (
            "clusters must name at least two clusters with labels, to hold out one of them. Got fewer, so rows are "
            "split as if they were independent. Give more people or recordings."
        )
    elif (share := max(np.bincount(clusters[rows]).max() / rows.sum() for rows in labelled)) > MAX_CLUSTER_SHARE:
        message = (
            f"One of the clusters holds {100 * share:.0f} % of the rows with labels, so the networks that judge it "
            "learn from few rows. Name shorter recordings in clusters, such as days, or give more people."
        )
    if message is not None:
        warnings.warn(message, ClusterWarning, stacklevel=5)  # at the call of `fit`


PER_MEMBER = {"random_state", "noise"}  # the parameters in which the estimators of one fleet may differ
UNRELATED = PER_MEMBER | {"device", "checkpoint", "verbose", "model"}  # parameters that a resumed fit may change


def check_fleet(estimators: Sequence[NoisyLabelClassifier], labels: Sequence[ArrayLike]) -> None:
    """Check that estimators are of one method with the same settings, with a label array for each."""
    if not len(estimators) or len(estimators) != len(labels):
        raise ValueError(f"Give one label array for each estimator. Got {len(estimators)} and {len(labels)}.")
    first = estimators[0]
    for other in estimators[1:]:
        theirs, wanted = other.get_params(deep=False), first.get_params(deep=False)
        differing = [name for name in wanted if name not in PER_MEMBER and theirs.get(name) != wanted[name]]
        if type(other) is not type(first) or differing:
            raise ValueError(
                "The estimators of one fleet must be of one method and differ in "
                f"{' and '.join(sorted(PER_MEMBER))} only. Got {type(other).__name__} with other values of "
                f"{differing}. A module of your own must be the same object in all of them; better pass a factory."
            )
    if not isinstance(first.standardize, bool | np.bool_):
        raise ValueError(f"standardize must be True or False. Got {first.standardize!r}.")
    for name in ("hidden_size", "epochs", "batch_size"):
        _validation.check_number(name, getattr(first, name), 1, whole=True)
    _validation.check_number("learning_rate", first.learning_rate, 0, above=True)
    _validation.check_number("validation_fraction", first.validation_fraction, 0, 0.9, above=True)
    _validation.check_number("max_restarts", first.max_restarts, 0, whole=True)
    if first.clip is not None:
        _validation.check_number("clip", first.clip, 0, above=True)
    check_period(first.period)
    if first.checkpoint is not None and not isinstance(first.random_state, int | np.integer):
        raise ValueError(
            "With checkpoint, random_state must be a whole number: a resumed fit goes on with the same seed. "
            f"Got random_state={first.random_state!r}."
        )


def find_seed(random_state: Any) -> int:
    """A whole number from what scikit-learn calls a random state."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        _validation.check_number("random_state", random_state, 0, 2**32 - 1, whole=True)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


class UnknownMethodError(KeyError, ValueError):
    """Raised for a name that is no method; it reads as a sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


class Methods(Mapping[str, "type[NoisyLabelClassifier]"]):
    """Name → class, loaded when first asked for. An unknown name is answered with the names there are."""

    homes: ClassVar[dict[str, tuple[str, str]]] = {
        "ignore": ("paper", "IgnoreClassifier"),
        "anchor": ("paper", "AnchorClassifier"),
        "volmin": ("paper", "VolMinClassifier"),
        "plugin": ("paper", "PlugInClassifier"),
        "discontinuous": ("paper", "DiscontinuousClassifier"),
        "continuous": ("paper", "ContinuousClassifier"),
        "known": ("paper", "KnownNoiseClassifier"),
        "tide": ("tide", "TideClassifier"),
    }

    def __getitem__(self, name: str) -> type[NoisyLabelClassifier]:
        if name not in self.homes:
            raise UnknownMethodError(f"Unknown method {name!r}. Choose one of: {', '.join(self)}.")
        module, method = self.homes[name]
        return getattr(import_module(f"labeltide.estimators.{module}"), method)

    def __iter__(self) -> Iterator[str]:
        return iter(self.homes)

    def __len__(self) -> int:
        return len(self.homes)

    def __repr__(self) -> str:
        return repr(dict(self))


METHODS = Methods()


STEPS_AT_ONCE = 2**20  # steps that are predicted together, over all sequences and members


@torch.no_grad()
def model_log_probs(model: SequenceModel, features: Tensor, mask: Tensor, device: str | torch.device) -> Tensor:
    """Predictions of every member for the same sequences: shape (members, n, steps, classes)."""
    rows = max(1, STEPS_AT_ONCE // (model.members * features.shape[1]))
    pieces = []
    model.eval()
    for start in range(0, len(features), rows):
        chunk, real = features[start : start + rows].to(device), mask[start : start + rows].to(device)
        shared = chunk.expand(model.members, -1, -1, -1)
        pieces.append(model(shared, real.expand(model.members, -1, -1)).log_softmax(-1))
    return torch.cat(pieces, 1)
