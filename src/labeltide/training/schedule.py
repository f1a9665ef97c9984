"""How long, how fast and in which rounds a fleet is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from labeltide.objectives.objective import Multipliers


@dataclass(frozen=True)
class AugmentedLagrangian:
    """The paper's algorithm 1: rounds of a few epochs, after each of which the data term weighs more.

    After round k with average loss R_k, ``linear += quadratic * R_k``, and ``quadratic *= eta`` where R_k exceeds
    ``gamma * R_(k-1)``. The defaults are the paper's: 15 rounds of 10 epochs make its 150.
    """

    epochs_per_round: int = 10
    linear: float = 1.0
    quadratic: float = 1.0
    gamma: float = 2.0
    eta: float = 2.0

    def start(self, members: int, device: torch.device) -> Multipliers:
        """The same starting weights for every member."""
        return Multipliers(
            torch.full((members,), float(self.linear), device=device),
            torch.full((members,), float(self.quadratic), device=device),
        )

    def update(self, multipliers: Multipliers, violation: Tensor, before: Tensor) -> Multipliers:
        """The weights of the next round, from the losses of this round and of the one before, (members,) each."""
        linear = multipliers.linear + multipliers.quadratic * violation
        grown = violation > self.gamma * before  # `before` is infinite in the first round
        return Multipliers(linear, torch.where(grown, self.eta * multipliers.quadratic, multipliers.quadratic))


@dataclass(frozen=True)
class Schedule:
    """The settings of one call of `train`; the defaults are the paper's.

    Attributes
    ----------
    noise_milestones : epochs at which the learning rate of Q alone is halved
    cosine : whether the learning rate falls to zero along half a cosine wave
    clip : largest Euclidean norm of one member's gradient
    patience : epochs without a better held-out likelihood after which a member stops
        Only where rows are held out; the best snapshot is then what remains.
    max_restarts : how often a member that diverges may start again, each time at half the rate
    """

    epochs: int = 150
    batch_size: int = 64
    learning_rate: float = 0.01
    noise_milestones: tuple[int, ...] = (50, 100)
    cosine: bool = False
    clip: float = 5.0
    patience: int = 20
    lagrangian: AugmentedLagrangian | None = None
    max_restarts: int = 8

    def noise_factor(self, epoch: int) -> float:
        """The share of the learning rate that Q gets in an epoch."""
        return 0.5 ** sum(epoch >= milestone for milestone in self.noise_milestones)

    def rate_factor(self, epoch: int) -> float:
        """The share of the learning rate that everything gets in an epoch."""
        return (1 + math.cos(math.pi * epoch / self.epochs)) / 2 if self.cosine else 1.0
