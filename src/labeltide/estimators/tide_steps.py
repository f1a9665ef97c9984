"""The steps of `tide`: cross-fitted networks, one chain with their evidence, and the last ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._fleet import put_members
from labeltide.chain.data import Chain, ChainData, ChainParameters, Members, TrainingEvidence, cat_parameters
from labeltide.chain.passes import expect
from labeltide.chain.select import Chosen, choose_noise
from labeltide.chain.start import flat_chain, join_evidence, label_chain
from labeltide.estimators.fleet import FleetJob
from labeltide.models.base import SequenceModel
from labeltide.noise.fixed import FixedNoise
from labeltide.objectives.objective import Objective
from labeltide.training import FleetData, History

FOLDS = 5
ENSEMBLE = 5
PATIENCE = 10  # epochs without a better held-out likelihood after which a cross-fitted network stops
MAX_POINTS = 128  # moments at which Q is estimated; straight lines between them
BATCHES = 8  # steps that an epoch takes at least, where there are rows enough
TILE = 8  # rows that the compiled GRU takes together
CLEAN_LOOKING = 0.1  # an error rate, by the labels alone, below which bursts of errors are suspected
AGAIN = 0.05  # mean Frobenius change of Q above which the networks are trained once more


class Posterior(NamedTuple):
    """What is known of the true labels once all evidence is in."""

    labels: Tensor  # (jobs, rows, steps, classes), zero on padding
    noise: FixedNoise
    learned: list[dict[str, Any]]  # more attributes for each estimator


class Evidence(NamedTuple):
    """Networks that never saw the rows they judge, and the chain they are part of."""

    log_probs: Tensor  # (jobs, rows, steps, classes)
    model: SequenceModel  # (jobs * folds) networks
    chain: ChainParameters
    log_likelihood: Tensor  # (jobs,)
    trained_with: Tensor  # the Q of each job with which its networks were trained


def find_posterior(job: FleetJob) -> Posterior:
    """From recorded labels and features to the posterior of the true labels and to Q(t)."""
    folds = make_folds(job)
    data, grid = chain_data(job.data, job.n_classes)
    jobs = _every_row(folds)
    chain = label_chain(data, jobs, grid)
    if data.trusted is not None and bool((data.trusted >= 0)[data.mask].all()):
        return _conclude(data, jobs, folds, chain, grid, None)  # nothing is left to find out
    found = _gather(job, data, folds, chain, grid, "round 1")
    # Labels that look clean may be so, or their errors come in runs that look like the truth: ask the features.
    clean_looking = 1 - chain.matrices.diagonal(dim1=-2, dim2=-1).mean((1, 2, 3)) < CLEAN_LOOKING  # (jobs,)
    wary = flat_chain(job.members, 1, data)
    found = _retry(job, data, folds, found, wary, grid, clean_looking, "round 1, wary")
    change = (found.chain.matrices - found.trained_with).square().sum((-2, -1)).sqrt().mean((1, 2))  # (jobs,)
    found = _retry(job, data, folds, found, found.chain, grid, change > AGAIN, "round 2")
    return _conclude(data.with_evidence(found.log_probs), jobs, folds, found.chain, grid, found.model)


def _conclude(
    data: ChainData,
    jobs: Members,
    folds: Tensor,
    chain: ChainParameters,
    grid: np.ndarray,
    model: SequenceModel | None,
) -> Posterior:
    """Choose the family of Q, and say what is known of the true labels under it."""
    chosen = choose_noise(data, jobs, chain, folds, grid)
    labels = expect(data, jobs, chosen.parameters, posterior=True).posterior
    assert labels is not None
    noise = FixedNoise(chosen.parameters.matrices[:, 0].double().cpu().numpy(), grid).to(folds.device)
    learned = _learned(chosen)
    for job, found in enumerate(learned):
        own = chosen.parameters.take(torch.tensor([job], device=folds.device)).cpu()
        found["training_"] = TrainingEvidence(data.job(job), own, folds[job : job + 1].cpu(), grid)
        count = 0 if model is None else model.members // len(learned)
        found["fold_model_"] = None if model is None else model.member(job * count, count).cpu().eval()
    return Posterior(labels, noise, learned)


def learn_posterior(job: FleetJob, labels: Tensor, ensemble: bool) -> tuple[SequenceModel, History]:
    """Train several networks for each job on the probabilities of the true labels; or one, taught by them."""
    copies = _repeat(job, ENSEMBLE, first_seed=100)
    data = _with_targets(copies.data, labels.repeat_interleave(ENSEMBLE, 0))
    copies = replace(copies, data=data)
    model = copies.new_model()
    history = copies.train(model, None, Objective(), stage="ensemble", batch_size=_batch_size(job), cosine=True)
    if ensemble:
        return model, _average(history, ENSEMBLE)
    taught = copies.log_probs(model).exp().unflatten(0, (job.members, ENSEMBLE)).mean(1)
    single = replace(job, data=_with_targets(_every_weight(job.data), taught * job.data.mask[..., None]))
    model = single.new_model()
    return model, single.train(model, None, Objective(), stage="single", batch_size=_batch_size(job), cosine=True)


def _batch_size(job: FleetJob) -> int:
    """The batch size that was asked for, or less, so that an epoch takes several steps however few rows there are."""
    share = -(-len(job.data.features) // (BATCHES * TILE)) * TILE
    return min(job.settings.batch_size, share)


def make_folds(job: FleetJob) -> Tensor:
    """The fold of every row, drawn from each job's own seed; rows without labels are spread too: (jobs, rows)."""
    labelled = (job.data.labels >= 0).any(-1).any(-1).cpu().numpy()  # (jobs, rows)
    fewest = int(labelled.sum(1).min())
    if fewest < 2:
        raise ValueError(
            "tide needs at least two sequences with labels, to judge one by the other. "
            f"Got {fewest}. Cut a long sequence into windows."
        )
    count = min(FOLDS, fewest)
    folds = np.zeros(labelled.shape, dtype=np.int64)
    for own, rows, seed in zip(folds, labelled, job.seeds, strict=True):
        generator = np.random.default_rng([seed, 3])
        order = np.concatenate([generator.permutation(np.flatnonzero(kind)) for kind in (rows, ~rows)])
        own[order] = np.arange(len(order)) % count
    return torch.from_numpy(folds).to(job.data.features.device)


def chain_data(data: FleetData, n_classes: int) -> tuple[ChainData, np.ndarray]:
    """The labels as a chain sees them, and the moments at which it estimates Q."""
    grid, points = data.grid.double().cpu().numpy(), data.points
    if len(grid) > MAX_POINTS:
        coarse = np.linspace(grid[0], grid[-1], MAX_POINTS)
        nearest = np.searchsorted((coarse[1:] + coarse[:-1]) / 2, grid)
        place = torch.from_numpy(nearest).to(data.mask.device)
        points = place.expand_as(data.mask) if points is None else place[points]
        grid = coarse
    return ChainData(data.labels, data.mask, points, len(grid), n_classes, trusted=data.trusted), grid


def _gather(
    job: FleetJob, data: ChainData, folds: Tensor, chain: ChainParameters, grid: np.ndarray, stage: str
) -> Evidence:
    """Train networks with the chain's Q, each without one fold, and join what they say of that fold to the chain."""
    log_probs, model = cross_fit(job, folds, chain.matrices[:, 0], grid, stage)
    fitted = join_evidence(data.with_evidence(log_probs), _every_row(folds), chain, grid)
    return Evidence(log_probs, model, fitted.parameters, fitted.log_likelihood.sum(1), chain.matrices)


def cross_fit(
    job: FleetJob, folds: Tensor, matrices: Tensor, grid: np.ndarray, stage: str
) -> tuple[Tensor, SequenceModel]:
    """What networks say of rows they have not seen, log-probabilities (jobs, rows, steps, classes), and they."""
    count = int(folds.max()) + 1
    copies = _repeat(job, count, first_seed=10)
    held_out = (
        folds.repeat_interleave(count, 0) == torch.arange(count, device=folds.device).repeat(job.members)[:, None]
    )
    copies = replace(copies, data=replace(copies.data, held_out=held_out, weights=(~held_out).float()))
    noise = FixedNoise(matrices.repeat_interleave(count, 0).double().cpu().numpy(), grid).to(folds.device)
    model = copies.new_model()
    copies.train(model, noise, Objective(), stage=stage, batch_size=_batch_size(job), patience=PATIENCE)
    every = copies.log_probs(model).unflatten(0, (job.members, count))  # (jobs, folds, rows, steps, classes)
    index = folds[:, None, :, None, None].expand(-1, 1, -1, *every.shape[3:])
    return every.gather(1, index)[:, 0], model


def _retry(
    job: FleetJob,
    data: ChainData,
    folds: Tensor,
    found: Evidence,
    chain: ChainParameters,
    grid: np.ndarray,
    chosen: Tensor,
    stage: str,
) -> Evidence:
    """Gather the evidence of the chosen jobs anew from another chain, and keep it where labels are likelier."""
    index = chosen.nonzero().flatten()
    if not len(index):
        return found
    part = replace(data, labels=data.labels[index])
    return _keep_better(found, _gather(_take(job, index), part, folds[index], chain.take(index), grid, stage), index)


def _keep_better(first: Evidence, second: Evidence, jobs: Tensor) -> Evidence:
    """Put the second try of some jobs in place of their first where labels are likelier under it."""
    wins = second.log_likelihood > first.log_likelihood[jobs]
    place = jobs[wins]
    count = first.model.members // len(first.log_probs)
    each = torch.arange(count, device=jobs.device)
    theirs = (wins.nonzero() * count + each).flatten()
    put_members(first.model, (place[:, None] * count + each).flatten(), second.model, theirs)

    def put(old: Tensor, new: Tensor) -> Tensor:
        return old.index_copy(0, place, new[wins])

    index = torch.arange(len(first.log_probs), device=jobs.device)
    source = index.index_copy(0, place, wins.nonzero().flatten() + len(index))
    chain = cat_parameters([first.chain, second.chain]).take(source)
    return Evidence(
        put(first.log_probs, second.log_probs),
        first.model,
        chain,
        put(first.log_likelihood, second.log_likelihood),
        put(first.trained_with, second.trained_with),
    )


def _learned(chosen: Chosen) -> list[dict[str, Any]]:
    chain = chosen.parameters.cpu()
    start, transition, power = (tensor.double().numpy() for tensor in chain[:3])
    bursts = [0.0] * len(power) if chain.bursts is None else chain.bursts.tolist()
    weights = chosen.weights.double().cpu().numpy()
    return [
        {
            "chain_": Chain(start[job], transition[job], float(power[job]), bursts[job]),
            "families_": dict(zip(chosen.names[job], weights[job].tolist(), strict=True)),
        }
        for job in range(len(weights))
    ]


def _every_row(folds: Tensor) -> Members:
    index = torch.arange(len(folds), device=folds.device)
    return Members(index, index, torch.ones_like(folds, dtype=torch.float32))


def _every_weight(data: FleetData) -> FleetData:
    return replace(data, weights=torch.ones_like(data.weights), held_out=torch.zeros_like(data.held_out))


def _with_targets(data: FleetData, targets: Tensor) -> FleetData:
    return replace(data, targets=targets, trusted=None)


def _take(job: FleetJob, index: Tensor) -> FleetJob:
    """Some of the jobs."""
    chosen: Sequence[int] = index.tolist()
    data = job.data
    own = replace(data, labels=data.labels[index], weights=data.weights[index], held_out=data.held_out[index])
    return replace(
        job, estimators=[job.estimators[i] for i in chosen], data=own, seeds=tuple(job.seeds[i] for i in chosen)
    )


def _repeat(job: FleetJob, copies: int, first_seed: int) -> FleetJob:
    """Several networks for each job, each with a seed of its own and with every row."""
    seeds = tuple(
        int(np.random.SeedSequence([seed, first_seed + copy]).generate_state(1)[0])
        for seed in job.seeds
        for copy in range(copies)
    )
    data = _every_weight(job.data)
    data = replace(
        data,
        labels=data.labels.repeat_interleave(copies, 0),
        weights=data.weights.repeat_interleave(copies, 0),
        held_out=data.held_out.repeat_interleave(copies, 0),
    )
    return replace(job, estimators=[one for one in job.estimators for _ in range(copies)], data=data, seeds=seeds)


def _average(history: History, copies: int) -> History:
    """The history of each job, averaged over its networks."""

    def fold(values: np.ndarray) -> np.ndarray:
        return values.reshape(*values.shape[:-1], -1, copies)

    return History(
        fold(history.loss).mean(-1),
        fold(history.held_out).mean(-1),
        fold(history.best_epoch).max(-1),
        fold(history.restarts).sum(-1),
    )
