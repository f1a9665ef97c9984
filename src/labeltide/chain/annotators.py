"""Each annotator's own Q(t), from labels alone or with evidence; how alike they are is chosen by rows left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members, cat_parameters
from labeltide.chain.em import FittedChains, fit_chains
from labeltide.chain.families import Shape, constant_shape, family, pooled, spline_shape
from labeltide.chain.foretell import judge_rows
from labeltide.chain.passes import expect
from labeltide.chain.pooled import PooledFamilies
from labeltide.chain.start import BURSTS, BURSTS_WORTH, POOLING, label_chain, tell_apart

ITERATIONS, LAST_ITERATIONS = 15, 40


class Candidate(NamedTuple):
    """One way in which annotators may err."""

    smoothness: float | None  # of Q(t) over the clock; None: it does not change
    strength: float  # the precision of an annotator's logits around the common ones
    bursts: bool  # whether errors may go on from step to step


FIRST = Candidate(10.0, POOLING, False)
SMOOTHNESS = (None, 1000.0, 100.0, 1.0)  # the others
STRENGTHS = (0.01, 0.1, 10.0, 100.0, 1e5)  # the others, from each alone to all alike


class Annotators(NamedTuple):
    """What was learned of each annotator, and by which of the candidates."""

    parameters: ChainParameters  # one member; matrices (1, annotators, points, classes, classes)
    common: Tensor  # (points, classes, classes), Q of an annotator of whom nothing is known
    posterior: Tensor  # (rows, steps, classes)
    chosen: Candidate
    tried: dict[Candidate, float]  # how likely rows left out are (`judge_rows`); empty where nothing was compared


def fit_annotators(
    data: ChainData,
    grid: np.ndarray,
    folds: Tensor | None = None,
    *,
    candidates: Sequence[Candidate] | None = None,
    period: float | None = None,
) -> Annotators:
    """Learn Q(t) of each annotator, the common one, and the probability of every true label.

    Compared are errors in bursts or not, then shapes over the clock, then strengths of pooling, each under the best of
    those before. Evidence, where `data` has it, is joined with a power that is learned; trusted labels clamp the chain.

    Parameters
    ----------
    data : one set of labels
    grid : the moments of the clock
    folds : int64 Tensor of shape (rows,), optional
        Rows of one fold are left out together; without folds one candidate is taken untried.
    candidates : what to compare instead
    period : the length after which the clock begins anew, if it does
    """
    start = _start(data, grid, period)
    if folds is None or (candidates is not None and len(candidates) == 1):
        return _conclude(data, start, FIRST if candidates is None else candidates[0], {}, grid, period)
    tried: dict[Candidate, float] = {}
    if candidates is None:
        tried = _try(data, start, [FIRST, FIRST._replace(bursts=True)], folds, grid, period)
        best = _best(tried)
        tried |= _try(data, start, [best._replace(smoothness=value) for value in SMOOTHNESS], folds, grid, period)
        best = _best(tried)
        tried |= _try(data, start, [best._replace(strength=value) for value in STRENGTHS], folds, grid, period)
    else:
        tried = _try(data, start, candidates, folds, grid, period)
    return _conclude(data, start, _best(tried), tried, grid, period)


def _best(tried: dict[Candidate, float]) -> Candidate:
    """The candidate under which rows left out are likeliest; bursts must be worth one more parameter."""
    return max(tried, key=lambda one: tried[one] - BURSTS_WORTH * one.bursts)


def _start(data: ChainData, grid: np.ndarray, period: float | None) -> ChainParameters:
    every = _members(torch.ones(1, len(data.mask)))
    alike = label_chain(data, every, grid, period)
    power = torch.full_like(alike.power, 0.0 if data.evidence is None else 1.0)
    return tell_apart(data, every, alike._replace(power=power), grid, period)


def _try(
    data: ChainData,
    start: ChainParameters,
    candidates: Sequence[Candidate],
    folds: Tensor,
    grid: np.ndarray,
    period: float | None,
) -> dict[Candidate, float]:
    """How likely all rows are under each candidate, each row judged by a chain that did not learn from it."""
    n_folds = int(folds.max()) + 1
    left_out = (folds == torch.arange(n_folds)[:, None]).float()  # (folds, rows)
    reached: dict[Candidate, float] = {}
    for runs in (False, True):  # chains with bursts and without cannot share a fleet
        own = [one for one in candidates if one.bursts == runs]
        if not own:
            continue
        each = [one for one in own for _ in range(n_folds)]
        judged = left_out.repeat(len(own), 1)
        members = _members(1 - judged)
        fitted = _fit(data, members, start, each, grid, period, ITERATIONS)
        likely = judge_rows(data, members, fitted.parameters, fitted.log_likelihood, judged > 0)
        sums = (likely * judged).sum(1).view(len(own), n_folds).sum(1)
        reached |= dict(zip(own, sums.tolist(), strict=True))
    return {one: reached[one] for one in candidates}


def _conclude(
    data: ChainData,
    start: ChainParameters,
    chosen: Candidate,
    tried: dict[Candidate, float],
    grid: np.ndarray,
    period: float | None,
) -> Annotators:
    every = _members(torch.ones(1, len(data.mask)))
    parameters = _fit(data, every, start, [chosen], grid, period, LAST_ITERATIONS).parameters
    posterior = expect(data, every, parameters, posterior=True).posterior
    assert posterior is not None
    common = _families(data, [chosen], grid, period).common(parameters.matrices)[0]
    return Annotators(parameters, common, posterior[0], chosen, tried)


def _fit(
    data: ChainData,
    members: Members,
    start: ChainParameters,
    candidates: Sequence[Candidate],
    grid: np.ndarray,
    period: float | None,
    iterations: int,
) -> FittedChains:
    bursts = torch.full_like(start.power, BURSTS) if candidates[0].bursts else None
    starts = start._replace(bursts=bursts)
    if len(start.power) == 1:
        starts = cat_parameters([starts] * len(candidates))
    kinds = _families(data, candidates, grid, period)
    return fit_chains(data, members, kinds, starts, iterations=iterations, learn_power=data.evidence is not None)


def _families(
    data: ChainData, candidates: Sequence[Candidate], grid: np.ndarray, period: float | None
) -> PooledFamilies:
    made = {
        one: pooled(family(data.n_classes, _shape(grid, one.smoothness, period), "each", "by class"), one.strength)
        for one in candidates
    }
    return PooledFamilies.of([made[one] for one in candidates])


def _shape(grid: np.ndarray, smoothness: float | None, period: float | None) -> Shape:
    return constant_shape(grid) if smoothness is None else spline_shape(grid, smoothness, period)


def _members(weights: Tensor) -> Members:
    one = torch.zeros(len(weights), dtype=torch.int64)
    return Members(one, one, weights)
