"""Networks that judge rows they have not seen: each is trained without one fold, forwards and backwards in time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from labeltide.estimators.fleet import FleetJob
from labeltide.models.base import SequenceModel
from labeltide.noise.fixed import FixedNoise
from labeltide.objectives.objective import Objective
from labeltide.training import FleetData

PATIENCE = 10  # epochs without a better held-out likelihood after which a network stops
BATCHES = 8  # steps that an epoch takes at least, where there are rows enough
TILE = 8  # rows that the compiled GRU takes together


def cross_fit(job: FleetJob, folds: Tensor, noise: FixedNoise, stage: str) -> tuple[Tensor, tuple[SequenceModel, ...]]:
    """What networks say of rows they have not seen, log-probabilities (jobs, rows, steps, classes), and they.

    Networks that may look back only are joined by as many that read every row from its end: what comes after a step
    tells as much about its label as what came before.
    """
    onwards, first = _one_way(job, folds, noise, stage)
    if not first.is_causal:
        return onwards, (first,)
    order = reversal(job.data.mask)
    backwards, second = _one_way(replace(job, data=_reverse(job.data, order)), folds, noise, f"{stage}, backwards")
    rows = torch.arange(len(order), device=order.device)[:, None]
    return join_directions(onwards, backwards[:, rows, order]), (first, second)


def join_directions(onwards: Tensor, backwards: Tensor) -> Tensor:
    """The average of log-probabilities, normalised anew."""
    return ((onwards + backwards) / 2).log_softmax(-1)


def reversal(mask: Tensor) -> Tensor:
    """For each step of each row the step that mirrors it; padding stays where it is: (rows, steps)."""
    lengths = mask.sum(1, keepdim=True)
    step = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(step < lengths, lengths - 1 - step, step)


def _one_way(job: FleetJob, folds: Tensor, noise: FixedNoise, stage: str) -> tuple[Tensor, SequenceModel]:
    count = int(folds.max()) + 1
    copies = repeat(job, count, first_seed=10)
    own = torch.arange(count, device=folds.device).repeat(job.members)
    held_out = folds.repeat_interleave(count, 0) == own[:, None]  # each network's own fold, which it does not see
    copies = replace(copies, data=replace(copies.data, held_out=held_out, weights=(~held_out).float()))
    each = FixedNoise(noise.matrices.repeat_interleave(count, 0).double().cpu().numpy(), noise.clock[0].cpu().numpy())
    model = copies.new_model()
    each = each.to(folds.device)
    copies.train(model, each, Objective(), stage=stage, batch_size=small_batches(job), patience=PATIENCE)
    every = copies.log_probs(model).unflatten(0, (job.members, count))  # (jobs, folds, rows, steps, classes)
    index = folds[:, None, :, None, None].expand(-1, 1, -1, *every.shape[3:])
    return every.gather(1, index)[:, 0], model


def _reverse(data: FleetData, order: Tensor) -> FleetData:
    """The same rows read from their ends; every step keeps its own moment of the clock."""
    rows = torch.arange(len(order), device=order.device)[:, None]
    points = torch.arange(order.shape[1], device=order.device).expand_as(order) if data.points is None else data.points
    return replace(
        data,
        features=data.features[rows, order],
        labels=data.labels[:, rows, order],
        points=points[rows, order],
        trusted=None if data.trusted is None else data.trusted[rows, order],
    )


def repeat(job: FleetJob, copies: int, first_seed: int) -> FleetJob:
    """Several networks for each job, each with a seed of its own and with every row."""
    seeds = tuple(
        int(np.random.SeedSequence([seed, first_seed + copy]).generate_state(1)[0])
        for seed in job.seeds
        for copy in range(copies)
    )
    data = every_weight(job.data)
    data = replace(
        data,
        labels=data.labels.repeat_interleave(copies, 0),
        weights=data.weights.repeat_interleave(copies, 0),
        held_out=data.held_out.repeat_interleave(copies, 0),
    )
    return replace(job, estimators=[one for one in job.estimators for _ in range(copies)], data=data, seeds=seeds)


def every_weight(data: FleetData) -> FleetData:
    return replace(data, weights=torch.ones_like(data.weights), held_out=torch.zeros_like(data.held_out))


def small_batches(job: FleetJob) -> int:
    """The batch size that was asked for, or less, so that an epoch takes several steps however few rows there are."""
    share = -(-len(job.data.features) // (BATCHES * TILE)) * TILE
    return min(job.settings.batch_size, share)
