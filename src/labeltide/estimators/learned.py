r"""Joint training of Q and the classifier, with partial pooling where several annotators have a Q each.

The prior :math:`Q_a \sim N(Q, s^2)` adds a penalty on deviations from the common Q. The data term averages over all
labels while the penalty is the same for every annotator, so that annotators with few labels stay close to the common
Q. The standard deviation s is chosen by the likelihood of held-out sequences, with the one-standard-error rule (Breiman
and others 1984) at half a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.estimators.prepare import hold_out
from labeltide.models.base import SequenceModel
from labeltide.noise.base import LearnedNoise
from labeltide.objectives.objective import Objective, Penalty
from labeltide.objectives.penalties import diagonal_norm, log_volume, spread
from labeltide.training import Fleet, FleetData, History, evaluate

# Standard deviations of an annotator's entries of Q around the common ones: from hardly pooled to all alike
# (docs/decisions/009-several-annotators.md).
DEVIATIONS = (0.1, 0.03, 0.01, 0.0)  # by hand
CHOOSING_FRACTION = 0.2  # by hand: the share of sequences held out to choose among them
N_BLOCKS = 20  # by hand: of held-out sequences, for the standard error of a comparison
TOLERANCE = 0.5  # by hand: standard errors by which stronger pooling may be worse; it helps where labels are few
BuildNoise = Callable[[int, int], Any]  # from members and annotators to a noise function


class Trained(NamedTuple):
    """A trained fleet with a Q for each annotator."""

    model: SequenceModel
    noise: LearnedNoise
    objective: Objective
    history: History


class LearnedNoiseClassifier(NoisyLabelClassifier):
    """Learns Q and the network jointly; with several annotators, a Q for each."""

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
        learn = partial(_learn_pooled, build=build, penalties=penalties, schedule=schedule)
        trained = learn(fleet_fit, deviations=_choose_deviations(fleet_fit, learn))
        return FittedFleet(trained.model, trained.noise, trained.history)


def code_penalties(n_points: int, volume_weight: float, diagonal_weight: float) -> list[Penalty]:
    """The penalties on Q in the paper's published code, for a clock of so many moments."""
    volume = Penalty("log volume", log_volume, volume_weight / n_points)
    return [volume, Penalty("diagonal", diagonal_norm, diagonal_weight)]


def _has_several_annotators(data: FleetData) -> bool:
    """Whether any member has labels of more than one annotator."""
    return bool(((data.labels >= 0).any(1).any(1).sum(1) > 1).any())


def _learn_pooled(
    fleet_fit: FleetFit,
    deviations: Tensor,
    *,
    build: BuildNoise,
    penalties: Sequence[Penalty],
    schedule: dict[str, Any],
    stage: str = "train",
) -> Trained:
    r"""Train with a Q for each annotator under a Gaussian prior of standard deviation s around the common Q.

    On the scale of the average label the penalty is :math:`A \,\mathrm{mean}_a \lVert Q_a - Q \rVert^2 / (2 s^2 N)` for
    A annotators and N labels. The other penalties of each Q are weighted by the annotator's share of the labels, so
    that their weight relative to the annotator's labels is as if the annotator were alone.
    """
    data = fleet_fit.data
    annotators = data.labels.shape[-1]
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
    return Trained(model, noise, objective, history)


def _choose_deviations(fleet_fit: FleetFit, learn: Callable[..., Trained]) -> Tensor:
    """For each member the standard deviation chosen by held-out likelihood: (members,)."""
    every = torch.tensor(DEVIATIONS, device=fleet_fit.data.features.device)
    held = _held_out(fleet_fit)
    if held is None:
        return every[len(DEVIATIONS) // 2].expand(fleet_fit.members)
    copies = _with_copies(fleet_fit, held, len(every))
    trained = learn(copies, every.repeat(fleet_fit.members), stage="pooling")
    size = math.ceil(CHOOSING_FRACTION * len(fleet_fit.data.features) / N_BLOCKS)
    fleet, rows = (
        Fleet(trained.model, trained.noise),
        copies.data.held_out_rows(size),
    )  # (blocks, members * copies, size)
    losses = torch.stack([evaluate(fleet, copies.data, trained.objective, block[None]) for block in rows])
    per_member = losses.unflatten(1, (fleet_fit.members, -1)).cpu().double().numpy().swapaxes(0, 1)
    return every[[choose_last(losses_of_member) for losses_of_member in per_member]]


def choose_last(losses: np.ndarray) -> int:
    """The last candidate within `TOLERANCE` standard errors of the best, from paired differences over blocks.

    Parameters
    ----------
    losses : array of shape (blocks, candidates), NaN for blocks without labels
    """
    losses = losses[~np.isnan(losses).any(1)].clip(max=1e6)
    if len(losses) < 2:
        return losses.shape[1] // 2
    worse = losses - losses[:, [losses.mean(0).argmin()]]
    good = worse.mean(0) <= TOLERANCE * worse.std(0, ddof=1) / len(losses) ** 0.5
    return int(np.flatnonzero(good)[-1])


def _held_out(fleet_fit: FleetFit) -> Tensor | None:
    """Sequences held out to choose: those of early stopping, or some drawn from each member's seed; None if too few."""
    if bool(fleet_fit.data.held_out.any()):
        return fleet_fit.data.held_out
    labelled = (fleet_fit.data.labels >= 0).any(-1).any(-1).cpu().numpy()  # (members, rows)
    if labelled.sum(1).min() < 2:
        return None
    rows = [
        hold_out(seed, has_label, CHOOSING_FRACTION, fleet_fit.clusters)
        for seed, has_label in zip(fleet_fit.seeds, labelled, strict=True)
    ]
    return torch.from_numpy(np.stack(rows)).to(fleet_fit.data.features.device)


def _with_copies(fleet_fit: FleetFit, held: Tensor, copies: int) -> FleetFit:
    """Copies of every member with the same seed and early stopping on the held-out rows.

    At the end of training the networks have memorised their labels, and the likelihood says little about Q.
    """
    data = fleet_fit.data
    tensors: dict[str, Any] = {"labels": data.labels, "weights": data.weights * ~held, "held_out": held}
    tensors = {name: values.repeat_interleave(copies, 0) for name, values in tensors.items()}
    return replace(
        fleet_fit,
        estimators=[estimator for estimator in fleet_fit.estimators for _ in range(copies)],
        data=replace(data, **tensors),
        seeds=tuple(seed for seed in fleet_fit.seeds for _ in range(copies)),
    )
