"""The one place where losses are masked, weighed, averaged and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.objectives import losses, penalties

TINY = 1e-12  # keeps an empty average at zero
LOSSES = {"forward": losses.forward_loss, "backward": losses.backward_loss}


class Scored(NamedTuple):
    """One number for each member."""

    total: Tensor  # what training minimises
    data: Tensor  # the average loss of a recorded label, which early stopping and the multipliers watch
    labels: Tensor  # the summed weights of the labels in that average


@dataclass(frozen=True)
class Penalty:
    """A measure of Q, averaged over annotators and the clock, and its weight.

    Attributes
    ----------
    function : from Q on the grid to one number for each matrix
    weight : a number, or a Tensor of shape (members, annotators or 1) that differs among them
    with_data : bool
        Whether it weighs against the data as a prior does: it grows with their linear multiplier. Needs a Tensor.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    weight: float | Tensor
    with_data: bool = False

    def weigh(self, multipliers: Multipliers | None) -> float | Tensor:
        """The weight at this moment of training."""
        grows = self.with_data and multipliers is not None
        return self.weight * multipliers.linear[:, None] if grows else self.weight  # type: ignore[union-attr]


@dataclass(frozen=True)
class Multipliers:
    """How much the data term counts, and its square: shape (members,) each."""

    linear: Tensor
    quadratic: Tensor


@dataclass(frozen=True)
class Objective:
    r"""The average loss of the recorded labels plus penalties on Q, for each member on its own.

    With :math:`R_t` the average loss at step t,

    .. math:: \sum_k w_k\,\mathrm{mean}_t\, \mathrm{pen}_k(Q_t) + \lambda\,\mathrm{mean}_t R_t
              + \tfrac{c}{2}\,\mathrm{mean}_t R_t^2 .

    Without multipliers, :math:`\lambda = 1` and :math:`c = 0`.
    """

    loss: str = "forward"
    penalties: tuple[Penalty, ...] = ()

    def __call__(
        self,
        log_probs: Tensor,
        labels: Tensor,
        weights: Tensor,
        *,
        trusted: Tensor | None = None,
        targets: Tensor | None = None,
        matrices: Tensor | None = None,
        grid: Tensor | None = None,
        multipliers: Multipliers | None = None,
    ) -> Scored:
        """Score a batch.

        Parameters
        ----------
        log_probs : Tensor of shape (members, batch, steps, classes)
        labels : Tensor of shape (members, batch, steps, annotators)
        weights : Tensor that broadcasts to the shape of labels
            Zero on padding and on rows that do not count. Labels of -1 never count.
        trusted : Tensor of shape (members, batch, steps), optional
            Labels known to be right (-1 elsewhere): one more annotator, who makes no mistakes.
        targets : Tensor of shape (members, batch, steps, classes), optional
            Probabilities of the true label, in place of recorded and trusted labels; all zero where there is none.
        matrices : Tensor, optional
            Q as the losses take it; without it, recorded labels are taken for true.
        grid : Tensor of shape (members, [annotators,] points, classes, classes), optional
            Q over the whole clock, for the penalties.
        multipliers : Multipliers, optional
        """
        if targets is not None:
            values = -(targets * log_probs).sum(-1, keepdim=True)
            labels, trusted = targets.sum(-1, keepdim=True).ceil() - 1, None  # -1 where there is no target
        elif matrices is None:
            values = losses.cross_entropy(log_probs, labels)
        else:
            values = LOSSES[self.loss](log_probs, labels, matrices)
        if trusted is not None:
            labels = torch.cat([labels, trusted.unsqueeze(-1)], -1)
            values = torch.cat([values, losses.cross_entropy(log_probs, trusted).unsqueeze(-1)], -1)
        weights = weights * (labels >= 0)
        per_step, shares = _step_averages(values, weights)
        data = (shares * per_step).sum(1)  # (members,)
        total = data
        if multipliers is not None:
            squares = (shares * per_step.square()).sum(1)
            total = multipliers.linear * data + multipliers.quadratic / 2 * squares
        if grid is not None:
            for penalty in self.penalties:
                total = total + penalties.average(penalty.function, penalty.weigh(multipliers), grid)
        return Scored(total, data, weights.sum((1, 2, 3)))


def _step_averages(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The average loss at each step and the step's share of all labels: shape (members, steps) each."""
    counts = weights.sum((1, 3))
    per_step = (values * weights).sum((1, 3)) / counts.clamp_min(TINY)
    return per_step, counts / counts.sum(1, keepdim=True).clamp_min(TINY)
