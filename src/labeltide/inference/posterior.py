r"""Posterior of the true labels: forward-backward smoothing of a fitted hidden Markov model (Rabiner 1989).

:math:`P(y_t \mid \tilde y_{1:T}, x) \propto \alpha_t \beta_t` with the chain's start, its transition matrix, the
evidence to the power k, and Q(t) as emission probabilities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from labeltide.chain.data import Chain, ChainData, ChainParameters, Members
from labeltide.chain.passes import expect
from labeltide.noise.base import NoiseFunction
from labeltide.tables.sources import spread_labels
from labeltide.training import clock_grid


class Recorded(NamedTuple):
    """Labels to audit, as codes; NumPy arrays of what `ChainData` holds as tensors."""

    labels: np.ndarray  # int8 (n, steps, annotators), -1 where nothing was recorded
    mask: np.ndarray  # bool (n, steps), False on padding
    clock: np.ndarray  # (n, steps)
    trusted: np.ndarray | None = None  # int8 (n, steps), true labels where they are known, -1 elsewhere
    sources: np.ndarray | None = None  # int64 (n, annotators), whose Q applies to each column; None for one Q
    gaps: np.ndarray | None = None  # int64 (n, steps), steps of time before each step; None where all are one


def true_label_posterior(recorded: Recorded, evidence: np.ndarray, chain: Chain, noise: NoiseFunction) -> np.ndarray:
    """Posterior of the true labels under a fitted chain: (n, steps, classes), zero on padding.

    Parameters
    ----------
    evidence : array of shape (n, steps, classes)
        Out-of-fold log-probabilities of the true label given the features.
    """
    posterior = expect(*_chain_inputs(recorded, evidence, chain, noise), posterior=True).posterior
    assert posterior is not None
    values: np.ndarray = posterior[0].double().numpy() * recorded.mask[..., None]
    return values / values.sum(-1, keepdims=True).clip(1e-300)


def _chain_inputs(
    recorded: Recorded, evidence: np.ndarray, chain: Chain, noise: NoiseFunction
) -> tuple[ChainData, Members, ChainParameters]:
    """The inputs of a forward-backward pass over labels to audit, with one member."""
    grid, points = clock_grid(recorded.clock, recorded.mask)
    labels = recorded.labels
    if recorded.sources is not None:
        labels = spread_labels(labels, recorded.sources, noise.annotators)
    data = ChainData(
        labels=torch.from_numpy(labels)[None],
        mask=torch.from_numpy(recorded.mask),
        points=None if points is None else torch.from_numpy(points),
        n_points=len(grid),
        n_classes=len(chain.start),
        evidence=torch.from_numpy(evidence).float()[None],
        trusted=None if recorded.trusted is None else torch.from_numpy(recorded.trusted),
    ).with_gaps(recorded.gaps)
    matrices = noise.at(grid)
    numbers = (chain.start, chain.transition, chain.power, matrices if matrices.ndim == 4 else matrices[None])
    start, transition, power, noise_matrices = (torch.as_tensor(values).float()[None] for values in numbers)
    bursts = torch.tensor([chain.bursts]) if chain.bursts else None
    first = torch.zeros(1, dtype=torch.int64)
    members = Members(first, first, torch.ones(1, len(recorded.labels)))
    return data, members, ChainParameters(start, transition, power, noise_matrices, bursts)
