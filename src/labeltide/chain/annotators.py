"""Q(t) of each annotator by partial pooling, from labels alone or with evidence.

The model of Dawid and Skene (1979) with hidden Markov true labels, Q that changes over the clock, and annotators drawn
around a common Q. Cross-validation chooses bursts, smoothness and the strength of pooling. Annotators are not
independent given the truth where steps are hard for all of them (Whitehill and others 2009). The chain is therefore
pooled with the shares of votes (`consensus_pool.py`), with weights that best predict an annotator who was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.consensus_pool import pool_with_votes
from labeltide.chain.data import ChainData, ChainParameters, Members, cat_parameters
from labeltide.chain.em import FittedChains, fit_chains
from labeltide.chain.families import Family, Shape, constant_shape, family, pooled, spline_shape
from labeltide.chain.leave_one_out import predictive_log_likelihood
from labeltide.chain.passes import expect
from labeltide.chain.pooled import PooledFamilies
from labeltide.chain.start import BURSTS, BURSTS_WORTH, POOLING, POOLING_STRENGTHS, label_chain, tell_apart

CANDIDATE_ITERATIONS, FINAL_ITERATIONS = 15, 40  # by hand: of EM (docs/decisions/008-starts-of-em.md)


class Candidate(NamedTuple):
    """One model of how annotators err."""

    smoothness: float | None  # of Q(t) over the clock; None: it does not change
    strength: float  # the precision of an annotator's logits around the common ones
    bursts: bool  # whether errors may come in bursts


# docs/decisions/009-several-annotators.md
FIRST_CANDIDATE = Candidate(10.0, POOLING, False)  # by hand
CANDIDATE_SMOOTHNESS = (None, 1000.0, 100.0, 1.0)  # by hand: compared with the first


class Annotators(NamedTuple):
    """Fitted annotators, the posterior of the true labels, and the candidate that was chosen."""

    parameters: ChainParameters  # one member; matrices (1, annotators, points, classes, classes)
    common: Tensor  # (points, classes, classes), the centre of the pooling: Q of a new annotator
    posterior: Tensor  # (rows, steps, classes), of the chain
    belief: Tensor  # (rows, steps, classes), the chain's posterior pooled with the shares of votes
    another: Tensor  # (rows, steps, classes), probability of each label of an annotator who has not labelled the step
    labels: Tensor  # (rows, steps), the consensus: see `pool_with_votes`
    weights: Tensor  # (2,), of the chain and of the votes
    chosen: Candidate
    tried: dict[Candidate, float]  # held-out predictive log-likelihood; empty where nothing was compared


def fit_annotators(
    data: ChainData,
    grid: np.ndarray,
    folds: Tensor | None = None,
    *,
    candidates: Sequence[Candidate] | None = None,
    period: float | None = None,
) -> Annotators:
    """Fit Q(t) of each annotator and the common one, and give the posterior of every true label.

    Candidates are compared stepwise: bursts or not, then smoothness over the clock, then pooling, each under the
    best so far. Evidence, where `data` has it, enters with a power that is learned; trusted labels are fixed.

    Parameters
    ----------
    data : one set of labels
    grid : the moments of the clock
    folds : int64 Tensor of shape (rows,), optional
        The folds of cross-validation; without folds one candidate is taken without comparison.
    candidates : what to compare instead
    period : the period of the clock, where it has one
    """
    start = _start(data, grid, period)
    if folds is None or (candidates is not None and len(candidates) == 1):
        only = FIRST_CANDIDATE if candidates is None else candidates[0]
        return _conclude(data, start, only, {}, folds, grid, period)
    tried: dict[Candidate, float] = {}
    if candidates is None:
        tried = _try(data, start, [FIRST_CANDIDATE, FIRST_CANDIDATE._replace(bursts=True)], folds, grid, period)
        best = _best(tried)
        tried |= _try(
            data, start, [best._replace(smoothness=value) for value in CANDIDATE_SMOOTHNESS], folds, grid, period
        )
        best = _best(tried)
        tried |= _try(data, start, [best._replace(strength=value) for value in POOLING_STRENGTHS], folds, grid, period)
    else:
        tried = _try(data, start, candidates, folds, grid, period)
    return _conclude(data, start, _best(tried), tried, folds, grid, period)


def _best(tried: dict[Candidate, float]) -> Candidate:
    """The candidate of highest held-out score; bursts must gain `BURSTS_WORTH`."""
    return max(tried, key=lambda candidate: tried[candidate] - BURSTS_WORTH * candidate.bursts)


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
    """Cross-validated score of each candidate: every row is scored by a chain fitted without it."""
    n_folds = int(folds.max()) + 1
    left_out = (folds == torch.arange(n_folds)[:, None]).float()  # (folds, rows)
    reached: dict[Candidate, float] = {}
    for bursts in (False, True):  # chains with bursts and without cannot share a fleet
        alike = [candidate for candidate in candidates if candidate.bursts == bursts]
        if not alike:
            continue
        each = [candidate for candidate in alike for _ in range(n_folds)]
        scored = left_out.repeat(len(alike), 1)
        members = _members(1 - scored)
        fitted = _fit(data, members, start, each, grid, period, CANDIDATE_ITERATIONS)
        scores = predictive_log_likelihood(data, members, fitted.parameters, fitted.log_likelihood, scored > 0)
        sums = (scores * scored).sum(1).view(len(alike), n_folds).sum(1)
        reached |= dict(zip(alike, sums.tolist(), strict=True))
    return {candidate: reached[candidate] for candidate in candidates}


def _conclude(
    data: ChainData,
    start: ChainParameters,
    chosen: Candidate,
    tried: dict[Candidate, float],
    folds: Tensor | None,
    grid: np.ndarray,
    period: float | None,
) -> Annotators:
    every = _members(torch.ones(1, len(data.mask)))
    parameters = _fit(data, every, start, [chosen], grid, period, FINAL_ITERATIONS).parameters
    posterior = expect(data, every, parameters, posterior=True).posterior
    assert posterior is not None
    common = _families(data, [chosen], grid, period).common(parameters.matrices)[0]
    predict = partial(_predict_left_out, start=start, chosen=chosen, folds=folds, grid=grid, period=period)
    opinions = pool_with_votes(data, posterior[0], _expected_label(data, posterior[0], common), predict)
    return Annotators(parameters, common, posterior[0], *opinions, chosen, tried)


def _predict_left_out(
    data: ChainData,
    annotator: int,
    *,
    start: ChainParameters,
    chosen: Candidate,
    folds: Tensor | None,
    grid: np.ndarray,
    period: float | None,
) -> tuple[Tensor, Tensor]:
    """Posterior of true labels, and probabilities of the labels of an annotator without labels.

    The chain that predicts a row did not learn from it, where there are folds. The Q of an annotator without labels is
    the common one. Both results have shape (rows, steps, classes).
    """
    fold = torch.zeros(len(data.mask), dtype=torch.int64) if folds is None else folds
    left_out = (fold == torch.arange(int(fold.max()) + 1)[:, None]).float()  # (folds, rows)
    members = _members(torch.ones_like(left_out) if folds is None else 1 - left_out)
    fitted = _fit(data, members, start, [chosen] * len(left_out), grid, period, CANDIDATE_ITERATIONS)
    posteriors = expect(data, members, fitted.parameters, posterior=True).posterior
    assert posteriors is not None
    posterior = posteriors[fold, torch.arange(len(fold))]
    noise = fitted.parameters.matrices[:, annotator][fold[:, None], data.places()]  # (rows, steps, classes, classes)
    return posterior, torch.einsum("rti,rtij->rtj", posterior, noise)


def _expected_label(data: ChainData, posterior: Tensor, noise: Tensor) -> Tensor:
    """Probability of each recorded label given beliefs in the true ones: (rows, steps, classes)."""
    return torch.einsum("rti,rtij->rtj", posterior, noise[data.places()])


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
    made: dict[Candidate, Family] = {}
    for candidate in dict.fromkeys(candidates):
        shape = _shape(grid, candidate.smoothness, period)
        made[candidate] = pooled(family(data.n_classes, shape, "each", "by class"), candidate.strength)
    return PooledFamilies.of([made[candidate] for candidate in candidates])


def _shape(grid: np.ndarray, smoothness: float | None, period: float | None) -> Shape:
    return constant_shape(grid) if smoothness is None else spline_shape(grid, smoothness, period)


def _members(weights: Tensor) -> Members:
    first = torch.zeros(len(weights), dtype=torch.int64)
    return Members(first, first, weights)
