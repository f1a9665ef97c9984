"""The steps of `tide`: cross-fitted networks, EM of the hidden Markov model with their evidence, and its posterior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Cells, Period, one_period
from labeltide._fleet import put_members, stack
from labeltide.chain.data import (
    Chain,
    ChainData,
    ChainParameters,
    Members,
    TrainingEvidence,
    cat_parameters,
    informedness,
)
from labeltide.chain.passes import expect
from labeltide.chain.select import Chosen, choose_noise
from labeltide.chain.start import flat_chain, join_evidence, label_chain
from labeltide.data.clusters import count_clusters, deal_units, splitting_units
from labeltide.estimators.cross_fit import cross_fit
from labeltide.estimators.fleet import FleetFit
from labeltide.estimators.fleet_parts import take_fits
from labeltide.models.base import SequenceModel
from labeltide.noise.fixed import FixedNoise
from labeltide.training import FleetData

CROSS_FIT_FOLDS = 5
# Classes, and moments at which Q is estimated with at most so many; linear interpolation between them. With many
# classes each has few labels at a moment, and Q has the square of their number of entries.
CHAIN_POINTS = ((12, 128), (39, 48), (127, 24))
CLEAN_ERROR_RATE = 0.1  # an error rate, by the labels alone, below which bursts of errors are suspected
RETRAIN_CHANGE = 0.05  # mean Frobenius change of Q above which the networks are trained once more


class Posterior(NamedTuple):
    """The posterior of the true labels (forward-backward smoothing), and Q(t)."""

    labels: Tensor  # (fits, rows, steps, classes), zero on padding
    folds: Tensor  # (fits, rows)
    noise: FixedNoise
    learned: list[dict[str, Any]]  # more attributes for each estimator


class Evidence(NamedTuple):
    """Out-of-fold predictions, the networks that gave them, and the hidden Markov model that combines them."""

    log_probs: Tensor  # (fits, rows, steps, classes)
    networks: tuple[SequenceModel, ...]  # fleets of (fits * networks * folds), one for each direction of time
    chain: ChainParameters
    log_likelihood: Tensor  # (fits,)
    trained_with: Tensor  # the Q of each fit with which its networks were trained


def find_posterior(fleet_fit: FleetFit) -> Posterior:
    """Estimate the posterior of the true labels and Q(t) from recorded labels and features."""
    folds = make_folds(fleet_fit)
    data, grid = chain_data(fleet_fit.data, fleet_fit.n_classes, fleet_fit.cells)
    fits, period = _every_row(folds), fleet_fit.settings.period
    annotators = data.labels.shape[-1] if _has_several_annotators(data) else 1
    chain = label_chain(data, fits, grid, period, annotators)
    if data.trusted is not None and bool((data.trusted >= 0)[data.mask].all()):
        return _conclude(data, fits, folds, chain, grid, period, ())  # every true label is known
    evidence = _gather(fleet_fit, data, folds, chain, grid, "round 1")
    # Labels that look clean may be clean, or have errors in bursts that look like the truth. Retrain the networks as if
    # a quarter were wrong, and let the features decide.
    clean_looking = 1 - chain.matrices.diagonal(dim1=-2, dim2=-1).mean((1, 2, 3)) < CLEAN_ERROR_RATE  # (fits,)
    wary = flat_chain(fleet_fit.members, annotators, data)
    evidence = _retry(fleet_fit, data, folds, evidence, wary, grid, clean_looking, "round 1, wary")
    change = (evidence.chain.matrices - evidence.trained_with).square().sum((-2, -1)).sqrt().mean((1, 2))  # (fits,)
    evidence = _retry(fleet_fit, data, folds, evidence, evidence.chain, grid, change > RETRAIN_CHANGE, "round 2")
    joined = data.with_evidence(evidence.log_probs, informedness(evidence.trained_with))
    return _conclude(joined, fits, folds, evidence.chain, grid, period, evidence.networks)


def make_folds(fleet_fit: FleetFit) -> Tensor:
    """The fold of every row, drawn from the seed of each fit, in whole clusters: (fits, rows).

    Folds are balanced by their labelled rows, and those without labels are spread evenly. Where fewer than five
    clusters have labels, there are as many folds.
    """
    labelled = (fleet_fit.data.labels >= 0).any(-1).any(-1).cpu().numpy()  # (fits, rows)
    fewest = int(labelled.sum(1).min())
    if fewest < 2:
        raise ValueError(
            "tide needs at least two sequences with labels, to judge one by the other. "
            f"Got {fewest}. Cut a long sequence into windows."
        )
    units = [splitting_units(fleet_fit.clusters, rows) for rows in labelled]
    count = min(CROSS_FIT_FOLDS, *map(count_clusters, units, labelled))
    folds = [
        deal_units(unit, rows, count, np.random.default_rng([seed, 3]))
        for unit, rows, seed in zip(units, labelled, fleet_fit.seeds, strict=True)
    ]
    return torch.from_numpy(np.stack(folds)).to(fleet_fit.data.features.device)


def chain_data(data: FleetData, n_classes: int, cells: Cells | None = None) -> tuple[ChainData, np.ndarray]:
    """The data of the hidden Markov model, and the moments at which it estimates Q."""
    grid, points = data.grid.double().cpu().numpy() if cells is None else cells.grid, data.points
    most = next(points for classes, points in CHAIN_POINTS if n_classes <= classes)
    if cells is None and len(grid) > most:
        coarse = np.linspace(grid[0], grid[-1], most)
        nearest = np.searchsorted((coarse[1:] + coarse[:-1]) / 2, grid)
        place = torch.from_numpy(nearest).to(data.mask.device)
        points = place.expand_as(data.mask) if points is None else place[points]
        grid = coarse
    labels = ChainData(data.labels, data.mask, points, len(grid), n_classes, trusted=data.trusted)
    return labels.with_gaps(None if data.gaps is None else data.gaps.cpu().numpy()), grid


def _gather(
    fleet_fit: FleetFit, data: ChainData, folds: Tensor, chain: ChainParameters, grid: np.ndarray, stage: str
) -> Evidence:
    """Cross-fit networks with the chain's Q, and fit the chain with their out-of-fold predictions as evidence."""
    period = fleet_fit.settings.period
    noise = _noise_function(data, chain, grid, period).to(folds.device)
    log_probs, networks = cross_fit(fleet_fit, folds, noise, stage)
    joined = data.with_evidence(log_probs, informedness(chain.matrices))
    fitted = join_evidence(joined, _every_row(folds), chain, grid, period)
    return Evidence(log_probs, networks, fitted.parameters, fitted.log_likelihood, chain.matrices)


def _has_several_annotators(data: ChainData) -> bool:
    """Whether any fit has labels of more than one annotator."""
    return bool((data.label_shares() > 0).sum(1).max() > 1)


def _retry(
    fleet_fit: FleetFit,
    data: ChainData,
    folds: Tensor,
    evidence: Evidence,
    chain: ChainParameters,
    grid: np.ndarray,
    chosen: Tensor,
    stage: str,
) -> Evidence:
    """Cross-fit the chosen fits again with the Q of another chain, and keep the result of higher likelihood."""
    index = chosen.nonzero().flatten()
    if not len(index):
        return evidence
    part = replace(data, labels=data.labels[index])
    second = _gather(take_fits(fleet_fit, index), part, folds[index], chain.take(index), grid, stage)
    return _keep_better(evidence, second, index)


def _keep_better(first: Evidence, second: Evidence, fits: Tensor) -> Evidence:
    """Replace the evidence of some fits by their second where its log-likelihood is higher."""
    wins = second.log_likelihood > first.log_likelihood[fits]
    place = fits[wins]
    count = first.networks[0].members // len(first.log_probs)
    each = torch.arange(count, device=fits.device)
    theirs = (wins.nonzero() * count + each).flatten()
    for old, new in zip(first.networks, second.networks, strict=True):
        put_members(old, (place[:, None] * count + each).flatten(), new, theirs)

    def put(old: Tensor, new: Tensor) -> Tensor:
        if len(place) in (0, len(old)):  # no copy of what may be large
            return new if len(place) else old
        return old.index_copy(0, place, new[wins])

    index = torch.arange(len(first.log_probs), device=fits.device)
    source = index.index_copy(0, place, wins.nonzero().flatten() + len(index))
    chain = cat_parameters([first.chain, second.chain]).take(source)
    return Evidence(
        put(first.log_probs, second.log_probs),
        first.networks,
        chain,
        put(first.log_likelihood, second.log_likelihood),
        put(first.trained_with, second.trained_with),
    )


def _conclude(
    data: ChainData,
    fits: Members,
    folds: Tensor,
    chain: ChainParameters,
    grid: np.ndarray,
    period: Period,
    networks: tuple[SequenceModel, ...],
) -> Posterior:
    """Select the families of Q, and compute the posterior of the true labels under their average."""
    chosen = choose_noise(data, fits, chain, folds, grid, period)
    labels = expect(data, fits, chosen.parameters, posterior=True).posterior
    assert labels is not None
    shares = data.label_shares().cpu()
    learned = _learned(chosen)
    count = networks[0].members // len(learned) if networks else 0  # networks of one fit and direction
    for fit, attributes in enumerate(learned):
        parameters = chosen.parameters.take(torch.tensor([fit], device=folds.device)).cpu()
        fold = folds[fit : fit + 1].cpu()
        attributes["training_"] = TrainingEvidence(
            data.of_fit(fit),
            parameters,
            fold,
            grid,
            shares=shares[fit],
            period=period,
            families=chosen.weighted(fit),
        )
        of_fit = [fleet.member(fit * count, count).cpu().eval() for fleet in networks]
        attributes["fold_model_"] = stack(of_fit) if networks else None
    noise = _noise_function(data, chosen.parameters, grid, period).to(folds.device)
    return Posterior(labels, folds, noise, learned)


def _noise_function(data: ChainData, chain: ChainParameters, grid: np.ndarray, period: Period) -> FixedNoise:
    """Q of each annotator, and the common Q: their mean weighted by shares of the labels."""
    # With several clocks, the indices of cells stand for moments.
    moments, length = (grid, one_period(period)) if grid.ndim == 1 else (np.arange(len(grid)), None)
    matrices = chain.matrices.double().cpu()  # (fits, annotators, points, classes, classes)
    if matrices.shape[1] == 1:
        return FixedNoise(matrices[:, 0].numpy(), moments, period=length)
    common = torch.einsum("ja,ja...->j...", data.label_shares().cpu(), matrices)
    return FixedNoise(matrices.numpy(), moments, common.numpy(), length)


def _learned(chosen: Chosen) -> list[dict[str, Any]]:
    chain = chosen.parameters.cpu()
    start, transition, power = (tensor.double().numpy() for tensor in chain[:3])
    bursts = [0.0] * len(power) if chain.bursts is None else chain.bursts.tolist()
    weights = chosen.weights.double().cpu().numpy()
    return [
        {
            "chain_": Chain(start[fit], transition[fit], float(power[fit]), bursts[fit]),
            "families_": dict(zip(chosen.names[fit], weights[fit].tolist(), strict=True)),
        }
        for fit in range(len(weights))
    ]


def _every_row(folds: Tensor) -> Members:
    index = torch.arange(len(folds), device=folds.device)
    return Members(index, index, torch.ones_like(folds, dtype=torch.float32))
