"""The training objective: an augmented Lagrangian of the average loss and penalties on Q (Nagaraj and others 2025).

All masking, weighting and averaging of losses happens here. See Nocedal and Wright (2006), chapter 17, for augmented
Lagrangians.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.objectives import losses, penalties

MIN_WEIGHT = 1e-12  # denominator of an average over no labels, which is then zero
LOSSES = {"forward": losses.forward_values, "backward": losses.backward_values}


class Scored(NamedTuple):
    """The objective of a batch and its parts: shape (members,) each."""

    total: Tensor  # minimised by training
    data: Tensor  # the average loss of a recorded label, used by early stopping and the multipliers
    labels: Tensor  # the summed weights of the labels in that average


@dataclass(frozen=True)
class Penalty:
    """A penalty on Q, averaged over annotators and the clock, and its weight.

    Attributes
    ----------
    function : from Q on the grid to one number per matrix
    weight : a number, or a Tensor of shape (members, annotators or 1)
    with_data : bool
        Whether the weight is multiplied by the linear multiplier of the data term, as that of a prior is. Needs a
        Tensor.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    weight: float | Tensor
    with_data: bool = False

    def weigh(self, multipliers: Multipliers | None) -> float | Tensor:
        """The weight under the current multipliers."""
        grows = self.with_data and multipliers is not None
        return self.weight * multipliers.linear[:, None] if grows else self.weight  # type: ignore[union-attr]


@dataclass(frozen=True)
class Multipliers:
    """Multipliers of the data term (linear) and of its square (quadratic): shape (members,) each."""

    linear: Tensor
    quadratic: Tensor


@dataclass(frozen=True)
class Objective:
    r"""The average loss of the recorded labels plus penalties on Q, separately for each member.

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
        """Evaluate the objective on a batch.

        Parameters
        ----------
        log_probs : Tensor of shape (members, batch, steps, classes)
        labels : Tensor of shape (members, batch, steps, annotators)
        weights : Tensor that broadcasts to the shape of labels
            Zero on padding and on rows that are left out. Labels of -1 never count.
        trusted : Tensor of shape (members, batch, steps), optional
            Labels known to be right (-1 elsewhere), treated as one more annotator whose Q is the identity.
        targets : Tensor of shape (members, batch, steps, classes), optional
            Soft labels: probabilities of the true label in place of all labels; zero where there is none.
        matrices : Tensor, optional
            Q in the shapes of the losses; without it, cross-entropy of the recorded labels.
        grid : Tensor of shape (members, [annotators,] points, classes, classes), optional
            Q over the whole clock, for the penalties.
        multipliers : Multipliers, optional
        """
        if targets is not None:
            values = -(targets * log_probs).sum(-1, keepdim=True)
            labels = targets.sum(-1, keepdim=True).ceil() - 1  # -1 where there is no target
        else:
            values, labels = self._label_losses(log_probs, labels, trusted, matrices)
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

    def _label_losses(
        self, log_probs: Tensor, labels: Tensor, trusted: Tensor | None, matrices: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The loss of every label, and the labels, with trusted ones as the last annotator."""
        if matrices is None:
            values = losses.cross_entropy(log_probs, labels)
        else:
            values = LOSSES[self.loss](log_probs, labels, matrices)
        if trusted is None:
            return values, labels
        trusted_values = losses.cross_entropy(log_probs, trusted).unsqueeze(-1)
        return torch.cat([values, trusted_values], -1), torch.cat([labels, trusted.unsqueeze(-1)], -1)


def _step_averages(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The average loss of each step and the step's share of all labels: shape (members, steps) each."""
    counts = weights.sum((1, 3))
    per_step = (values * weights).sum((1, 3)) / counts.clamp_min(MIN_WEIGHT)
    return per_step, counts / counts.sum(1, keepdim=True).clamp_min(MIN_WEIGHT)
