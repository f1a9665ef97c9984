r"""Timing errors: EM for the offsets of recorded transitions, beside all parameters of the hidden Markov model.

The M-step for offsets has a closed form. Offsets of an annotator and a pair of classes are pooled towards those of all,
:math:`p_{aij} = (n_{aij} + \kappa \bar p) / (\sum_d n_{aij} + \kappa)`: the posterior mean under a Dirichlet prior.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.em import MAX_POWER
from labeltide.chain.logit import Families
from labeltide.chain.timing_expect import TimedChains, TimedExpected, expect_timing

POOLING = 5.0  # transitions for which the offsets of all count in those of one pair and annotator
START_RIGHT, START_DECAY = 0.5, 0.6  # where EM starts: probability of no offset; ratio of an offset to one step less
OFFSET_COUNT, PSEUDO_COUNT = 1.0, 0.5  # added to expected offsets, distributed as at the start, and to each transition
MAX_POWER_STEP = 0.3  # the most by which the power may move in one iteration


def no_offsets(members: int, n_classes: int, device: torch.device | None = None) -> Tensor:
    """All transitions are recorded in time: (members, 1, pairs, 3)."""
    one = torch.tensor([0.0, 1.0, 0.0], device=device)
    return one.expand(members, 1, n_classes * (n_classes - 1), -1).clone()


def start_offsets(reach: int, device: torch.device | None = None) -> Tensor:
    """Half of the transitions in time, offsets falling geometrically on both sides: (2 * reach + 1,)."""
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
    learn_offsets: bool = True,
) -> TimedChains:
    """Run EM on all members together; Q starts at the least-squares fit of the families to that of the chain."""
    chain, offsets = start.chain._replace(bursts=None), start.offsets
    coefficients = families.fit_start(chain.matrices)
    for _ in range(iterations):
        expected = expect_timing(data, members, TimedChains(chain, offsets))
        coefficients = families.step(coefficients, expected.counts)
        chain = _maximise(chain, expected, families.noise(coefficients))
        if learn_offsets:
            offsets = pool_offsets(expected.offsets)
    return TimedChains(chain, offsets)


def pool_offsets(counts: Tensor) -> Tensor:
    """M-step: offset probabilities from expected transitions (members, annotators, pairs, 2 * reach + 1)."""
    common = counts.sum((1, 2), keepdim=True) + OFFSET_COUNT * start_offsets(counts.shape[-1] // 2, counts.device)
    pooled = counts + POOLING * common / common.sum(-1, keepdim=True)
    return pooled / pooled.sum(-1, keepdim=True)


def _maximise(chain: ChainParameters, expected: TimedExpected, matrices: Tensor) -> ChainParameters:
    """M-step for the start and the transition matrix (Baum-Welch), and a damped Newton step for the power."""
    slope, information = expected.power.unbind(1)
    step = (slope / information.clamp_min(1e-6)).clamp(-MAX_POWER_STEP, MAX_POWER_STEP)
    start, transition = (counts + PSEUDO_COUNT for counts in (expected.starts, expected.pairs))
    return ChainParameters(
        start / start.sum(-1, keepdim=True),
        transition / transition.sum(-1, keepdim=True),
        (chain.power + step).clamp(0.0, MAX_POWER),
        matrices,
    )
