r"""Forward pass of a hidden Markov model whose recorded transitions come early or late.

The true labels y follow the chain of `data.py`. Every transition of y from i to j has an offset d with probability
:math:`p_{ij}(d)`. The annotator's label z moves from i to j d steps after y (before it where d is negative), and the
recorded label is drawn from z through Q(t). An offset reaches no further than the visit beside it: a late transition
ends when y moves again, an early one begins when the visit of i begins or when z has caught up with y. Given y the
probabilities of all offsets sum to one, so that :math:`p_{ij}(0) = 1` is the chain without timing errors.

The state at a step is (y, z) with the steps that remain until they agree: a hidden semi-Markov model (Yu 2010) of the
delay. Expected counts are gradients of the log-likelihood (Eisner 2016), which torch takes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

TINY = 1e-30


class Steps(NamedTuple):
    """Probabilities that a pass needs of every step; sequences are rows of all members, one after another."""

    first: Tensor  # (sequences, classes), prior of the first true label
    moves: Tensor  # (steps - 1, sequences, from, to), transition probabilities of the true label
    truth: Tensor  # (steps, sequences, classes), likelihood of each true label, beside what was recorded from z
    recorded: Tensor  # (steps, sequences, classes), emission probability of the recorded label for each z
    mask: Tensor  # bool (steps, sequences)


class Pairs(NamedTuple):
    """All ordered pairs of different classes."""

    source: Tensor  # (pairs,)
    target: Tensor  # (pairs,)

    @classmethod
    def of(cls, n_classes: int, device: torch.device) -> Pairs:
        """In the order (0, 1), (0, 2), ..., (1, 0), ..."""
        names = torch.arange(n_classes, device=device)
        both = torch.cartesian_prod(names, names)
        return cls(*both[both[:, 0] != both[:, 1]].unbind(1))


class _State(NamedTuple):
    """Forward probabilities: z agrees with y, z will follow y, or y will follow z; by the steps that remain."""

    aligned: Tensor  # (sequences, classes)
    late: Tensor  # (sequences, pairs, remaining), y is the target and z the source
    early: Tensor  # (sequences, pairs, remaining), y is the source and z the target

    def total(self) -> Tensor:
        return self.aligned.sum(-1) + self.late.sum((1, 2)) + self.early.sum((1, 2))

    def complete(self) -> Tensor:
        """Without transitions that the row's end cuts off."""
        return self.aligned.sum(-1) + self.late.sum((1, 2))


class _Offsets(NamedTuple):
    """Probabilities of offsets, arranged for the recursion."""

    none: Tensor  # (sequences, pairs)
    late: Tensor  # (sequences, pairs, reach), of 1, 2, ... steps
    early: Tensor  # (sequences, pairs, reach), of 1, 2, ... steps
    early_or_more: Tensor  # (sequences, pairs, reach), of at least 1, 2, ... steps

    @classmethod
    def of(cls, probabilities: Tensor) -> _Offsets:
        reach = probabilities.shape[-1] // 2
        early = probabilities[..., :reach].flip(-1)
        return cls(
            probabilities[..., reach], probabilities[..., reach + 1 :], early, early.flip(-1).cumsum(-1).flip(-1)
        )


def timed_log_likelihood(steps: Steps, offsets: Tensor) -> Tensor:
    """Log-likelihood of the recorded labels of each sequence: (sequences,).

    Parameters
    ----------
    offsets : Tensor of shape (sequences, pairs, 2 * reach + 1)
        Probabilities of offsets from -reach to reach for the pairs of `Pairs.of`.
    """
    n_classes = steps.first.shape[-1]
    pairs, parts = Pairs.of(n_classes, steps.first.device), _Offsets.of(offsets)
    from_pairs = torch.nn.functional.one_hot(pairs.target, n_classes).to(steps.first)  # (pairs, classes)
    state = _enter(steps.first, torch.zeros_like(steps.first), parts, pairs)
    state, scale = _rescale(_emit(state, steps, 0, pairs))
    total = scale
    for t in range(1, len(steps.mask)):
        moved = _emit(_move(state, steps.moves[t - 1], parts, pairs, from_pairs), steps, t, pairs)
        moved, scale = _rescale(moved)
        real = steps.mask[t]
        total = total + torch.where(real, scale, 0.0)
        state = _State(
            *(torch.where(real.view(-1, *[1] * (new.ndim - 1)), new, old) for new, old in zip(moved, state, strict=True))
        )
    return total + state.complete().clamp_min(TINY).log()


def _move(state: _State, moves: Tensor, offsets: _Offsets, pairs: Pairs, from_pairs: Tensor) -> _State:
    """One step of the recursion, before the labels of the step are seen."""
    stay = moves.diagonal(dim1=-2, dim2=-1)  # (sequences, classes)
    move = moves[:, pairs.source, pairs.target]  # (sequences, pairs)
    behind = state.late.sum(-1) @ from_pairs  # (sequences, classes), mass whose z has not caught up with y
    aligned, catching_up = state.aligned[:, pairs.source] * move, behind[:, pairs.source] * move
    at_once = aligned * offsets.none + catching_up * (offsets.none + offsets.early_or_more[..., 0])
    foreseen = state.early[..., 0] * move
    caught_up = state.late[..., 0] * stay[:, pairs.target]
    fresh = (at_once + foreseen + caught_up) @ from_pairs  # (sequences, classes), mass that has just become aligned
    entered = _enter(fresh, state.aligned * stay, offsets, pairs)
    late = (aligned + catching_up)[..., None] * offsets.late + _countdown(state.late) * stay[:, pairs.target, None]
    early = entered.early + _countdown(state.early) * stay[:, pairs.source, None]
    return _State(entered.aligned, late, early)


def _enter(fresh: Tensor, settled: Tensor, offsets: _Offsets, pairs: Pairs) -> _State:
    """Aligned mass, and the early transitions that begin here; on a visit's first aligned step also longer ones."""
    early = fresh[:, pairs.source, None] * offsets.early_or_more + settled[:, pairs.source, None] * offsets.early
    return _State(fresh + settled, torch.zeros_like(early), early)


def _countdown(waiting: Tensor) -> Tensor:
    """One step less remains."""
    return torch.cat([waiting[..., 1:], torch.zeros_like(waiting[..., :1])], -1)


def _emit(state: _State, steps: Steps, t: int, pairs: Pairs) -> _State:
    """Multiply by the likelihood of the true label y and of the label recorded from z."""
    truth, recorded = steps.truth[t], steps.recorded[t]
    late = truth[:, pairs.target] * recorded[:, pairs.source]
    early = truth[:, pairs.source] * recorded[:, pairs.target]
    return _State(state.aligned * truth * recorded, state.late * late[..., None], state.early * early[..., None])


def _rescale(state: _State) -> tuple[_State, Tensor]:
    total = state.total().clamp_min(TINY)
    return (
        _State(
            state.aligned / total[:, None], state.late / total[:, None, None], state.early / total[:, None, None]
        ),
        total.log(),
    )
