"""Methods that learn Q together with the network: one for all, or one for each annotator that leans on the common one.

The data term averages over all labels, while the pull to the common Q is the same for every annotator: one with many
labels goes his own way, one with few stays close to the others. How strong the pull is, the likelihood of recorded
labels in sequences left out decides.
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
from labeltide.estimators.fleet import FittedFleet, FleetJob
from labeltide.estimators.prepare import hold_out
from labeltide.models.base import SequenceModel
from labeltide.noise.base import LearnedNoise
from labeltide.objectives.objective import Objective, Penalty
from labeltide.objectives.penalties import spread
from labeltide.training import AugmentedLagrangian, Fleet, FleetData, History, evaluate

# How far an annotator's entries of Q may be thought to stand from the common ones, as a standard deviation: from each
# alone to all alike.
DEVIATIONS = (0.1, 0.03, 0.01, 0.0)
HELD_OUT = 0.2  # the share of sequences that choose among them
BLOCKS = 20  # parts of them, by which candidates are compared
TOLERANCE = 0.5  # standard errors by which stronger pooling may be worse than the best: it steadies who has few labels
BuildNoise = Callable[[int, int], LearnedNoise]  # from members and annotators


class Trained(NamedTuple):
    """A fleet whose annotators are told apart, after training."""

    model: SequenceModel
    noise: LearnedNoise
    objective: Objective
    history: History


class LearnedNoiseClassifier(NoisyLabelClassifier):
    """Learns Q and the network at once; with several annotators, an own Q for each."""

    def _networks_at_once(self, annotators: int) -> tuple[int, int]:
        return (len(DEVIATIONS), len(DEVIATIONS) * annotators) if annotators > 1 else (1, 1)

    def _learn(
        self,
        job: FleetJob,
        build: BuildNoise,
        penalties: Sequence[Penalty],
        lagrangian: AugmentedLagrangian | None = None,
    ) -> FittedFleet:
        """Train a fleet with noise of the kind that `build` makes, kept small by the penalties."""
        if not _several_speak(job.data):
            model, noise = job.new_model(), job.new_noise(build(job.members, 1))
            history = job.train(model, noise, Objective(penalties=tuple(penalties)), lagrangian=lagrangian)
            return FittedFleet(model, noise, history)
        learn = partial(_learn_apart, build=build, penalties=penalties, lagrangian=lagrangian)
        found = learn(job, deviations=_choose_deviations(job, learn))
        return FittedFleet(found.model, found.noise, found.history)


def _several_speak(data: FleetData) -> bool:
    """Whether any member has labels of more than one annotator."""
    return bool(((data.labels >= 0).any(1).any(1).sum(1) > 1).any())


def _learn_apart(
    job: FleetJob,
    deviations: Tensor,
    *,
    build: BuildNoise,
    penalties: Sequence[Penalty],
    lagrangian: AugmentedLagrangian | None,
    stage: str = "train",
) -> Trained:
    """Train with an own Q for each annotator, drawn to the common one.

    Deviations of standard deviation s cost, on the scale of the average label, A mean ||Q_a - Q||^2 / (2 s^2 N) for A
    annotators and N labels. The size of each Q is weighed by its share of the labels, so that it stands against an
    annotator's own labels as it would if they were alone.
    """
    data = job.data
    annotators = data.labels.shape[-1]
    counts = ((data.labels >= 0) * data.weights[..., None, None]).sum((1, 2))  # (members, annotators)
    shares = counts / counts.sum(1, keepdim=True)
    model, noise = job.new_model(), job.new_noise(build(job.members, annotators))
    noise.shares.copy_(shares)
    noise.tied.copy_(deviations == 0)
    strength = annotators / (2 * deviations.square() * counts.sum(1))  # infinite where all are alike
    pull = torch.where(noise.tied, 0.0, strength)[:, None]
    sizes = [replace(penalty, weight=penalty.weight * annotators * shares) for penalty in penalties]
    pooling = Penalty("pooling", partial(spread, shares=noise.shares), pull, with_data=True)
    objective = Objective(penalties=(*sizes, pooling))
    history = job.train(model, noise, objective, stage=stage, lagrangian=lagrangian)
    return Trained(model, noise, objective, history)


def _choose_deviations(job: FleetJob, learn: Callable[..., Trained]) -> Tensor:
    """For each member the deviation that sequences left out speak for: (members,)."""
    every = torch.tensor(DEVIATIONS, device=job.data.features.device)
    held = _held_out(job)
    if held is None:
        return every[len(DEVIATIONS) // 2].expand(job.members)
    copies = _with_copies(job, held, len(every))
    found = learn(copies, every.repeat(job.members), stage="pooling")
    size = math.ceil(HELD_OUT * len(job.data.features) / BLOCKS)
    fleet, rows = Fleet(found.model, found.noise), copies.data.held_out_rows(size)  # (blocks, members * copies, size)
    losses = torch.stack([evaluate(fleet, copies.data, found.objective, block[None]) for block in rows])
    per_member = losses.unflatten(1, (job.members, -1)).cpu().double().numpy().swapaxes(0, 1)
    return every[[choose_last(own) for own in per_member]]


def choose_last(losses: np.ndarray) -> int:
    """The last candidate that is no worse than the best beyond `TOLERANCE`; they are compared pairwise.

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


def _held_out(job: FleetJob) -> Tensor | None:
    """Sequences that choose: those held out already, or some drawn from each member's seed; None where too few."""
    if bool(job.data.held_out.any()):
        return job.data.held_out
    labelled = (job.data.labels >= 0).any(-1).any(-1).cpu().numpy()  # (members, rows)
    if labelled.sum(1).min() < 2:
        return None
    rows = [hold_out(seed, own, HELD_OUT) for seed, own in zip(job.seeds, labelled, strict=True)]
    return torch.from_numpy(np.stack(rows)).to(job.data.features.device)


def _with_copies(job: FleetJob, held: Tensor, copies: int) -> FleetJob:
    """Every member several times over, with the same seed, stopped on the rows that are held out.

    At the end of training, networks that know their labels by heart would hide what Q is worth.
    """
    data = job.data
    own: dict[str, Any] = {"labels": data.labels, "weights": data.weights * ~held, "held_out": held}
    own = {name: values.repeat_interleave(copies, 0) for name, values in own.items()}
    return replace(
        job,
        estimators=[one for one in job.estimators for _ in range(copies)],
        data=replace(data, **own),
        seeds=tuple(seed for seed in job.seeds for _ in range(copies)),
    )
