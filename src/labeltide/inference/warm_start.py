"""Warm-started EM: refit many hidden Markov models from one fitted chain (Dempster, Laird and Rubin 1977).

Members differ in the weights of rows, in labels or in the family of Q. They run in parts that fit into memory, by the
workers of the context where there is enough to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide._workers import Serial, Workers, current_workers
from labeltide.chain.data import ChainData, ChainParameters, Members, cat_parameters
from labeltide.chain.em import FittedChains, fit_chains
from labeltide.chain.families import Family
from labeltide.chain.logit import Coefficients, Families
from labeltide.chain.pooled import families_of

MAX_DESIGN_NUMBERS = 2**25  # numbers that one Newton step for Q holds: weighted designs of all members of a part
REFIT_ITERATIONS = 14  # by hand: of EM from the fitted chain (docs/decisions/015-tests-of-change.md)
FEWEST_FOR_WORKERS = 5_000_000  # steps of all members together; a hundred replicates of 50,000 labels


def refit(
    data: ChainData,
    members: Members,
    families: Sequence[Family] | None,
    parameters: ChainParameters,
    iterations: int = REFIT_ITERATIONS,
    learn_power: bool = True,
) -> FittedChains:
    """Run EM for one chain per member, each within its family; without families Q is fixed at the identity.

    `parameters` hold one starting chain for all members, or one for each. Chains that start without bursts of errors
    keep none.
    """
    count, engine = len(members.labels), _engine(data, members)
    largest = max(newton_numbers(family) for family in families) if families else 1
    part_size = max(1, min(MAX_DESIGN_NUMBERS // largest, -(-count // engine.count)))
    learn = learn_power and data.evidence is not None
    if parameters.bursts is not None and not bool(parameters.bursts.any()):
        parameters = parameters._replace(bursts=None)  # the pass without bursts is faster
    job = _Refits(data, members, families, parameters, iterations, learn)
    found = dict(engine.run(_refit_part, job, torch.arange(count).split(part_size)))
    parts = [found[number] for number in sorted(found)]
    fitted = cat_parameters([part.parameters for part in parts])
    return FittedChains(fitted, torch.cat([part.log_likelihood for part in parts]))


def _engine(data: ChainData, members: Members) -> Workers:
    """The workers of the context, for so many refits that sending the data to them pays."""
    steps = len(members.labels) * data.mask.numel()
    return current_workers() if steps >= FEWEST_FOR_WORKERS else Serial()


class _Refits(NamedTuple):
    """What `refit` was asked for."""

    data: ChainData
    members: Members
    families: Sequence[Family] | None
    parameters: ChainParameters
    iterations: int
    learn_power: bool


def _refit_part(job: _Refits, index: Tensor) -> FittedChains:
    """Refit some of the members."""
    data, shared = job.data, len(job.parameters.power) == 1
    start = job.parameters.take(torch.zeros_like(index) if shared else index)
    families: Families = IdentityNoise((), data.n_points, data.n_classes)
    if job.families is None:
        start = start._replace(matrices=families.noise(families.fit_start(start.matrices)))
    else:
        families = families_of([job.families[member] for member in index.tolist()])
    members, iterations = job.members.take(index), job.iterations
    return fit_chains(data, members, families, start, iterations=iterations, learn_power=job.learn_power)


def newton_numbers(family: Family) -> int:
    """Numbers that a Newton step for one member and annotator holds: weighted designs and information of classes."""
    return family.n_classes * family.of_class * (len(family.basis) + family.of_class)


class IdentityNoise(Families):
    """Q fixed at the identity for all members and annotators: no label is wrong."""

    def fit_start(self, matrices: Tensor) -> Coefficients:
        """The identity, in the shape of the matrices."""
        return [torch.eye(self.n_classes, dtype=matrices.dtype).expand_as(matrices)]

    def noise(self, coefficients: Coefficients) -> Tensor:
        """The identity."""
        return coefficients[0]

    def step(self, coefficients: Coefficients, counts: Tensor) -> Coefficients:
        """No Newton step: nothing is estimated."""
        return coefficients


def same_data(count: int, weights: Tensor) -> Members:
    """Members that all see the first set of labels and evidence, and differ in the weights of rows."""
    zeros = torch.zeros(count, dtype=torch.int64)
    return Members(zeros, zeros, weights.expand(count, -1))


def weighted_log_likelihood(fitted: FittedChains, members: Members) -> Tensor:
    """Log-likelihood of each member's rows, times their weights: (members,)."""
    return (fitted.log_likelihood.double() * members.weights).sum(1)
