r"""E-step of a hidden Markov model with timing errors.

The likelihood is that of a hybrid hidden Markov model (Bourlard and Morgan 1994). Evidence enters as the likelihood
ratio :math:`(P_{tj} / \pi_j)^k`, and the probability of the recorded labels given the features is
:math:`p(\tilde y, x) / p(x)`. The directed chain of `data.py` divides at every step instead. It cannot use features
after a transition to place it (the label bias problem, Lafferty, McCallum and Pereira 2001). With it, simulated labels
without timing errors looked early by 0.4 steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.plain import TINY, count_labels, label_likelihoods
from labeltide.chain.timing_pass import Steps, feature_log_likelihood, smooth_timing, timed_log_likelihood
from labeltide.chain.timing_states import States, make_states

NUMBERS_AT_ONCE = 2**25  # that a pass keeps: two for each state, step, row and member


class TimedChains(NamedTuple):
    """One hidden Markov model with timing errors per member."""

    chain: ChainParameters  # its Q is that of recorded labels given the annotator's label z; without bursts
    offsets: Tensor  # (members, annotators or 1, pairs, 2 * reach + 1), probabilities of offsets in steps

    def take(self, index: Tensor) -> TimedChains:
        """Some of the members."""
        return TimedChains(self.chain.take(index), self.offsets[index])

    def cpu(self) -> TimedChains:
        """The same numbers on the CPU."""
        return TimedChains(self.chain.cpu(), self.offsets.cpu())


class TimedExpected(NamedTuple):
    """Result of a pass: the likelihood and the expected sufficient statistics of EM."""

    log_likelihood: Tensor  # (members, rows), of the recorded labels given the features
    counts: Tensor  # (members, annotators, points, classes, classes), of the annotator's and the recorded label
    starts: Tensor  # (members, classes), expected first labels
    pairs: Tensor  # (members, classes, classes), expected transitions between consecutive steps
    power: Tensor  # (members, 2), slope of the log-likelihood in the power, and information
    offsets: Tensor  # (members, annotators or 1, pairs, 2 * reach + 1), expected transitions by offset
    posterior: Tensor  # (members, rows, steps, classes), of the true label; zero on padding


def has_one_annotator_per_row(data: ChainData) -> bool:
    """Whether no row has labels of two annotators. The state space holds the label of one."""
    return bool((_labelled(data).sum(-1) <= 1).all())


def class_shares(log_probs: Tensor, mask: Tensor) -> Tensor:
    """The mean probability of each class over the steps of (sets, rows, steps, classes): (sets, classes)."""
    shares = (log_probs.exp() * mask[..., None]).sum((1, 2))
    return (shares / shares.sum(-1, keepdim=True)).clamp_min(TINY)


def likelihood_ratios(log_probs: Tensor, mask: Tensor) -> Tensor:
    """Log-probabilities (sets, rows, steps, classes) less those of each class overall."""
    return (log_probs - class_shares(log_probs, mask).log()[:, None, None]).float()


def expect_timing(data: ChainData, members: Members, parameters: TimedChains) -> TimedExpected:
    """E-step for every member, in parts that fit into memory. The evidence holds `likelihood_ratios`."""
    parts = [_expect(data, members.take(part), parameters.take(part)) for part in _parts(data, parameters)]
    return TimedExpected(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def timing_log_likelihood(data: ChainData, members: Members, parameters: TimedChains) -> Tensor:
    """Log-likelihood of the recorded labels given the features: (members, rows)."""
    return torch.cat(
        [_log_likelihood(data, members.take(part), parameters.take(part)) for part in _parts(data, parameters)]
    )


def _parts(data: ChainData, parameters: TimedChains) -> tuple[Tensor, ...]:
    states = 2 * len(_states(data, parameters).truth) + 3 * data.n_classes**2
    every = torch.arange(len(parameters.offsets), device=data.mask.device)
    return every.split(max(1, NUMBERS_AT_ONCE // (data.mask.numel() * states)))


def _states(data: ChainData, parameters: TimedChains) -> States:
    return make_states(data.n_classes, parameters.offsets.shape[-1] // 2, data.mask.device)


def _expect(data: ChainData, members: Members, parameters: TimedChains) -> TimedExpected:
    """Passes over the rows of each annotator, whose offsets differ, joined in the order of the rows."""
    steps, states = _steps(data, members, parameters.chain), _states(data, parameters)
    whose = _annotator_of_row(data, parameters)[members.labels]  # (members, rows)
    weights = members.weights
    parts = [
        smooth_timing(steps, parameters.offsets[:, annotator], states, weights * (whose == annotator))
        for annotator in range(parameters.offsets.shape[1])
    ]
    log_likelihood, truth, seen, moves = parts[0][:4]
    for annotator, part in enumerate(parts[1:], 1):
        own = whose == annotator
        log_likelihood = torch.where(own, part.log_likelihood, log_likelihood)
        truth, seen = (torch.where(own[..., None], new, old) for new, old in ((part.truth, truth), (part.seen, seen)))
        moves = torch.where(own[:, None, :, None], part.moves, moves)
    features, prior = feature_log_likelihood(steps)
    posterior = truth.permute(1, 2, 0, 3)  # (members, rows, steps, classes)
    weighted = weights[..., None, None]
    evidence = _evidence(data, members)
    slopes = _power_slopes(evidence, posterior, prior.permute(1, 2, 0, 3), weights)
    return TimedExpected(
        log_likelihood - features,
        count_labels(data, members, seen.permute(1, 2, 0, 3) * weighted, parameters.chain.matrices.shape[1]),
        (posterior[:, :, 0] * weights[..., None]).sum(1),
        torch.einsum("tmirj,tr,mr->mij", moves, _follows(data), weights),
        slopes,
        torch.stack([part.offsets for part in parts], 1),
        posterior,
    )


def _log_likelihood(data: ChainData, members: Members, parameters: TimedChains) -> Tensor:
    steps, states = _steps(data, members, parameters.chain), _states(data, parameters)
    whose = _annotator_of_row(data, parameters)[members.labels]
    each = [timed_log_likelihood(steps, offsets, states) for offsets in parameters.offsets.unbind(1)]
    return torch.stack(each).gather(0, whose[None])[0] - feature_log_likelihood(steps)[0]


def _steps(data: ChainData, members: Members, chain: ChainParameters) -> Steps:
    """What the recursion reads, steps first."""
    recorded = label_likelihoods(
        replace(data, trusted=None), members, chain.matrices
    )  # (members, rows, steps, classes)
    scaled = (chain.power[:, None, None, None] * _evidence(data, members)).expand_as(recorded)
    ratio = (scaled - scaled.amax(-1, keepdim=True)).exp().clamp_min(TINY)
    powers = data.transitions(chain.transition)  # (members, gaps, classes, classes)
    after_gap = powers[:, :1, None] if data.jumps is None else powers[:, data.jumps[:, 1:].long()]
    moves = after_gap * ratio[:, :, 1:, None]  # (members, rows, steps - 1, from, to)
    truth = torch.ones_like(recorded)
    if data.trusted is not None:
        names = torch.arange(data.n_classes, device=data.mask.device)
        truth = truth.masked_fill((data.trusted >= 0)[..., None] & (data.trusted[..., None] != names), TINY)
    first = chain.start[:, None] * ratio[:, :, 0]
    truth, recorded = (tensor.permute(2, 0, 1, 3).contiguous() for tensor in (truth, recorded))
    return Steps(first, moves.permute(2, 0, 3, 1, 4).contiguous(), truth, recorded, data.mask.T)


def _power_slopes(evidence: Tensor, posterior: Tensor, prior: Tensor, weights: Tensor) -> Tensor:
    """Slope in the power, and information: (members, 2).

    The information is that of independent steps, or the sum of squared slopes of rows (Berndt, Hall, Hall and Hausman
    1974) where that is larger, because steps of a row are correlated.
    """
    slope = ((posterior - prior) * evidence).sum((-2, -1))  # (members, rows)
    alone = ((prior * evidence.square()).sum(-1) - (prior * evidence).sum(-1).square()).sum(-1)
    total, single, squared = ((values * weights).sum(1) for values in (slope, alone, slope.square()))
    return torch.stack([total, torch.maximum(single, squared)], 1)


def _evidence(data: ChainData, members: Members) -> Tensor:
    if data.evidence is None:
        return torch.zeros(1, 1, data.mask.shape[1], data.n_classes, device=data.mask.device)
    return data.evidence[members.evidence]


def _follows(data: ChainData) -> Tensor:
    """1 where a step follows at once, 0 after a gap and on padding: (steps - 1, rows)."""
    real = data.mask[:, 1:] if data.jumps is None else data.mask[:, 1:] & (data.jumps[:, 1:] == 0)
    return real.T.float()


def _annotator_of_row(data: ChainData, parameters: TimedChains) -> Tensor:
    """Whose offsets hold for each row: (sets, rows)."""
    if parameters.offsets.shape[1] == 1:
        return torch.zeros(data.labels.shape[:2], dtype=torch.int64, device=data.mask.device)
    return _labelled(data).int().argmax(-1)


def _labelled(data: ChainData) -> Tensor:
    """Whether each annotator has labels in each row: (sets, rows, annotators)."""
    return ((data.labels >= 0) & data.mask[..., None]).any(2)
