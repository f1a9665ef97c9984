"""Consensus of annotators: their chain and their votes in one opinion pool, with a majority vote as a special case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.chain.data import ChainData
from labeltide.chain.opinion_pool import (
    EQUAL,
    average_left_out,
    fit_weights,
    left_out_opinions,
    pool,
    shared_labels,
    stack_opinions,
    vote_prior,
    vote_shares,
)


class Pooled(NamedTuple):
    """Chain and votes together; tensors have shape (rows, steps, classes) unless said otherwise."""

    belief: Tensor  # in each true label
    another: Tensor  # probability of each label of an annotator who has not labelled the step
    labels: Tensor  # (rows, steps), the consensus
    weights: Tensor  # (2,), of the chain and of the votes


class LeftOut(NamedTuple):
    """Results of chains that each leave out one annotator, both of shape (annotators, rows, steps, classes)."""

    posterior: Tensor  # of true labels
    expected: Tensor  # probability of each label of the annotator who was left out


def pool_with_votes(
    data: ChainData, posterior: Tensor, expected: Tensor, predict: Callable[[ChainData, int], tuple[Tensor, Tensor]]
) -> Pooled:
    """Pool the chain with the votes, with the weights that best predict each annotator from the others.

    Where no step has labels of two annotators nothing can be compared. The weights are then equal, and the belief in
    the true labels is the chain's. So it is where labels are trusted.

    Parameters
    ----------
    posterior, expected : Tensors of shape (rows, steps, classes), of true labels and of another annotator's
    predict : gives both from data without the labels of one annotator
    """
    labels, shared = data.labels[0], shared_labels(data.labels[0], data.mask)
    prior = vote_prior(labels.masked_fill(~data.mask[..., None], -1), data.n_classes)
    if bool(shared.any()):
        return _pool_several(data, shared, prior, (posterior, expected), _leave_each_out(data, predict))
    weights, belief = torch.tensor(EQUAL, dtype=torch.float64), posterior.double()
    another = pool(weights, stack_opinions(expected, vote_shares(labels, prior)))
    return Pooled(belief, another, belief.argmax(-1), weights)


def _pool_several(
    data: ChainData, shared: Tensor, prior: Tensor, whole: tuple[Tensor, Tensor], left_out: LeftOut
) -> Pooled:
    posterior, expected = whole
    labels, votes = data.labels[0], vote_shares(data.labels[0], prior)
    opinions, recorded = left_out_opinions(labels, shared, left_out.expected, prior)
    weights = fit_weights(opinions, recorded)
    another = pool(weights, stack_opinions(average_left_out(expected, left_out.expected, shared), votes))
    known = torch.zeros_like(data.mask) if data.trusted is None else data.trusted >= 0
    averaged = stack_opinions(average_left_out(posterior, left_out.posterior, shared), votes)
    belief = pool(weights / weights.sum().clamp_min(1e-6), averaged)
    belief = torch.where(known[..., None], posterior.double(), belief)
    # The label is what one more annotator would record: the posterior of the true label is too sure on hard steps.
    # Votes alone decide where they predict annotators better (docs/decisions/010-opinion-pool.md).
    by_pool, by_votes = ((each.argmax(-1) == recorded).sum() for each in (pool(weights, opinions), opinions[:, 1]))
    consensus = (another if by_pool >= by_votes else votes).argmax(-1)
    return Pooled(belief, another, torch.where(known, belief.argmax(-1), consensus), weights)


def _leave_each_out(data: ChainData, predict: Callable[[ChainData, int], tuple[Tensor, Tensor]]) -> LeftOut:
    """Predict each annotator with a chain that has not seen the annotator's labels."""
    results = []
    for annotator in range(data.labels.shape[-1]):
        others = data.labels.clone()
        others[..., annotator] = -1
        results.append(predict(replace(data, labels=others), annotator))
    return LeftOut(*(torch.stack(parts) for parts in zip(*results, strict=True)))
