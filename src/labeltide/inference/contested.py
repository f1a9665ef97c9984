r"""Contested labels: the probability that another expert would record another label.

With the recorded label j,

.. math:: P(\text{another differs}) = 1 - p_t(j),

where :math:`p_t` is the distribution of the label of an annotator who has not labelled the step.

*Several annotators.* :math:`p_t` is a logarithmic opinion pool (`opinion_pool.py`) of what the chain expects of another
annotator, of the shares of votes at the step, and of the out-of-fold networks. Its weights are those with which each
annotator is best predicted from the others. Steps that are hard for all annotators (Whitehill and others 2009) are
thereby allowed for.

*One annotator.* How far two experts agree beyond what the features say cannot be learned from one. Either the
annotator sees a truth that the features do not hold, and another expert sees it too (:math:`\pi_t Q(t)`), or another
expert shares no more than the features (:math:`f_t`, the networks' prediction, calibrated on the annotator's own
labels out of fold). :math:`p_t = s\, \pi_t Q(t) + (1 - s) f_t` is a linear opinion pool (Stone 1961) with the fixed
weight s = 1/3 (docs/decisions/011-contested.md). A habit that the annotator keeps everywhere, such as a border between
two classes that lies elsewhere than for other experts, leaves no trace in the annotator's own labels. It
is not part of the probability, so real experts differ more often than predicted.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import Chain
from labeltide.chain.opinion_pool import (
    average_left_out,
    fit_weights,
    left_out_opinions,
    pool,
    shared_labels,
    stack_opinions,
    vote_prior,
    vote_shares,
)
from labeltide.inference.posterior import Recorded, true_label_posterior
from labeltide.noise.base import NoiseFunction

NUMBERS_AT_ONCE = 2**22  # of Q at steps that are held in memory together
SEEN_ALIKE = 1 / 3  # by hand, with one annotator: the weight of what the annotator sees and the features do not hold


def another_label(
    recorded: Recorded, evidence: np.ndarray, chain: Chain, noise: NoiseFunction, posterior: np.ndarray
) -> np.ndarray:
    """Probability of each label of another annotator, given all labels and features: (n, steps, classes).

    Parameters
    ----------
    evidence : array of shape (n, steps, classes)
        Out-of-fold log-probabilities of the true label given the features.
    posterior : array of shape (n, steps, classes)
        That of the true labels, given all recorded ones.
    """
    expected = partial(_expected_label, clock=recorded.clock, noise=noise)
    by_features, by_chain = expected(np.exp(evidence)), expected(posterior)
    labels, mask = torch.from_numpy(recorded.labels), torch.from_numpy(recorded.mask)
    shared = shared_labels(labels, mask)
    if not bool(shared.any()):
        values = _of_one_annotator(labels, mask, by_chain, by_features)
    else:
        left_out = torch.stack(
            [
                expected(_posterior_without(recorded, annotator, evidence, chain, noise))
                for annotator in range(labels.shape[-1])
            ]
        )
        prior = vote_prior(labels, posterior.shape[-1])
        weights = fit_weights(*left_out_opinions(labels, shared, left_out, prior, [by_features]))
        averaged = average_left_out(by_chain, left_out, shared)
        values = pool(weights, stack_opinions(averaged, vote_shares(labels, prior), by_features))
    return values.numpy() * recorded.mask[..., None]


def differs_probability(another: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probability that another annotator records another label than each recorded one; NaN where there is none.

    Parameters
    ----------
    another : array of shape (n, steps, classes)
    labels : array of shape (n, steps, annotators), -1 where nothing was recorded
    """
    codes = labels.clip(0).astype(np.intp)
    return np.where(labels >= 0, 1 - np.take_along_axis(another, codes, -1), np.nan)


def _of_one_annotator(labels: Tensor, mask: Tensor, by_chain: Tensor, by_features: Tensor) -> Tensor:
    """The linear opinion pool where no step has labels of two annotators."""
    only = labels.amax(-1).long()  # the one label of each step, or -1
    opinion, labelled = stack_opinions(by_features), (only >= 0) & mask
    power = fit_weights(opinion[labelled], only[labelled], torch.ones(1, dtype=torch.float64))
    return SEEN_ALIKE * by_chain + (1 - SEEN_ALIKE) * pool(power, opinion)


def _posterior_without(
    recorded: Recorded, annotator: int, evidence: np.ndarray, chain: Chain, noise: NoiseFunction
) -> np.ndarray:
    """Posterior of the true labels given the labels of all annotators but one."""
    others = recorded.labels.copy()
    others[..., annotator] = -1
    return true_label_posterior(recorded._replace(labels=others, trusted=None), evidence, chain, noise)


def _expected_label(belief: np.ndarray, clock: np.ndarray, noise: NoiseFunction) -> Tensor:
    """Probability of each recorded label given beliefs in the true ones: (n, steps, classes).

    Q at every step is large with many classes, so some rows are taken at a time.
    """
    rows = max(1, NUMBERS_AT_ONCE // (clock.shape[1] * belief.shape[-1] ** 2))
    parts = []
    for start in range(0, len(clock), rows):
        moments, place = np.unique(clock[start : start + rows], return_inverse=True)
        common = torch.from_numpy(noise.common_at(moments)[place.reshape(-1, clock.shape[1])])  # (rows, steps, ...)
        parts.append(torch.einsum("nti,ntij->ntj", torch.from_numpy(belief[start : start + rows]).double(), common))
    return torch.cat(parts)
