"""Forward-backward pass over the states of `timing_states.py` (Rabiner 1989), in torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.chain.timing_states import States, entry_weights, transition_weights

TINY = 1e-30


class Steps(NamedTuple):
    """What a pass reads of every step."""

    first: Tensor  # (members, rows, classes), prior of the first true label times the likelihood of its features
    moves: Tensor  # (steps - 1, members, from, rows, to), transition probabilities times the likelihood of the features
    truth: Tensor  # (steps, members, rows, classes), likelihood of each true label by trusted labels
    recorded: Tensor  # (steps, members, rows, classes), emission probability of the recorded label for each z
    mask: Tensor  # bool (steps, rows)


class Smoothed(NamedTuple):
    """Result of a pass."""

    log_likelihood: Tensor  # (members, rows)
    truth: Tensor  # (steps, members, rows, classes), posterior of the true label
    seen: Tensor  # (steps, members, rows, classes), posterior of the annotator's label
    moves: Tensor  # (steps - 1, members, from, rows, to), expected transitions of the true label
    offsets: Tensor  # (members, pairs, 2 * reach + 1), expected transitions by offset, times the weights of rows


class _Forward(NamedTuple):
    filtered: list[Tensor]  # (members, classes, rows, block) of each step
    scales: list[Tensor]  # (members, rows)
    emission: list[Tensor]  # (members, rows, states)
    log_likelihood: Tensor  # (members, rows)


def timed_log_likelihood(steps: Steps, offsets: Tensor, states: States) -> Tensor:
    """Joint log-likelihood of recorded labels and features: (members, rows)."""
    return _run_forward(steps, offsets, states).log_likelihood


def feature_log_likelihood(steps: Steps) -> tuple[Tensor, Tensor]:
    """Log-likelihood (members, rows) of the features alone, and the posterior of the true labels given them."""
    filtered: list[Tensor] = []
    scales: list[Tensor] = []
    total = torch.zeros_like(steps.first[..., 0])
    for t, real in enumerate(steps.mask):
        joint = steps.first if t == 0 else torch.einsum("mri,mirj->mrj", filtered[-1], steps.moves[t - 1])
        joint = joint * steps.truth[t]
        scale = joint.sum(-1).clamp_min(TINY)
        now = joint / scale[..., None]
        filtered.append(now if t == 0 else torch.where(real[:, None], now, filtered[-1]))
        scales.append(scale)
        total = total + scale.log() * real
    posterior, back = torch.empty_like(steps.truth), torch.ones_like(steps.first)
    for t in range(len(steps.mask) - 1, -1, -1):
        posterior[t] = filtered[t] * back * steps.mask[t][:, None]
        if t:
            ahead = back * steps.truth[t] / scales[t][..., None]
            back = torch.where(steps.mask[t][:, None], torch.einsum("mrj,mirj->mri", ahead, steps.moves[t - 1]), back)
    return total, posterior


def smooth_timing(steps: Steps, offsets: Tensor, states: States, weights: Tensor) -> Smoothed:
    """Forward-backward over all rows of all members.

    Parameters
    ----------
    offsets : Tensor of shape (members, pairs, 2 * reach + 1)
    weights : Tensor of shape (members, rows)
    """
    forward = _run_forward(steps, offsets, states)
    variable = offsets.detach().requires_grad_()
    with torch.enable_grad():
        links, entries = transition_weights(states, variable), entry_weights(states, variable)
    by_class = links.detach().unflatten(1, (states.n_classes, -1))  # (members, from, block, states)
    used = torch.zeros_like(by_class)
    complete = (~states.is_early).to(offsets).expand(*weights.shape, -1)
    back = complete / _sum_states(forward.filtered[-1], complete, states)[..., None]  # (members, rows, states)
    truth, seen, moves = torch.empty_like(steps.truth), torch.empty_like(steps.recorded), torch.empty_like(steps.moves)
    to_seen = torch.nn.functional.one_hot(states.seen, states.n_classes).to(offsets)
    for t in range(len(steps.mask) - 1, -1, -1):
        real = steps.mask[t][:, None]
        both = _rows_first(forward.filtered[t]) * back * real  # (members, rows, states)
        truth[t], seen[t] = both.unflatten(-1, (states.n_classes, -1)).sum(-1), both @ to_seen
        if not t:
            break
        ahead = back * forward.emission[t] / forward.scales[t][..., None]  # (members, rows, states)
        ahead = (ahead * real).unflatten(-1, (states.n_classes, -1))[:, None]  # (members, 1, rows, to, block)
        arrived = (forward.filtered[t - 1] @ by_class).unflatten(-1, (states.n_classes, -1))
        moves[t - 1] = (arrived * ahead).sum(-1) * steps.moves[t - 1]
        moved = (ahead * steps.moves[t - 1][..., None]).flatten(-2)  # (members, from, rows, states)
        used += (forward.filtered[t - 1] * weights[:, None, :, None]).mT @ moved
        before = _rows_first(moved @ by_class.mT)
        back = torch.where(real, before, back)
    began = (steps.first * weights[..., None]).mT @ (back * forward.emission[0] / forward.scales[0][..., None])
    slope = torch.autograd.grad((links * used.flatten(1, 2)).sum() + (entries * began).sum(), variable)[0]
    return Smoothed(forward.log_likelihood, truth, seen, moves, offsets * slope)


def _run_forward(steps: Steps, offsets: Tensor, states: States) -> _Forward:
    links = transition_weights(states, offsets).unflatten(1, (states.n_classes, -1))  # (members, from, block, states)
    filtered: list[Tensor] = []
    scales, emissions = [], []
    total = torch.zeros_like(steps.first[..., 0])
    for t, real in enumerate(steps.mask):
        emission = steps.truth[t][..., states.truth] * steps.recorded[t][..., states.seen]  # (members, rows, states)
        if t == 0:
            arrived = steps.first @ entry_weights(states, offsets)
        else:
            parts = (filtered[-1] @ links).unflatten(-1, (states.n_classes, -1))  # (members, from, rows, to, block)
            arrived = (parts * steps.moves[t - 1][..., None]).sum(1).flatten(-2)
        joint = arrived * emission
        scale = joint.sum(-1).clamp_min(TINY)  # (members, rows)
        now = (joint / scale[..., None]).unflatten(-1, (states.n_classes, -1)).transpose(1, 2)
        filtered.append(now if t == 0 else torch.where(real[:, None], now, filtered[-1]))
        scales.append(scale)
        emissions.append(emission)
        total = total + scale.log() * real
    complete = (~states.is_early).to(offsets)
    return _Forward(filtered, scales, emissions, total + _sum_states(filtered[-1], complete, states).log())


def _sum_states(filtered: Tensor, weights: Tensor, states: States) -> Tensor:
    """Sum over the states with some weights: (members, rows)."""
    return (_rows_first(filtered) * weights).sum(-1).clamp_min(TINY)


def _rows_first(values: Tensor) -> Tensor:
    """(members, classes, rows, block) to (members, rows, states)."""
    return values.transpose(1, 2).flatten(-2)
