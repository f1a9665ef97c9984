"""Expectation and maximisation for fleets of chains: persistence, the weight of evidence, and Q(t)."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Expected, Members
from labeltide.chain.logit import Families
from labeltide.chain.passes import expect, is_compiled
from labeltide.kernels.threads import torch_on_one_thread

PSEUDO = 0.5  # pseudo-counts of every transition
MAX_POWER = 20.0
MAX_BURSTS = 0.98


class FittedChains(NamedTuple):
    """Chains after EM."""

    parameters: ChainParameters
    log_likelihood: Tensor  # (members, rows), also of rows that were not learned from


def fit_chains(
    data: ChainData,
    members: Members,
    families: Families,
    parameters: ChainParameters,
    *,
    iterations: int,
    learn_power: bool = False,
) -> FittedChains:
    """Improve all chains together for a number of iterations, from parameters whose Q the families come close to."""
    with torch_on_one_thread() if is_compiled(data) else contextlib.nullcontext():
        coefficients = families.fit_start(parameters.matrices)
        linked = _linked_labels(data, members)
        for _ in range(iterations):
            expected = expect(data, members, parameters)
            coefficients = families.step(coefficients, expected.counts)
            parameters = _maximise(parameters, expected, families.noise(coefficients), learn_power)
            if parameters.bursts is not None:
                parameters = parameters._replace(bursts=(expected.kept / linked).clamp(0.0, MAX_BURSTS))
        return FittedChains(parameters, expect(data, members, parameters).log_likelihood)


def _maximise(parameters: ChainParameters, expected: Expected, matrices: Tensor, learn_power: bool) -> ChainParameters:
    r"""The next start, transitions and power.

    The transitions enter through their normaliser too. Its logarithm is bounded by its tangent, which gives the
    closed form :math:`A_{ij} = N_{ij} / D_{ij}` and never lowers the likelihood; without evidence it is the usual one.
    """
    power, bursts = parameters.power, parameters.bursts
    start = _normalise((expected.starts[:, 0] + PSEUDO) / (expected.starts[:, 1] + PSEUDO))
    transition = _normalise((expected.pairs[:, 0] + PSEUDO) / (expected.pairs[:, 1] + PSEUDO))
    if learn_power:
        slope, curvature = expected.power.unbind(1)
        step = (slope / curvature.clamp_min(1e-6)).clamp(-0.5, 0.5)
        power = (power + step).clamp(0.0, MAX_POWER)
    return ChainParameters(start, transition, power, matrices, bursts)


def _linked_labels(data: ChainData, members: Members) -> Tensor:
    """How many labels follow another of the same annotator, weighed: (members,)."""
    there = (data.labels >= 0) & data.mask[..., None]  # (sets, rows, steps, annotators)
    both = there[:, :, 1:] & there[:, :, :-1]
    if data.jumps is not None:
        both &= (data.jumps[:, 1:] == 0)[..., None]
    linked = both.sum((2, 3)).to(members.weights)  # (sets, rows)
    return (linked[members.labels] * members.weights).sum(1).clamp_min(1.0)


def _normalise(values: Tensor) -> Tensor:
    return values / values.sum(-1, keepdim=True)
