"""The posterior of the true labels and Q(t) of each fit, from evidence and chains that are already fitted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, one_period
from labeltide._fleet import stack
from labeltide.chain.data import Chain, ChainData, ChainParameters, Members, TrainingEvidence
from labeltide.chain.passes import expect
from labeltide.chain.select import Chosen, choose_noise
from labeltide.models.base import SequenceModel
from labeltide.noise.fixed import FixedNoise


class Posterior(NamedTuple):
    """The posterior of the true labels (forward-backward smoothing), and Q(t)."""

    labels: Tensor  # (fits, rows, steps, classes), zero on padding
    folds: Tensor  # (fits, rows)
    noise: FixedNoise
    learned: list[dict[str, Any]]  # more attributes for each estimator


def conclude(
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
    noise = noise_function(data, chosen.parameters, grid, period).to(folds.device)
    return Posterior(labels, folds, noise, learned)


def noise_function(data: ChainData, chain: ChainParameters, grid: np.ndarray, period: Period) -> FixedNoise:
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


def every_row(folds: Tensor) -> Members:
    index = torch.arange(len(folds), device=folds.device)
    return Members(index, index, torch.ones_like(folds, dtype=torch.float32))
