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
NETWORKS = 2  # for each fold and direction; their average is surer than one
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


def hold_out_folds(job: FleetJob, folds: Tensor, first_seed: int, networks: int = 1) -> FleetJob:
    """Networks for each job and fold, each of which neither sees nor is trained on its own fold."""
    count = int(folds.max()) + 1
    copies = repeat(job, networks * count, first_seed)
    own = torch.arange(count, device=folds.device).repeat(job.members * networks)
    held_out = folds.repeat_interleave(networks * count, 0) == own[:, None]
    return replace(copies, data=replace(copies.data, held_out=held_out, weights=(~held_out).float()))


def of_own_fold(log_probs: Tensor, folds: Tensor) -> Tensor:
    """What the networks of each row's own fold say of it, averaged: log-probabilities (jobs, rows, steps, classes).

    Parameters
    ----------
    log_probs : Tensor of shape (jobs * networks * folds, rows, steps, classes)
    """
    every = log_probs.unflatten(0, (len(folds), -1, int(folds.max()) + 1))  # (jobs, networks, folds, rows, ...)
    index = folds[:, None, None, :, None, None].expand(-1, every.shape[1], 1, -1, *every.shape[4:])
    own: Tensor = every.gather(2, index)[:, :, 0]
    return own.mean(1).log_softmax(-1)


def _one_way(job: FleetJob, folds: Tensor, noise: FixedNoise, stage: str) -> tuple[Tensor, SequenceModel]:
    copies = hold_out_folds(job, folds, first_seed=10, networks=NETWORKS)
    model = copies.new_model()
    matrices = noise.matrices.repeat_interleave(copies.members // job.members, 0)
    moments = noise.clock[0].cpu().numpy()
    each = FixedNoise(matrices.double().cpu().numpy(), moments, period=noise.period).to(folds.device)
    copies.train(model, each, Objective(), stage=stage, batch_size=small_batches(job), patience=PATIENCE)
    return of_own_fold(copies.log_probs(model), folds), model


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
        gaps=None,  # networks do not read them
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


def take_jobs(job: FleetJob, index: Tensor) -> FleetJob:
    """Some of the jobs."""
    chosen = index.tolist()
    estimators, seeds = [job.estimators[i] for i in chosen], tuple(job.seeds[i] for i in chosen)
    return replace(job, estimators=estimators, data=job.data.members_in(index), seeds=seeds)


def every_weight(data: FleetData) -> FleetData:
    return replace(data, weights=torch.ones_like(data.weights), held_out=torch.zeros_like(data.held_out))


def small_batches(job: FleetJob) -> int:
    """The batch size that was asked for, or less, so that an epoch takes several steps however few rows there are."""
    share = -(-len(job.data.features) // (BATCHES * TILE)) * TILE
    return min(job.settings.batch_size, share)
