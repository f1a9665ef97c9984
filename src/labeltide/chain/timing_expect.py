"""E-step of the chain with timing errors: expected counts are gradients of the log-likelihood (Eisner 2016)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Expected, Members
from labeltide.chain.plain import TINY, count_labels, label_likelihoods
from labeltide.chain.timing_pass import Steps, timed_log_likelihood

NUMBERS_AT_ONCE = 2**24  # of the states of a pass; its gradient keeps about ten times as many


class TimedChains(NamedTuple):
    """One hidden Markov model with timing errors per member."""

    chain: ChainParameters  # its Q is that of labels against the annotator's label z; without bursts
    offsets: Tensor  # (members, annotators or 1, pairs, 2 * reach + 1), probabilities of offsets in steps

    def take(self, index: Tensor) -> TimedChains:
        """Some of the members."""
        return TimedChains(self.chain.take(index), self.offsets[index])


class TimedExpected(NamedTuple):
    """Result of a pass: the likelihood and the expected sufficient statistics of EM."""

    chain: Expected  # its counts are of the annotator's label z, its posterior is that of the true label y
    offsets: Tensor  # (members, annotators or 1, pairs, 2 * reach + 1), expected transitions


def has_one_annotator_per_row(data: ChainData) -> bool:
    """Whether no row has labels of two annotators. The state space holds the label of one."""
    return bool((_labelled(data).sum(-1) <= 1).all())


def expect_timing(
    data: ChainData, members: Members, parameters: TimedChains, *, posterior: bool = False
) -> TimedExpected:
    """E-step for every member, in parts that fit into memory."""
    parts = [
        _expect(data, members.take(part), parameters.take(part), posterior) for part in _parts(data, parameters)
    ]
    chains = [torch.cat(tensors) for tensors in zip(*(part.chain[:6] for part in parts), strict=True)]
    smoothed = [part.chain.posterior for part in parts if part.chain.posterior is not None]
    expected = Expected(*chains, torch.cat(smoothed) if smoothed else None)  # type: ignore[call-arg]
    return TimedExpected(expected, torch.cat([part.offsets for part in parts]))


def timing_log_likelihood(data: ChainData, members: Members, parameters: TimedChains) -> Tensor:
    """Log-likelihood of the recorded labels: (members, rows)."""
    with torch.no_grad():
        return torch.cat([
            timed_log_likelihood(*_inputs(data, members.take(part), parameters.take(part))).view(len(part), -1)
            for part in _parts(data, parameters)
        ])


def _parts(data: ChainData, parameters: TimedChains) -> tuple[Tensor, ...]:
    states = parameters.offsets.shape[-2] * parameters.offsets.shape[-1] + data.n_classes**2
    every = torch.arange(len(parameters.offsets), device=data.mask.device)
    return every.split(max(1, NUMBERS_AT_ONCE // (data.mask.numel() * states)))


def _expect(data: ChainData, members: Members, parameters: TimedChains, posterior: bool) -> TimedExpected:
    steps, offsets = _inputs(data, members, parameters)
    leaves = [tensor.detach().requires_grad_() for tensor in (*steps[:4], offsets)]
    with torch.enable_grad():
        log_likelihood = timed_log_likelihood(Steps(*leaves[:4], steps.mask), leaves[4])
        slopes = torch.autograd.grad(log_likelihood.sum(), leaves)
    weights = members.weights.flatten()  # (sequences,)
    first, moves, truth, recorded, moved = (
        leaf.detach() * slope for leaf, slope in zip(leaves, slopes, strict=True)
    )
    m, rows = members.weights.shape
    by_label = (recorded * weights[:, None]).transpose(0, 1).unflatten(0, (m, rows))  # (members, rows, steps, classes)
    whose = _annotator_of_row(data, parameters)[members.labels]  # (members, rows)
    counts = torch.zeros_like(parameters.offsets)
    index = torch.arange(m, device=weights.device)[:, None].expand_as(whose)
    counts.index_put_((index, whose), (moved * weights[:, None, None]).unflatten(0, (m, rows)), accumulate=True)
    groups = parameters.chain.matrices.shape[1]
    truth_of_rows = truth.transpose(0, 1).unflatten(0, (m, rows))
    expected = Expected(
        log_likelihood.detach().view(m, rows),
        count_labels(data, members, by_label, groups),
        *_transitions(data, members, parameters.chain, steps, (first, moves)),
        torch.zeros(m, device=weights.device),
        truth_of_rows * data.mask[..., None] if posterior else None,
    )
    return TimedExpected(expected, counts)


def _inputs(data: ChainData, members: Members, parameters: TimedChains) -> tuple[Steps, Tensor]:
    """What the recursion reads, with all rows of all members along one axis."""
    start, transition, power, matrices = parameters.chain[:4]
    recorded = label_likelihoods(replace(data, trusted=None), members, matrices)  # (members, rows, steps, classes)
    scaled = power[:, None, None, None] * _evidence(data, members)
    ratio = (scaled - scaled.amax(-1, keepdim=True)).exp().expand_as(recorded)
    powers = data.transitions(transition)  # (members, gaps, classes, classes)
    after_gap = powers[:, :1, None] if data.jumps is None else powers[:, data.jumps[:, 1:].long()]
    moves = _normal(after_gap * ratio[:, :, 1:, None])  # (members, rows, steps - 1, from, to)
    truth = torch.ones_like(recorded)
    if data.trusted is not None:
        names = torch.arange(data.n_classes, device=data.mask.device)
        wrong = (data.trusted >= 0)[..., None] & (data.trusted[..., None] != names)
        truth = truth.masked_fill(wrong, TINY)
    by_step = [tensor.flatten(0, 1).transpose(0, 1).contiguous() for tensor in (moves, truth, recorded)]
    member = torch.arange(len(power), device=data.mask.device)[:, None]
    offsets = parameters.offsets[member, _annotator_of_row(data, parameters)[members.labels]]
    mask = data.mask.repeat(len(power), 1).T.contiguous()  # (steps, sequences)
    return Steps(_normal(start[:, None] * ratio[:, :, 0]).flatten(0, 1), *by_step, mask), offsets.flatten(0, 1)


def _transitions(
    data: ChainData, members: Members, chain: ChainParameters, steps: Steps, expected: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Expected first labels and transitions with their exposure, and the slopes of the power; see `plain_pass`."""
    m, rows = members.weights.shape
    weights = members.weights.flatten()[:, None]
    evidence = _evidence(data, members).expand(m, rows, -1, data.n_classes).flatten(0, 1).transpose(0, 1)
    real = (steps.mask * weights.T)[..., None, None]  # (steps, sequences, 1, 1)

    def by_member(values: Tensor) -> Tensor:
        return values.unflatten(0, (m, rows)).sum(1)

    both = expected[1] * real[1:]  # (steps - 1, sequences, from, to)
    before = both.sum(-1, keepdim=True)
    exposed = before * steps.moves
    apart = evidence[1:, :, None] - (steps.moves * evidence[1:, :, None]).sum(-1, keepdim=True)
    slope, curvature = (both * apart).sum((0, 2, 3)), (exposed * apart.square()).sum((0, 2, 3))
    follows = 1.0 if data.jumps is None else (data.jumps[:, 1:] == 0).float().repeat(m, 1).T[..., None, None]
    pairs = [by_member((values * follows).sum(0)) for values in (both, exposed)]
    first, e = expected[0] * weights, evidence[0]
    prior = steps.first * weights
    distance = e - (steps.first * e).sum(-1, keepdim=True)
    slope = slope + ((first - prior) * e).sum(-1)
    curvature = curvature + (prior * distance.square()).sum(-1)
    starts = torch.stack([by_member(first), by_member(prior) / chain.start.clamp_min(TINY)], 1)
    exposure = pairs[1] / chain.transition.clamp_min(TINY)
    return starts, torch.stack([pairs[0], exposure], 1), torch.stack([by_member(slope), by_member(curvature)], 1)


def _evidence(data: ChainData, members: Members) -> Tensor:
    if data.evidence is None:
        return torch.zeros(1, 1, data.mask.shape[1], 1, device=data.mask.device)
    return data.evidence[members.evidence]


def _annotator_of_row(data: ChainData, parameters: TimedChains) -> Tensor:
    """Whose offsets hold for each row: (sets, rows)."""
    if parameters.offsets.shape[1] == 1:
        return torch.zeros(data.labels.shape[:2], dtype=torch.int64, device=data.mask.device)
    return _labelled(data).int().argmax(-1)


def _labelled(data: ChainData) -> Tensor:
    """Whether each annotator has labels in each row: (sets, rows, annotators)."""
    return ((data.labels >= 0) & data.mask[..., None]).any(2)


def _normal(values: Tensor) -> Tensor:
    return values / values.sum(-1, keepdim=True).clamp_min(TINY)
