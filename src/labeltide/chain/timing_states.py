r"""States of a hidden Markov model whose recorded transitions come early or late.

The true labels y follow a Markov chain. Every transition of y from i to j has an offset d with probability
:math:`p_{ij}(d)`: the annotator's label z moves from i to j d steps after y, or before it where d is negative. The
recorded label is drawn from z through Q(t). An offset reaches no further than the visit beside it. A late transition
ends when y moves again. An early one begins when the visit of i begins, or when z has caught up with y. Given y the
probabilities of all offsets sum to one, so that :math:`p_{ij}(0) = 1` is the model without timing errors.

A state is (y, z) with the steps that remain until they agree, as in a hidden semi-Markov model (Yu 2010).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

MAX_STATES = 128
MAX_REACH = 8  # the longest offset, in steps


class States(NamedTuple):
    """All states, in blocks of equal size by the true label; those of a block are aligned, late, then early."""

    n_classes: int
    reach: int
    truth: Tensor  # (states,), the true label y
    seen: Tensor  # (states,), the annotator's label z
    is_early: Tensor  # bool (states,)
    remaining: Tensor  # (states,), steps until y and z agree; 0 where they do
    pair: Tensor  # (states,), the pair of classes of the transition under way; -1 where y and z agree

    @property
    def block(self) -> int:
        """States of one true label."""
        return len(self.truth) // self.n_classes


def longest_offset(n_classes: int) -> int:
    """The longest offset for which there are at most `MAX_STATES` states; 0 where even one step has more."""
    return min(MAX_REACH, (MAX_STATES // n_classes - 1) // (2 * (n_classes - 1)))


def class_pairs(n_classes: int) -> list[tuple[int, int]]:
    """Ordered pairs of different classes: (0, 1), (0, 2), ..., (1, 0), ..."""
    return [(i, j) for i in range(n_classes) for j in range(n_classes) if i != j]


@lru_cache(maxsize=8)
def make_states(n_classes: int, reach: int, device: torch.device | None = None) -> States:
    """The states of some classes and offsets."""
    places = {pair: place for place, pair in enumerate(class_pairs(n_classes))}
    rows: list[tuple[int, int, int, int, int]] = []
    for y in range(n_classes):
        others = [z for z in range(n_classes) if z != y]
        rows.append((y, y, 0, 0, -1))
        rows += [(y, z, 0, left, places[z, y]) for z in others for left in range(1, reach + 1)]
        rows += [(y, z, 1, left, places[y, z]) for z in others for left in range(1, reach + 1)]
    truth, seen, early, remaining, pair = torch.tensor(rows, device=device).unbind(1)
    return States(n_classes, reach, truth, seen, early.bool(), remaining, pair)


def entry_weights(states: States, offsets: Tensor) -> Tensor:
    """Weights with which a visit whose y and z agree for the first time enters each state: (members, classes, states).

    Beside agreement it may begin an early transition, also one whose offset reaches beyond the visit.
    """
    own = _own_class(states)  # (classes, states)
    early = offsets[..., : states.reach].cumsum(-1).flip(-1)  # (members, pairs, reach): at least 1, 2, ... steps
    return own * torch.where(states.is_early, _of_states(states, early), (states.remaining == 0).to(offsets))[:, None]


def transition_weights(states: States, offsets: Tensor) -> Tensor:
    """Weights of the moves between states, to be multiplied by the probability of the move of y.

    Parameters
    ----------
    offsets : Tensor of shape (members, pairs, 2 * reach + 1)
        Probabilities of offsets from -reach to reach.

    Returns
    -------
    Tensor of shape (members, states, states)
    """
    aligned, late = states.remaining == 0, (states.remaining > 0) & ~states.is_early
    follows = (states.truth[:, None] != states.truth) & (aligned | late)[:, None]  # a new transition of y
    begins_late = follows & late & (states.seen == states.truth[:, None])
    lateness = _of_states(states, offsets[..., states.reach + 1 :])[:, None] * begins_late
    same = states.pair[:, None] == states.pair
    counts_down = same & (states.remaining[:, None] == states.remaining + 1) & (states.remaining > 0)
    counts_down &= states.is_early[:, None] == states.is_early
    earliness = _of_states(states, offsets[..., : states.reach].flip(-1))[:, None]
    stays = aligned[:, None] & (states.truth[:, None] == states.truth)
    settled = stays * torch.where(states.is_early, earliness, aligned.to(offsets))
    fresh = _fresh(states, offsets) @ entry_weights(states, offsets)
    return fresh + settled + lateness + counts_down.to(offsets)


def _fresh(states: States, offsets: Tensor) -> Tensor:
    """Weights of the moves after which y and z agree for the first time in a visit: (members, states, classes)."""
    names = torch.arange(states.n_classes, device=offsets.device)
    aligned, last = states.remaining == 0, states.remaining == 1
    late = (states.remaining > 0) & ~states.is_early
    at_once = _by_target(offsets[..., states.reach], states)  # (members, states, classes)
    foreseen = _by_target(offsets[..., : states.reach].sum(-1), states)
    moved = aligned[:, None] * at_once + late[:, None] * (at_once + foreseen)
    joins = torch.where(states.is_early, states.seen, states.truth)  # the class in which y and z meet
    return moved + (last[:, None] & (joins[:, None] == names)).to(offsets)


def _by_target(values: Tensor, states: States) -> Tensor:
    """Values of pairs (members, pairs) for the true label of each state and each target: (members, states, classes)."""
    n = states.n_classes
    square = values.new_zeros(len(values), n * n)
    off = torch.tensor([i * n + j for i, j in class_pairs(n)], device=values.device)
    return square.index_copy(1, off, values).unflatten(1, (n, n))[:, states.truth]


def _of_states(states: States, values: Tensor) -> Tensor:
    """Values (members, pairs, reach) for the pair and the remaining steps of each state: (members, states)."""
    return values[:, states.pair.clamp_min(0), states.remaining.clamp_min(1) - 1] * (states.remaining > 0)


def _own_class(states: States) -> Tensor:
    """Which states belong to each class: (classes, states)."""
    return torch.arange(states.n_classes, device=states.truth.device)[:, None] == states.truth
