"""Q(t) of each annotator by partial pooling, from labels alone or with evidence.

The model of Dawid and Skene (1979) with hidden Markov true labels, Q that changes over the clock, and annotators drawn
around a common Q. Cross-validation chooses bursts, smoothness and the strength of pooling. Annotators are not
independent given the truth where steps are hard for all of them (Whitehill and others 2009). The chain is therefore
pooled with the shares of votes (`pool_with_votes`), with weights that best predict an annotator who was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members, cat_parameters, same_data
from labeltide.chain.em import (
    BURSTS,
    BURSTS_WORTH,
    POOLING,
    POOLING_STRENGTHS,
    FittedChains,
    fit_chains,
    label_chain,
    tell_apart,
)
from labeltide.chain.families import Family, PooledFamilies, constant_shape, family, pooled, spline_shape
from labeltide.chain.passes import posteriors, predictive_log_likelihood

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
    best so far. Evidence, where `data` has it, enters with a power that is learned; trusted labels are fixed. Without
    folds of cross-validation, (rows,), one candidate is taken without comparison.
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
    every = same_data(torch.ones(1, len(data.mask)))
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
        members = same_data(1 - scored)
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
    every = same_data(torch.ones(1, len(data.mask)))
    parameters = _fit(data, every, start, [chosen], grid, period, FINAL_ITERATIONS).parameters
    posterior = posteriors(data, every, parameters)
    common = _families(data, [chosen], grid, period).common(parameters.matrices)[0]
    expected = torch.einsum("rti,rtij->rtj", posterior[0], common[data.grid_index()])

    def predict(others: ChainData, annotator: int) -> tuple[Tensor, Tensor]:
        """Posterior of true labels, and probabilities of the labels of an annotator without labels.

        The chain that predicts a row did not learn from it, where there are folds. The Q of an annotator without
        labels is the common one. Both results have shape (rows, steps, classes).
        """
        fold = torch.zeros(len(data.mask), dtype=torch.int64) if folds is None else folds
        left_out = (fold == torch.arange(int(fold.max()) + 1)[:, None]).float()  # (folds, rows)
        members = same_data(torch.ones_like(left_out) if folds is None else 1 - left_out)
        fitted = _fit(others, members, start, [chosen] * len(left_out), grid, period, CANDIDATE_ITERATIONS)
        of_row = posteriors(others, members, fitted.parameters)[fold, torch.arange(len(fold))]
        noise = fitted.parameters.matrices[:, annotator][fold[:, None], data.grid_index()]
        return of_row, torch.einsum("rti,rtij->rtj", of_row, noise)

    opinions = pool_with_votes(data, posterior[0], expected, predict)
    return Annotators(parameters, common, posterior[0], *opinions, chosen, tried)


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
        smoothness = candidate.smoothness
        shape = constant_shape(grid) if smoothness is None else spline_shape(grid, smoothness, period)
        made[candidate] = pooled(family(data.n_classes, shape, "each", "by class"), candidate.strength)
    return PooledFamilies.of([made[candidate] for candidate in candidates])


# Consensus of annotators: their chain and their votes in one opinion pool, with a majority vote as a special case.


def pool_with_votes(
    data: ChainData, posterior: Tensor, expected: Tensor, predict: Callable[[ChainData, int], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pool the chain with the votes, with the weights that best predict each annotator from the others.

    Where no step has labels of two annotators nothing can be compared. The weights are then equal, and the belief in
    the true labels is the chain's. So it is where labels are trusted. `predict` gives the posterior of true labels and
    the expected labels of another annotator from data without the labels of one. Returns belief, another, labels and
    weights of `Annotators`.
    """
    labels, shared = data.labels[0], shared_labels(data.labels[0], data.mask)
    prior = vote_prior(labels.masked_fill(~data.mask[..., None], -1), data.n_classes)
    votes = vote_shares(labels, prior)
    if not bool(shared.any()):
        weights, belief = torch.tensor(EQUAL, dtype=torch.float64), posterior.double()
        return belief, pool(weights, stack_opinions(expected, votes)), belief.argmax(-1), weights
    results = []  # of chains that have not seen the labels of one annotator each
    for annotator in range(data.labels.shape[-1]):
        others = data.labels.clone()
        others[..., annotator] = -1
        results.append(predict(replace(data, labels=others), annotator))
    left_out_posterior, left_out = (torch.stack(parts) for parts in zip(*results, strict=True))
    opinions, recorded = left_out_opinions(labels, shared, left_out, prior)
    weights = fit_weights(opinions, recorded)
    another = pool(weights, stack_opinions(average_left_out(expected, left_out, shared), votes))
    known = torch.zeros_like(data.mask) if data.trusted is None else data.trusted >= 0
    averaged = stack_opinions(average_left_out(posterior, left_out_posterior, shared), votes)
    belief = pool(weights / weights.sum().clamp_min(1e-6), averaged)
    belief = torch.where(known[..., None], posterior.double(), belief)
    # The label is what one more annotator would record: the posterior of the true label is too sure on hard steps.
    # Votes alone decide where they predict annotators better (docs/decisions/010-opinion-pool.md).
    by_pool, by_votes = ((each.argmax(-1) == recorded).sum() for each in (pool(weights, opinions), opinions[:, 1]))
    consensus = (another if by_pool >= by_votes else votes).argmax(-1)
    return belief, another, torch.where(known, belief.argmax(-1), consensus), weights


# Logarithmic opinion pool (Genest and Zidek 1986) of the chain's prediction and the annotators' votes.
#
# Annotators err together on hard steps (item difficulty, Whitehill and others 2009), so their labels are not
# independent given the true label, and the chain's posterior is too sure. The pool :math:`p_j \propto \prod_k
# p_{kj}^{w_k}` contains the chain alone (w = 1, 0), the shares of votes alone (w = 0, 1) and everything between. Its
# weights are those that best predict an annotator who was left out.
#
# The chain's opinion is the mean over the chains that each leave out one annotator (as in bagging, Breiman 1996): that
# is what the weights were fitted to. The chain of all annotators was never put to the test. With two annotators who
# differ, it decides by error rates that it learned from just such steps (docs/decisions/010-opinion-pool.md).

EQUAL = (0.5, 0.5)  # by hand: weights of the chain and of the votes where nothing can be compared
VOTE_PRIOR = 0.5  # votes added to every class (Krichevsky and Trofimov 1981) where annotators cannot be compared
MIN_VOTES = 1e-3  # added to every class in any case
MIN_KAPPA, MAX_KAPPA = 0.02, 0.98
MIN_PROBABILITY = 1e-6  # probabilities are clipped here
PRIOR_LABELS = 10.0  # by hand: labels that the starting weights count for
NEWTON_STEPS = 30
TOLERANCE = 1e-5


def count_votes(labels: Tensor, n_classes: int) -> Tensor:
    """How many annotators gave each label: (..., annotators), -1 for none, to (..., classes)."""
    return (labels[..., None] == torch.arange(n_classes, device=labels.device)).double().sum(-2)


def vote_prior(labels: Tensor, n_classes: int) -> Tensor:
    r"""Votes added to those of each step: the parameters of a Dirichlet-multinomial distribution of votes, (classes,).

    If each step has label probabilities of its own, from which all annotators draw, the intraclass correlation is
    :math:`1 / (1 + \sum_j \alpha_j)`. Fleiss' kappa (1971) estimates it, and :math:`\alpha` is proportional to the
    shares of the classes.
    """
    votes = count_votes(labels, n_classes).flatten(0, -2)
    raters = votes.sum(-1)
    votes, raters = votes[raters > 1], raters[raters > 1]
    if not len(votes):
        return torch.full((n_classes,), VOTE_PRIOR, dtype=torch.float64)
    shares = (votes / raters[:, None]).mean(0)
    agreement = ((votes * (votes - 1)).sum(-1) / (raters * (raters - 1))).mean()
    chance = shares.square().sum().clamp_max(1 - 1e-9)
    kappa = ((agreement - chance) / (1 - chance)).clamp(MIN_KAPPA, MAX_KAPPA)
    return shares * (1 - kappa) / kappa + MIN_VOTES


def vote_shares(labels: Tensor, prior: Tensor) -> Tensor:
    """Shares of the votes of each class, to which a prior (classes,) is added: (..., annotators) to (..., classes)."""
    votes = count_votes(labels, len(prior)) + prior
    return votes / votes.sum(-1, keepdim=True)


def shared_labels(labels: Tensor, mask: Tensor) -> Tensor:
    """Labels at steps that have labels of other annotators, too: bool (rows, steps, annotators)."""
    recorded = (labels >= 0) & mask[..., None]
    return recorded & (recorded.sum(-1, keepdim=True) > 1)


def average_left_out(whole: Tensor, left_out: Tensor, shared: Tensor) -> Tensor:
    """The mean of predictions without one annotator each, over the annotators of a step; `whole` where it has one.

    Shapes (rows, steps, classes), (annotators, rows, steps, classes) and (rows, steps, annotators).
    """
    mean = torch.einsum("artj,rta->rtj", left_out.double(), shared.double())
    count = shared.sum(-1, keepdim=True)
    return torch.where(count > 0, mean / count.clamp_min(1), whole.double())


def left_out_opinions(
    labels: Tensor, shared: Tensor, left_out: Tensor, prior: Tensor, others: Sequence[Tensor] = ()
) -> tuple[Tensor, Tensor]:
    """Opinions of the chain, the votes and others about each label from the other annotators, and the label itself.

    `others` are opinions (rows, steps, classes) that no annotator's label at the step is part of; for the rest see
    `average_left_out` and `vote_prior`. Log-probabilities have shape (labels, opinions, classes).
    """
    opinions, wanted = [], []
    for annotator, predicted in enumerate(left_out):
        steps = shared[..., annotator]
        seen = labels[steps].clone()
        wanted.append(seen[:, annotator].long())
        seen[:, annotator] = -1
        parts = (predicted[steps], vote_shares(seen, prior), *(other[steps] for other in others))
        opinions.append(stack_opinions(*parts))
    return torch.cat(opinions), torch.cat(wanted)


def stack_opinions(*opinions: Tensor) -> Tensor:
    """Log-probabilities (..., opinions, classes) of probabilities (..., classes)."""
    return torch.stack([opinion.double().clamp_min(MIN_PROBABILITY).log() for opinion in opinions], -2)


def pool(weights: Tensor, log_probs: Tensor) -> Tensor:
    """The pooled probabilities (..., classes) of opinions (..., opinions, classes) with weights (opinions,)."""
    return torch.einsum("k,...kj->...j", weights, log_probs).softmax(-1)


def fit_weights(log_probs: Tensor, labels: Tensor, start: Tensor | None = None) -> Tensor:
    """Weights that maximise the log-likelihood of labels: a conditional logit (McFadden 1974), by Newton's method.

    The log-likelihood is concave in the weights. Negative weights are set to zero and the others fitted again; where no
    opinion is left, all classes are equally likely. Log-probabilities have shape (labels, opinions, classes). `start`,
    equal by default, is also the mean of a normal prior worth `PRIOR_LABELS`.
    """
    if start is None:
        start = torch.full((log_probs.shape[1],), 1 / log_probs.shape[1], dtype=torch.float64)
    kept = torch.ones(len(start), dtype=torch.bool)
    weights = torch.zeros_like(start)
    while bool(kept.any()):
        weights = torch.zeros_like(start)
        weights[kept] = _newton(log_probs[:, kept], labels, start[kept])
        negative = weights < 0
        if not bool(negative.any()):
            break
        kept &= ~negative
    return weights.clamp_min(0.0)


def _newton(log_probs: Tensor, labels: Tensor, start: Tensor) -> Tensor:
    weights = start.clone()
    chosen = log_probs.gather(-1, labels[:, None, None].expand(-1, len(start), 1))[..., 0]  # (labels, opinions)
    prior = PRIOR_LABELS * torch.eye(len(start), dtype=start.dtype)
    for _ in range(NEWTON_STEPS):
        probabilities = pool(weights, log_probs)
        means = torch.einsum("nj,nkj->nk", probabilities, log_probs)
        centred = log_probs - means[..., None]
        slope = (chosen - means).sum(0) - prior @ (weights - start)
        information = torch.einsum("nj,nkj,nlj->kl", probabilities, centred, centred) + prior
        step = torch.linalg.solve(information, slope).clamp(-1.0, 1.0)
        weights = weights + step
        if float(step.abs().max()) < TOLERANCE:
            break
    return weights
