"""Fit many chains from one: members differ in rows, labels or family, and run in parts that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members, cat_parameters
from labeltide.chain.em import FittedChains, fit_chains
from labeltide.chain.families import Family
from labeltide.chain.logit import Coefficients, Families
from labeltide.chain.pooled import families_of

NUMBERS_AT_ONCE = 2**25  # what one Newton step for Q keeps: designs times weights, for every member
ITERATIONS = 14  # of EM from the fitted chain


def refit(
    data: ChainData,
    members: Members,
    families: Sequence[Family] | None,
    parameters: ChainParameters,
    iterations: int = ITERATIONS,
    learn_power: bool = True,
) -> FittedChains:
    """Improve chains, one for each member, each within its family; without families no label is wrong.

    `parameters` hold one chain to start from for all members, or one for each. Chains that start without bursts of
    errors stay so.
    """
    count = len(members.labels)
    largest = max(family.design.size for family in families) if families else 1
    at_once = max(1, NUMBERS_AT_ONCE // largest)
    learn = learn_power and data.evidence is not None
    if parameters.bursts is not None and not bool(parameters.bursts.any()):
        parameters = parameters._replace(bursts=None)  # a faster pass
    shared = len(parameters.power) == 1
    parts = []
    for index in torch.arange(count).split(at_once):
        start = parameters.take(torch.zeros_like(index) if shared else index)
        kinds: Families = NoMistakes((), data.n_points, data.n_classes)
        if families is None:
            start = start._replace(matrices=kinds.noise(kinds.fit_start(start.matrices)))
        else:
            kinds = families_of([families[member] for member in index.tolist()])
        parts.append(fit_chains(data, members.take(index), kinds, start, iterations=iterations, learn_power=learn))
    fitted = cat_parameters([part.parameters for part in parts])
    return FittedChains(fitted, torch.cat([part.log_likelihood for part in parts]))


class NoMistakes(Families):
    """Q that is the identity and stays so, for all members and annotators."""

    def fit_start(self, matrices: Tensor) -> Coefficients:
        """The identity, in the shape of the given matrices."""
        return [torch.eye(self.n_classes, dtype=matrices.dtype).expand_as(matrices)]

    def noise(self, coefficients: Coefficients) -> Tensor:
        """Every label is recorded as it is."""
        return coefficients[0]

    def step(self, coefficients: Coefficients, counts: Tensor) -> Coefficients:
        """Nothing changes."""
        return coefficients


def same_data(count: int, weights: Tensor) -> Members:
    """Members that all see the first set of labels and evidence, and differ in the weights of rows."""
    zeros = torch.zeros(count, dtype=torch.int64)
    return Members(zeros, zeros, weights.expand(count, -1))


def reached(fitted: FittedChains, members: Members) -> Tensor:
    """The log-likelihood of each member's rows: (members,)."""
    return (fitted.log_likelihood.double() * members.weights).sum(1)
