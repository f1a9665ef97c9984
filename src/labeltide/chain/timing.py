r"""Timing errors: EM for the offsets of recorded transitions, beside all parameters of the chain.

The M-step for offsets has a closed form. Offsets of an annotator and a pair of classes are pooled towards those of all,
:math:`p_{aij} = (n_{aij} + \kappa \bar p) / (\sum_d n_{aij} + \kappa)`: the posterior mean under a Dirichlet prior.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, Members
from labeltide.chain.em import maximise
from labeltide.chain.logit import Families
from labeltide.chain.timing_expect import TimedChains, expect_timing, timing_log_likelihood

REACH = 8  # the longest offset, in steps
POOLING = 5.0  # transitions for which the offsets of all count in those of one pair and annotator
START_RIGHT, START_DECAY = 0.5, 0.6  # where EM starts: probability of no offset; ratio of an offset to one step less
PSEUDO_COUNT = 1.0  # transitions, distributed as at the start


class FittedTiming(NamedTuple):
    """Chains with timing errors after EM."""

    parameters: TimedChains
    log_likelihood: Tensor  # (members, rows), also of rows that were not learned from


def start_offsets(reach: int, device: torch.device | None = None) -> Tensor:
    """Mostly none, falling geometrically on both sides: (2 * reach + 1,)."""
    distance = torch.arange(-reach, reach + 1, device=device).abs().float()
    tails = torch.where(distance > 0, START_DECAY**distance, 0.0)
    return torch.where(distance == 0, START_RIGHT, (1 - START_RIGHT) * tails / tails.sum())


def fit_timing(
    data: ChainData,
    members: Members,
    families: Families,
    start: TimedChains,
    *,
    iterations: int,
) -> FittedTiming:
    """Run EM on all members together; Q starts at the least-squares fit of the families to that of the chain."""
    chain, offsets = start.chain._replace(bursts=None), start.offsets
    coefficients = families.fit_start(chain.matrices)
    for _ in range(iterations):
        expected = expect_timing(data, members, TimedChains(chain, offsets))
        coefficients = families.step(coefficients, expected.chain.counts)
        chain = maximise(chain, expected.chain, families.noise(coefficients), data.evidence is not None)
        offsets = pool_offsets(expected.offsets)
    fitted = TimedChains(chain, offsets)
    return FittedTiming(fitted, timing_log_likelihood(data, members, fitted))


def pool_offsets(counts: Tensor) -> Tensor:
    """M-step: offset probabilities from expected transitions (members, annotators, pairs, 2 * reach + 1)."""
    common = counts.sum((1, 2), keepdim=True) + PSEUDO_COUNT * start_offsets(counts.shape[-1] // 2, counts.device)
    pooled = counts + POOLING * common / common.sum(-1, keepdim=True)
    return pooled / pooled.sum(-1, keepdim=True)
