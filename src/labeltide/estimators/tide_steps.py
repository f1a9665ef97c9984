"""The steps of `tide`: cross-fitted networks, EM of the hidden Markov model with their evidence, and its posterior."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Cells, Period, one_period
from labeltide._fleet import stack
from labeltide.chain.data import (
    Chain,
    ChainData,
    ChainParameters,
    Members,
    TrainingEvidence,
    informedness,
)
from labeltide.chain.passes import expect
from labeltide.chain.select import Chosen, choose_noise
from labeltide.chain.start import flat_chain, join_evidence, label_chain
from labeltide.data.clusters import count_clusters, deal_units, splitting_units
from labeltide.estimators.cross_fit import cross_fit
from labeltide.estimators.fleet import FleetFit
from labeltide.models.base import SequenceModel
from labeltide.noise.fixed import FixedNoise
from labeltide.training import FleetData

CROSS_FIT_FOLDS = 5  # by hand (docs/decisions/006-cross-fitting.md)
# Classes, and moments at which Q is estimated with at most so many; linear interpolation between them. With many
# classes each has few labels at a moment, and Q has the square of their number of entries
# (docs/decisions/007-families-of-q.md).
CHAIN_POINTS = ((12, 128), (39, 48), (127, 24))  # by hand
CLEAN_ERROR_RATE = 0.1  # by hand: by the labels alone, below which bursts of errors are suspected


class Posterior(NamedTuple):
    """The posterior of the true labels (forward-backward smoothing), and Q(t)."""

    labels: Tensor  # (fits, rows, steps, classes), zero on padding
    folds: Tensor  # (fits, rows)
    noise: FixedNoise
    learned: list[dict[str, Any]]  # more attributes for each estimator


def find_posterior(fleet_fit: FleetFit) -> Posterior:
    """Estimate the posterior of the true labels and Q(t) from recorded labels and features."""
    folds = make_folds(fleet_fit)
    data, grid = chain_data(fleet_fit.data, fleet_fit.n_classes, fleet_fit.cells)
    fits, period = _every_row(folds), fleet_fit.settings.period
    annotators = data.labels.shape[-1] if _has_several_annotators(data) else 1
    chain = label_chain(data, fits, grid, period, annotators)
    if data.trusted is not None and bool((data.trusted >= 0)[data.mask].all()):
        return _conclude(data, fits, folds, chain, grid, period, ())  # every true label is known
    taught = chain._replace(matrices=_training_noise(data, chain))
    noise = _noise_function(data, taught, grid, period).to(folds.device)
    log_probs, networks = cross_fit(fleet_fit, folds, noise)
    joined = data.with_evidence(log_probs, informedness(taught.matrices))
    clusters = None if fleet_fit.clusters is None else torch.from_numpy(fleet_fit.clusters)
    chain = join_evidence(joined, fits, chain, grid, period, clusters)
    return _conclude(joined, fits, folds, chain, grid, period, networks)


def _training_noise(data: ChainData, chain: ChainParameters) -> Tensor:
    """The Q of each fit with which its networks are trained: that of the labels alone, where it has errors.

    Labels that look clean by themselves may be clean, or have errors in bursts, which persist as true labels do.
    Networks that are trained as if a quarter were wrong let the features decide (docs/decisions/002-training-noise.md).
    """
    error_rate = 1 - chain.matrices.diagonal(dim1=-2, dim2=-1).mean((1, 2, 3))  # (fits,)
    wary = flat_chain(len(error_rate), chain.matrices.shape[1], data).matrices
    return torch.where((error_rate < CLEAN_ERROR_RATE)[:, None, None, None, None], wary, chain.matrices)


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


def _has_several_annotators(data: ChainData) -> bool:
    """Whether any fit has labels of more than one annotator."""
    return bool((data.label_shares() > 0).sum(1).max() > 1)


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
