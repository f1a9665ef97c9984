"""The methods of Nagaraj and others (2025), Continuous and Discontinuous, and those they are compared with."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from labeltide import _validation
from labeltide._fleet import member_generators
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet, FleetFit, hold_out
from labeltide.noise.functions import (
    WIDTHS,
    FixedNoise,
    NetworkNoise,
    NoiseFunction,
    StaticNoise,
    StepwiseNoise,
    identity_noise,
)
from labeltide.training import AugmentedLagrangian, Fleet, FleetData, evaluate
from labeltide.training.objective import LOSSES, Objective, Penalty, diagonal_norm, frobenius, log_volume, spread


class IgnoreClassifier(NoisyLabelClassifier):
    """Train on the recorded labels as if none were wrong, by cross-entropy; its Q is the identity.

    Parameters
    ----------
    shuffle : bool, default True
        Draw a new order of the sequences for every epoch.
    model, hidden_size, ..., random_state : as in `labeltide.estimators.NoisyLabelClassifier`

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.IgnoreClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.noise_at([0.5]).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """

    name = "ignore"

    shuffle: bool = True

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _check_flags(self, "shuffle")
        model = fleet_fit.new_model()
        history = fleet_fit.train(model, None, Objective(), shuffle=self.shuffle)
        return FittedFleet(model, identity_noise(fleet_fit.members, fleet_fit.n_classes), history)


class KnownNoiseClassifier(NoisyLabelClassifier):
    """Train with a known Q, through the forward or the backward loss (Patrini and others 2017).

    Parameters
    ----------
    noise : NoiseFunction or array of shape (classes, classes) or (points, classes, classes)
        A series of matrices belongs to the distinct moments of the training clock, in their order. A noise function
        with annotators, such as `FixedNoise` of five axes, gives each column of `y` a Q.
    loss : {"forward", "backward"}, default "forward"
    milestones : sequence of int, default ()
        Epochs at which the learning rate is divided by ten; the paper's code has 50 and 100 for its figure 5.
    shuffle : bool, default True
        Draw a new order of the sequences for every epoch.
    model, hidden_size, ..., random_state : as in `labeltide.estimators.NoisyLabelClassifier`

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.KnownNoiseClassifier(noise=noise, epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.predict(data.features).shape
    (20, 10)
    """

    name = "known"

    noise: NoiseFunction | ArrayLike | None = None
    loss: str = "forward"
    milestones: Sequence[int] = ()
    shuffle: bool = True

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_choice("loss", self.loss, LOSSES)
        how: dict[str, Any] = {"milestones": _check_milestones(self, "milestones"), "shuffle": self.shuffle}
        _check_flags(self, "shuffle")
        grid = fleet_fit.data.grid.cpu().double().numpy()
        known = [_check_noise(estimator.noise, grid, fleet_fit) for estimator in fleet_fit.estimators]
        matrices = np.stack([noise.at(grid) for noise in known])  # (members, [sources,] points, classes, classes)
        common = np.stack([noise.common_at(grid) for noise in known])
        if self.loss == "backward":
            condition = np.linalg.cond(matrices).max(tuple(range(matrices.ndim - 3)))  # (points,)
            if condition.max() > 1e6:
                raise ValueError(
                    "The backward loss needs a Q that can be inverted. At the clock value "
                    f'{grid[condition.argmax()]:g} it cannot. Use loss="forward".'
                )
        noise = FixedNoise(matrices, grid, common).to(fleet_fit.data.features.device)
        model = fleet_fit.new_model()
        history = replace(fleet_fit, extra_inputs=(matrices,)).train(model, noise, Objective(loss=self.loss), **how)
        return FittedFleet(model, noise, history)


def _check_flags(estimator: NoisyLabelClassifier, *names: str) -> None:
    for name in names:
        if not isinstance(getattr(estimator, name), bool):
            raise ValueError(f"{name} must be True or False. Got {getattr(estimator, name)!r}.")


def _check_milestones(estimator: Any, name: str = "noise_milestones") -> tuple[int, ...]:
    _validation.check_whole_numbers(name, getattr(estimator, name), 0, may_be_empty=True)
    return tuple(getattr(estimator, name))


def _check_noise(noise: NoiseFunction | ArrayLike | None, grid: np.ndarray, fleet_fit: FleetFit) -> NoiseFunction:
    """The known Q as a noise function that covers every moment of the training clock."""
    n_sources, n_classes = len(fleet_fit.sources.names), fleet_fit.n_classes
    if noise is None:
        raise ValueError(
            "The method 'known' needs to be told the noise. Pass noise=Q, or use 'continuous' to learn it."
        )
    if not isinstance(noise, NoiseFunction):
        series = np.asarray(noise)
        if series.ndim == 3 and len(series) not in (1, len(grid)):
            raise ValueError(
                f"noise must hold one matrix for each of the {len(grid)} clock moments. Got {len(series)}."
            )
        noise = FixedNoise(series, grid if series.ndim == 3 and len(series) == len(grid) else None)
    if noise.n_classes != n_classes:
        raise ValueError(f"noise must be for the {n_classes} classes of y. Got one for {noise.n_classes}.")
    if noise.annotators not in (1, n_sources):
        raise ValueError(f"noise must be for one annotator or the {n_sources} of y. Got one for {noise.annotators}.")
    noise.check_covers(grid)
    return noise


MIN_STEPS = 100  # steps that share one estimate where sequences do not share one clock


class AnchorPointClassifier(NoisyLabelClassifier):
    r"""Warm up on recorded labels, estimate Q at the anchor points, and continue training with the forward loss.

    Anchor points (Liu and Tao 2016; Patrini and others 2017) are steps x that almost surely belong to a class i, so
    that :math:`Q_{ij} = P(\tilde y = j \mid x)`.

    Parameters
    ----------
    warm_up : int, default 25
        Epochs on recorded labels, out of all `epochs`, before Q is estimated at the anchor points.
    percentile : float, default 97
        An anchor point is the step on this percentile of the class's predicted probability. Of n steps it is that with
        the k-th largest, k = n (1 - percentile / 100) rounded down, as in the paper's code; at least the largest.
    new_network : bool, default False
        Train another network with Q for all `epochs`, as the paper's code does, instead of the warmed-up one.
    model, hidden_size, ..., random_state : as in `labeltide.estimators.NoisyLabelClassifier`
    """

    is_temporal: ClassVar[bool]

    warm_up: int = 25
    percentile: float = 97.0
    new_network: bool = False

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_number("warm_up", self.warm_up, 1, whole=True)
        _validation.check_number("percentile", self.percentile, 0, 100)
        _check_flags(self, "new_network")
        model = fleet_fit.new_model()
        fleet_fit.train(model, None, Objective(), stage="warm-up", epochs=min(self.warm_up, self.epochs))
        probabilities = fleet_fit.log_probs(model).exp()  # of the recorded label: (members, rows, steps, classes)
        clock, groups = _groups(fleet_fit.data, self.is_temporal)
        matrices = torch.stack([anchor_rows(probabilities[:, inside], self.percentile) for inside in groups], 1)
        noise = FixedNoise(matrices.cpu().double().numpy(), clock).to(fleet_fit.data.features.device)
        epochs = max(self.epochs - self.warm_up, 1)
        if self.new_network:
            seeds = tuple(int(np.random.SeedSequence([seed, 3]).generate_state(1)[0]) for seed in fleet_fit.seeds)
            fleet_fit, epochs = replace(fleet_fit, seeds=seeds), self.epochs
            model = fleet_fit.new_model()
        history = fleet_fit.train(model, noise, Objective(), epochs=epochs)
        return FittedFleet(model, noise, history)


def anchor_rows(probabilities: Tensor, percentile: float) -> Tensor:
    """The rows of Q: for each class, the prediction at the step on that percentile of the class's probability."""
    order = probabilities.argsort(1)  # (members, steps, classes)
    kth_largest = max(1, int((1 - percentile / 100) * order.shape[1]))
    member = torch.arange(len(order), device=order.device)[:, None]
    rows = probabilities[member, order[:, -kth_largest]]  # (members, classes, classes)
    return rows / rows.sum(-1, keepdim=True)


def _groups(data: FleetData, temporal: bool) -> tuple[np.ndarray | None, list[Tensor]]:
    """The moments of the estimates, and for each a mask over (rows, steps) of the steps it is estimated from."""
    grid = data.grid.cpu().double().numpy()
    if not temporal:
        return None, [data.mask]
    if data.points is None:
        steps = torch.arange(len(grid), device=data.mask.device)
        return grid, [data.mask & (steps == step) for step in range(len(grid))]
    counts = np.bincount(data.points[data.mask].cpu().numpy(), minlength=len(grid))
    cell_of_point = np.minimum((np.cumsum(counts) - 1) // MIN_STEPS, max(counts.sum() // MIN_STEPS - 1, 0))
    cells = np.unique(cell_of_point)
    clock = np.array([np.average(grid[cell_of_point == cell], weights=counts[cell_of_point == cell]) for cell in cells])
    cell_of_step = torch.from_numpy(cell_of_point).to(data.points.device)[data.points]
    return clock, [data.mask & (cell_of_step == int(cell)) for cell in cells]


class AnchorClassifier(AnchorPointClassifier):
    """Estimate one Q for all times from anchor points, then train with it (Patrini and others 2017).

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.AnchorClassifier(warm_up=2, epochs=2, random_state=0).fit(data.features, data.labels)
    >>> bool((clf.noise_at([0.0]) == clf.noise_at([1.0])).all())
    True
    """

    name = "anchor"
    is_temporal = False


class PlugInClassifier(AnchorPointClassifier):
    """Estimate Q at every moment of the clock from that moment's anchor points, then train with it (Plug-In).

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.PlugInClassifier(warm_up=2, epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.noise_matrices_.shape  # a Q for each moment
    (10, 2, 2)
    """

    name = "plugin"
    is_temporal = True


class VolMinClassifier(NoisyLabelClassifier):
    """Learn a static Q of least volume, ``log |det Q|``, together with the network (VolMinNet, Li and others 2021).

    Parameters
    ----------
    volume_weight : float, default 1e-4
        The weight of ``log |det Q|``.
    noise_milestones : sequence of int, default (50, 100)
        Epochs at which the learning rate of Q is halved, as in the paper's code.
    model, hidden_size, ..., random_state : as in `labeltide.estimators.NoisyLabelClassifier`

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.VolMinClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> bool((clf.noise_at([0.0]) == clf.noise_at([1.0])).all())
    True
    """

    name = "volmin"

    volume_weight: float = 1e-4
    noise_milestones: Sequence[int] = (50, 100)

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_number("volume_weight", self.volume_weight, 0)
        milestones = _check_milestones(self)
        model, noise = fleet_fit.new_model(), fleet_fit.new_noise(StaticNoise(fleet_fit.members, fleet_fit.n_classes))
        objective = Objective(penalties=(Penalty("log volume", log_volume, self.volume_weight),))
        history = fleet_fit.train(model, noise, objective, noise_milestones=milestones)
        return FittedFleet(model, noise, history)


# Standard deviations of an annotator's entries of Q around the common ones: from hardly pooled to all alike
# (docs/decisions/009-several-annotators.md).
DEVIATIONS = (0.1, 0.03, 0.01, 0.0)  # by hand
CHOOSING_FRACTION = 0.2  # by hand: the share of sequences held out to choose among them
N_BLOCKS = 20  # by hand: of held-out sequences, for the standard error of a comparison
TOLERANCE = 0.5  # by hand: standard errors by which stronger pooling may be worse; it helps where labels are few
BuildNoise = Callable[[int, int], Any]  # from members and annotators to a noise function


class LearnedNoiseClassifier(NoisyLabelClassifier):
    r"""Learns Q and the network jointly; with several annotators, a Q for each with partial pooling.

    The prior :math:`Q_a \sim N(Q, s^2)` adds a penalty on deviations from the common Q. The data term averages over all
    labels while the penalty is the same for every annotator, so that annotators with few labels stay close to the
    common Q. The standard deviation s is chosen by the likelihood of held-out sequences, with the one-standard-error
    rule (Breiman and others 1984) at half a standard error.
    """

    def _networks_at_once(self, annotators: int) -> tuple[int, int]:
        return (len(DEVIATIONS), len(DEVIATIONS) * annotators) if annotators > 1 else (1, 1)

    def _learn(
        self,
        fleet_fit: FleetFit,
        build: BuildNoise,
        penalties: Sequence[Penalty],
        *,
        pooled: bool = True,
        **schedule: Any,
    ) -> FittedFleet:
        """Train a fleet with the noise function that `build` makes, regularised by the penalties.

        Annotators who are not `pooled` share one Q. `schedule` goes to the `Schedule`.
        """
        if not pooled or not _has_several_annotators(fleet_fit.data):
            model, noise = fleet_fit.new_model(), fleet_fit.new_noise(build(fleet_fit.members, 1))
            history = fleet_fit.train(model, noise, Objective(penalties=tuple(penalties)), **schedule)
            return FittedFleet(model, noise, history)

        def learn(fleet_fit: FleetFit, deviations: Tensor, stage: str = "train") -> tuple[FittedFleet, Objective]:
            r"""Train with a Q for each annotator under a Gaussian prior of standard deviation s around the common Q.

            On the scale of the average label its penalty is :math:`A \,\mathrm{mean}_a \lVert Q_a - Q \rVert^2 /
            (2 s^2 N)` for A annotators and N labels. Other penalties of each Q are weighted by the annotator's share of
            the labels, so that their weight relative to these labels is as if the annotator were alone.
            """
            data, annotators = fleet_fit.data, fleet_fit.data.labels.shape[-1]
            counts = ((data.labels >= 0) * data.weights[..., None, None]).sum((1, 2))  # (members, annotators)
            shares = counts / counts.sum(1, keepdim=True)
            model, noise = fleet_fit.new_model(), fleet_fit.new_noise(build(fleet_fit.members, annotators))
            noise.shares.copy_(shares)
            noise.tied.copy_(deviations == 0)
            strength = annotators / (2 * deviations.square() * counts.sum(1))  # infinite where all are alike
            pull = torch.where(noise.tied, 0.0, strength)[:, None]
            sizes = [replace(penalty, weight=penalty.weight * annotators * shares) for penalty in penalties]
            pooling = Penalty("pooling", partial(spread, shares=noise.shares), pull, with_data=True)
            objective = Objective(penalties=(*sizes, pooling))
            history = fleet_fit.train(model, noise, objective, stage=stage, **schedule)
            return FittedFleet(model, noise, history), objective

        return learn(fleet_fit, _choose_deviations(fleet_fit, learn))[0]


def code_penalties(n_points: int, volume_weight: float, diagonal_weight: float) -> list[Penalty]:
    """The penalties on Q in the paper's published code, for a clock of so many moments; no jitter, as there."""
    volume = Penalty("log volume", partial(log_volume, jitter=0.0), volume_weight / n_points)
    return [volume, Penalty("diagonal", diagonal_norm, diagonal_weight)]


def _has_several_annotators(data: FleetData) -> bool:
    """Whether any member has labels of more than one annotator."""
    return bool(((data.labels >= 0).any(1).any(1).sum(1) > 1).any())


def _choose_deviations(fleet_fit: FleetFit, learn: Callable[..., tuple[FittedFleet, Objective]]) -> Tensor:
    """For each member the standard deviation chosen by held-out likelihood: (members,).

    Rows are held out for early stopping, too: at the end of training the networks have memorised their labels, and the
    likelihood says little about Q.
    """
    data, every = fleet_fit.data, torch.tensor(DEVIATIONS, device=fleet_fit.data.features.device)
    held = data.held_out
    if not bool(held.any()):
        labelled = (data.labels >= 0).any(-1).any(-1).cpu().numpy()  # (members, rows)
        if labelled.sum(1).min() < 2:
            return every[len(DEVIATIONS) // 2].expand(fleet_fit.members)
        rows_of_seed = zip(fleet_fit.seeds, labelled, strict=True)
        drawn = [hold_out(seed, rows, CHOOSING_FRACTION, fleet_fit.clusters) for seed, rows in rows_of_seed]
        held = torch.from_numpy(np.stack(drawn)).to(data.features.device)
    without = replace(data, weights=data.weights * ~held, held_out=held)
    copies = replace(fleet_fit, data=without).repeat(len(DEVIATIONS))
    trained, objective = learn(copies, every.repeat(fleet_fit.members), stage="pooling")
    size = math.ceil(CHOOSING_FRACTION * len(data.features) / N_BLOCKS)
    fleet, rows = Fleet(trained.model, trained.noise), copies.data.held_out_rows(size)  # (blocks, members, size)
    losses = torch.stack([evaluate(fleet, copies.data, objective, block[None]) for block in rows])
    per_member = losses.unflatten(1, (fleet_fit.members, -1)).cpu().double().numpy().swapaxes(0, 1)
    return every[[choose_last(losses_of_member) for losses_of_member in per_member]]


def choose_last(losses: np.ndarray) -> int:
    """The last of the candidates within `TOLERANCE` standard errors of the best, from paired differences over blocks.

    Losses have shape (blocks, candidates), NaN for blocks without labels.
    """
    losses = losses[~np.isnan(losses).any(1)].clip(max=1e6)
    if len(losses) < 2:
        return losses.shape[1] // 2
    worse = losses - losses[:, [losses.mean(0).argmin()]]
    good = worse.mean(0) <= TOLERANCE * worse.std(0, ddof=1) / len(losses) ** 0.5
    return int(np.flatnonzero(good)[-1])


class DiscontinuousClassifier(LearnedNoiseClassifier):
    """Learn a free Q of least volume for each moment of the clock, together with the network.

    Several annotators have a Q each, partially pooled; held-out likelihood chooses the strength.

    Parameters
    ----------
    objective : {"volume", "penalised"}, default "volume"
        The minimum volume of the paper's text, forward loss + `volume_weight` mean log|det Q_t|, or what its published
        code minimises: forward loss + `volume_weight` mean log|det Q_t| / T + `diagonal_weight` mean ||diag Q_t||.
    volume_weight : float, default 1e-4
    diagonal_weight : float, default 0.01
        Used by the penalised objective; `published_settings` gives that of the paper's code for each data set.
    noise_milestones : sequence of int, default (50, 100)
        Epochs at which the learning rate of Q is halved, as in the paper's code.
    model, hidden_size, ..., random_state : as in `labeltide.estimators.NoisyLabelClassifier`

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.DiscontinuousClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.noise_matrices_.shape  # a Q for each moment
    (10, 2, 2)
    """

    name = "discontinuous"

    objective: str = "volume"
    volume_weight: float = 1e-4
    diagonal_weight: float = 0.01
    noise_milestones: Sequence[int] = (50, 100)

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_number("volume_weight", self.volume_weight, 0)
        milestones = _check_milestones(self)
        _validation.check_number("diagonal_weight", self.diagonal_weight, 0)
        penalties = [Penalty("log volume", log_volume, self.volume_weight)]
        if _validation.check_choice("objective", self.objective, ("volume", "penalised")) == "penalised":
            penalties = code_penalties(len(fleet_fit.data.grid), self.volume_weight, self.diagonal_weight)

        def build(members: int, annotators: int) -> StepwiseNoise:
            return StepwiseNoise(members, fleet_fit.n_classes, fleet_fit.data.grid.cpu(), annotators)

        return self._learn(fleet_fit, build, penalties, noise_milestones=milestones)


BOUND_MARGIN, BOUND_SHARE = 0.005, 0.9  # Q(t) stays at its bound if it is this near for this share of the clock
VOLUME_WEIGHT = 1e-4  # of the penalised objective, in the paper's code


class ContinuousClassifier(LearnedNoiseClassifier):
    r"""Learn a smooth Q(t) of least size, a neural network of time, together with the classifier.

    Several annotators have a Q(t) each, partially pooled; held-out likelihood chooses the strength.

    The defaults depart from the paper in the network of Q, gradient clipping and restarts; `published_settings` gives
    the parameters of the paper's text and of its code.

    Parameters
    ----------
    objective : {"lagrangian", "penalised"}, default "lagrangian"
        The augmented Lagrangian of the paper's section 4.2 and algorithm 1, or what its published code minimises:
        forward loss + 1e-4 mean log|det Q_t| / T + `diagonal_weight` mean ||diag Q_t||.
    diagonal_weight : float, default 0.01
        Used by the penalised objective; `published_settings` gives that of the paper's code for each data set.
    linear, quadratic : float, default 1
        The first values of the multipliers of the augmented Lagrangian, :math:`\lambda` and c.
    gamma, eta : float, default 2
        After a round in which the average loss exceeds `gamma` times that of the round before, c grows by `eta`.
    rounds : int, optional
        After so many rounds the multipliers stay. By default they change until training ends.
    epochs_per_round : int, default 10
        With 150 epochs, the 15 rounds of the paper.
    noise_widths : sequence of int
        Hidden layers of Q's network. The default has the ten of the paper's code.
    noise_learning_rate : float, optional
        Of Q; by default that of the network.
    noise_milestones : sequence of int, default (50, 100)
        Epochs at which the learning rate of Q is halved, as in the paper's code.
    noise_function : callable, optional
        A noise function of your own in place of the network: called with the number of members and of classes, it
        gives a `labeltide.NoiseFunction` whose parameters are learned. Its docstring has an example. All
        annotators then share one Q, and the fit cannot be saved.
    raw_steps : bool, default False
        Feed Q's network the step index 0, 1, 2, ... as the paper's code does, instead of a clock scaled to [-1, 1].
    scaled_weights : bool, default True
        Multiply the weights of Q's network by ``1 / sqrt(inputs)`` (NTK parametrisation, Jacot and others 2018). Off:
        PyTorch's own parametrisation, as in the paper's code.
    bounded_logits : bool, default True
        Keep the logits of Q between -4 and 4, so that their softmax never saturates.
    model, hidden_size, ..., random_state : as in `labeltide.estimators.NoisyLabelClassifier`

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.ContinuousClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.noise_at([0.25, 0.251]).shape  # Q at any moment
    (2, 2, 2)
    """

    name = "continuous"

    objective: str = "lagrangian"
    diagonal_weight: float = 0.01
    linear: float = 1.0
    quadratic: float = 1.0
    gamma: float = 2.0
    eta: float = 2.0
    rounds: int | None = None
    epochs_per_round: int = 10
    noise_widths: Sequence[int] = WIDTHS
    noise_learning_rate: float | None = None
    noise_milestones: Sequence[int] = (50, 100)
    noise_function: Callable[[int, int], NoiseFunction] | None = None
    raw_steps: bool = False
    scaled_weights: bool = True
    bounded_logits: bool = True

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_choice("objective", self.objective, ("lagrangian", "penalised"))
        _check_flags(self, "raw_steps", "scaled_weights", "bounded_logits")
        for name in ("diagonal_weight", "linear", "quadratic", "gamma"):
            _validation.check_number(name, getattr(self, name), 0)
        _validation.check_number("eta", self.eta, 1)
        _validation.check_number("epochs_per_round", self.epochs_per_round, 1, whole=True)
        _validation.check_whole_numbers("noise_widths", self.noise_widths, 1)
        if self.rounds is not None:
            _validation.check_number("rounds", self.rounds, 1, whole=True)
        if self.noise_learning_rate is not None:
            _validation.check_number("noise_learning_rate", self.noise_learning_rate, 0, above=True)
        multipliers = (self.linear, self.quadratic, self.gamma, self.eta)
        lagrangian: AugmentedLagrangian | None = AugmentedLagrangian(self.epochs_per_round, self.rounds, *multipliers)
        penalties = [Penalty("frobenius", frobenius, 1.0)]
        if self.objective == "penalised":
            lagrangian = None
            penalties = code_penalties(len(fleet_fit.data.grid), VOLUME_WEIGHT, self.diagonal_weight)
        fitted = self._learn(
            fleet_fit,
            self._build_noise(fleet_fit),
            penalties,
            pooled=self.noise_function is None,
            lagrangian=lagrangian,
            noise_learning_rate=self.noise_learning_rate,
            noise_milestones=_check_milestones(self),
        )
        _warn_at_bound(fitted.noise.common(fleet_fit.data.grid).detach(), fleet_fit.classes)
        return fitted

    def _build_noise(self, fleet_fit: FleetFit) -> BuildNoise:
        """Gives the noise function for a number of members and annotators."""
        grid, n_classes = fleet_fit.data.grid, fleet_fit.n_classes
        if self.noise_function is not None:
            return lambda members, _: _own_noise(self.noise_function, members, n_classes, grid.cpu())
        bounds, steps = (float(grid[0]), float(grid[-1])), len(grid) if self.raw_steps else None
        widths = tuple(self.noise_widths)
        flags = {"scaled_weights": self.scaled_weights, "bounded_logits": self.bounded_logits}
        return lambda members, annotators: NetworkNoise(members, n_classes, bounds, steps, annotators, widths, **flags)


def _warn_at_bound(matrices: Tensor, classes: Sequence[Any]) -> None:
    """Warn where Q(t), (members, points, classes, classes), of a class stays at its bound of one half."""
    at_bound = (matrices.diagonal(dim1=-2, dim2=-1) < 0.5 + BOUND_MARGIN).double().mean(1) > BOUND_SHARE
    if bool(at_bound.any()):
        names = ", ".join(repr(name) for name, stuck in zip(classes, at_bound.any(0).tolist(), strict=True) if stuck)
        warnings.warn(
            f"Q(t) stays at its bound of one half for the true class {names}, in {int(at_bound.any(1).sum())} of "
            f"{len(at_bound)} fits. Either half of its labels are wrong, or training ended where this class is not "
            "predicted. Compare with noise_learning_rate=0.003 or linear=10.",
            ConvergenceWarning,
            stacklevel=2,
        )


def _own_noise(make: Any, members: int, n_classes: int, grid: Tensor) -> NoiseFunction:
    """The noise function that the user's callable gives, checked on the clock's grid."""
    rule = (
        f"noise_function(members, n_classes) must give a labeltide.NoiseFunction with members={members} and "
        f"n_classes={n_classes}, whose docstring has an example."
    )
    if not callable(make) or isinstance(make, nn.Module):
        raise ValueError(f"{rule} Got {type(make).__name__}, which does not make one: pass the class or a function.")
    noise = make(members, n_classes)
    sizes = tuple(getattr(noise, name, None) for name in ("members", "n_classes"))
    if not isinstance(noise, NoiseFunction) or sizes != (members, n_classes):
        raise ValueError(f"{rule} Got {type(noise).__name__} with members={sizes[0]} and n_classes={sizes[1]}.")
    matrices = noise.initialise(member_generators(range(members)))(grid).detach()
    wanted = (members, len(grid), n_classes, n_classes)
    if tuple(matrices.shape) != wanted:
        raise ValueError(
            f"forward(clock) of a noise function must give Q of shape (members, points, classes, classes) = {wanted} "
            f"for {len(grid)} moments. Got {tuple(matrices.shape)}."
        )
    _validation.check_matrices(matrices.numpy(), None)
    return noise
