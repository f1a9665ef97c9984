"""The steps of `tide` to the posterior of the true labels: cross-fitted networks and one chain with their evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Cells, Period, one_period
from labeltide._fleet import put_members, stack
from labeltide.chain.data import Chain, ChainData, ChainParameters, Members, TrainingEvidence, cat_parameters
from labeltide.chain.passes import expect
from labeltide.chain.select import Chosen, choose_noise
from labeltide.chain.start import flat_chain, join_evidence, label_chain
from labeltide.estimators.cross_fit import cross_fit, take_jobs
from labeltide.estimators.fleet import FleetJob
from labeltide.models.base import SequenceModel
from labeltide.noise.fixed import FixedNoise
from labeltide.training import FleetData

FOLDS = 5
MAX_POINTS = 128  # moments at which Q is estimated; straight lines between them
CLEAN_LOOKING = 0.1  # an error rate, by the labels alone, below which bursts of errors are suspected
AGAIN = 0.05  # mean Frobenius change of Q above which the networks are trained once more


class Posterior(NamedTuple):
    """What is known of the true labels once all evidence is in."""

    labels: Tensor  # (jobs, rows, steps, classes), zero on padding
    folds: Tensor  # (jobs, rows)
    noise: FixedNoise
    learned: list[dict[str, Any]]  # more attributes for each estimator


class Evidence(NamedTuple):
    """Networks that never saw the rows they judge, and the chain they are part of."""

    log_probs: Tensor  # (jobs, rows, steps, classes)
    judges: tuple[SequenceModel, ...]  # fleets of (jobs * networks * folds), one for each direction of time
    chain: ChainParameters
    log_likelihood: Tensor  # (jobs,)
    trained_with: Tensor  # the Q of each job with which its networks were trained


def find_posterior(job: FleetJob) -> Posterior:
    """From recorded labels and features to the posterior of the true labels and to Q(t)."""
    folds = make_folds(job)
    data, grid = chain_data(job.data, job.n_classes, job.cells)
    jobs, period = _every_row(folds), job.settings.period
    annotators = data.labels.shape[-1] if _several_speak(data) else 1
    chain = label_chain(data, jobs, grid, period, annotators)
    if data.trusted is not None and bool((data.trusted >= 0)[data.mask].all()):
        return _conclude(data, jobs, folds, chain, grid, period, ())  # nothing is left to find out
    found = _gather(job, data, folds, chain, grid, "round 1")
    # Labels that look clean may be so, or their errors come in runs that look like the truth: ask the features.
    clean_looking = 1 - chain.matrices.diagonal(dim1=-2, dim2=-1).mean((1, 2, 3)) < CLEAN_LOOKING  # (jobs,)
    wary = flat_chain(job.members, annotators, data)
    found = _retry(job, data, folds, found, wary, grid, clean_looking, "round 1, wary")
    change = (found.chain.matrices - found.trained_with).square().sum((-2, -1)).sqrt().mean((1, 2))  # (jobs,)
    found = _retry(job, data, folds, found, found.chain, grid, change > AGAIN, "round 2")
    return _conclude(data.with_evidence(found.log_probs), jobs, folds, found.chain, grid, period, found.judges)


def _conclude(
    data: ChainData,
    jobs: Members,
    folds: Tensor,
    chain: ChainParameters,
    grid: np.ndarray,
    period: Period,
    judges: tuple[SequenceModel, ...],
) -> Posterior:
    """Choose the family of Q, and say what is known of the true labels under it."""
    chosen = choose_noise(data, jobs, chain, folds, grid, period)
    labels = expect(data, jobs, chosen.parameters, posterior=True).posterior
    assert labels is not None
    noise = _own_noise(data, chosen.parameters, grid, period).to(folds.device)
    shares = data.label_shares().cpu()
    learned = _learned(chosen)
    for job, found in enumerate(learned):
        own = chosen.parameters.take(torch.tensor([job], device=folds.device)).cpu()
        fold = folds[job : job + 1].cpu()
        found["training_"] = TrainingEvidence(data.job(job), own, fold, grid, shares=shares[job], period=period)
        count = judges[0].members // len(learned) if judges else 0
        own_judges = [fleet.member(job * count, count).cpu().eval() for fleet in judges]
        found["fold_model_"] = stack(own_judges) if judges else None
    return Posterior(labels, folds, noise, learned)


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


def chain_data(data: FleetData, n_classes: int, cells: Cells | None = None) -> tuple[ChainData, np.ndarray]:
    """The labels as a chain sees them, and the moments at which it estimates Q."""
    grid, points = data.grid.double().cpu().numpy() if cells is None else cells.grid, data.points
    if cells is None and len(grid) > MAX_POINTS:
        coarse = np.linspace(grid[0], grid[-1], MAX_POINTS)
        nearest = np.searchsorted((coarse[1:] + coarse[:-1]) / 2, grid)
        place = torch.from_numpy(nearest).to(data.mask.device)
        points = place.expand_as(data.mask) if points is None else place[points]
        grid = coarse
    seen = ChainData(data.labels, data.mask, points, len(grid), n_classes, trusted=data.trusted)
    return seen.with_gaps(None if data.gaps is None else data.gaps.cpu().numpy()), grid


def _gather(
    job: FleetJob, data: ChainData, folds: Tensor, chain: ChainParameters, grid: np.ndarray, stage: str
) -> Evidence:
    """Train networks with the chain's Q, each without one fold, and join what they say of that fold to the chain."""
    period = job.settings.period
    noise = _own_noise(data, chain, grid, period).to(folds.device)
    log_probs, judges = cross_fit(job, folds, noise, stage)
    fitted = join_evidence(data.with_evidence(log_probs), _every_row(folds), chain, grid, period)
    return Evidence(log_probs, judges, fitted.parameters, fitted.log_likelihood, chain.matrices)


def _several_speak(data: ChainData) -> bool:
    """Whether any job has labels of more than one annotator."""
    return bool((data.label_shares() > 0).sum(1).max() > 1)


def _own_noise(data: ChainData, chain: ChainParameters, grid: np.ndarray, period: Period) -> FixedNoise:
    """The Q of each annotator; in the common one they weigh as much as their labels."""
    # Of several clocks the numbers of cells stand for moments.
    moments, again = (grid, one_period(period)) if grid.ndim == 1 else (np.arange(len(grid)), None)
    matrices = chain.matrices.double().cpu()  # (jobs, annotators, points, classes, classes)
    if matrices.shape[1] == 1:
        return FixedNoise(matrices[:, 0].numpy(), moments, period=again)
    common = torch.einsum("ja,ja...->j...", data.label_shares().cpu(), matrices)
    return FixedNoise(matrices.numpy(), moments, common.numpy(), again)


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
    return _keep_better(
        found, _gather(take_jobs(job, index), part, folds[index], chain.take(index), grid, stage), index
    )


def _keep_better(first: Evidence, second: Evidence, jobs: Tensor) -> Evidence:
    """Put the second try of some jobs in place of their first where labels are likelier under it."""
    wins = second.log_likelihood > first.log_likelihood[jobs]
    place = jobs[wins]
    count = first.judges[0].members // len(first.log_probs)
    each = torch.arange(count, device=jobs.device)
    theirs = (wins.nonzero() * count + each).flatten()
    for old, new in zip(first.judges, second.judges, strict=True):
        put_members(old, (place[:, None] * count + each).flatten(), new, theirs)

    def put(old: Tensor, new: Tensor) -> Tensor:
        return old.index_copy(0, place, new[wins])

    index = torch.arange(len(first.log_probs), device=jobs.device)
    source = index.index_copy(0, place, wins.nonzero().flatten() + len(index))
    chain = cat_parameters([first.chain, second.chain]).take(source)
    return Evidence(
        put(first.log_probs, second.log_probs),
        first.judges,
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
