"""Training schedule: epochs, learning rates, early stopping and the augmented Lagrangian method.

See Bertsekas (1982), Constrained optimization and Lagrange multiplier methods, and Nocedal and Wright (2006), Numerical
optimization, chapter 17.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from labeltide.objectives.objective import Multipliers

NO_CLIP = 3e38  # no finite gradient in single precision has a larger norm


@dataclass(frozen=True)
class AugmentedLagrangian:
    r"""Augmented Lagrangian method: algorithm 1 of Nagaraj and others (2025).

    It minimises the penalty on Q subject to an average loss R of zero. Each round of a few epochs minimises
    :math:`\mathrm{pen}(Q) + \lambda R + \tfrac{c}{2} R^2`. After round k,
    :math:`\lambda \leftarrow \lambda + c R_k` (``linear``), and :math:`c \leftarrow \eta c` (``quadratic``) where
    :math:`R_k > \gamma R_{k-1}`. A member with :math:`R_k = 0` stops. After `rounds` rounds the multipliers stay; None:
    they change until training ends. The defaults are the paper's: 15 rounds of 10 epochs make its 150.
    """

    epochs_per_round: int = 10
    rounds: int | None = None
    linear: float = 1.0
    quadratic: float = 1.0
    gamma: float = 2.0
    eta: float = 2.0

    def ends_round(self, epoch: int) -> bool:
        """Whether the multipliers change after this epoch, counted from 0."""
        number, left = divmod(epoch + 1, self.epochs_per_round)
        return left == 0 and (self.rounds is None or number <= self.rounds)

    def start(self, members: int, device: torch.device) -> Multipliers:
        """The initial multipliers, the same for every member."""
        return Multipliers(
            torch.full((members,), float(self.linear), device=device),
            torch.full((members,), float(self.quadratic), device=device),
        )

    def update(self, multipliers: Multipliers, violation: Tensor, previous: Tensor) -> Multipliers:
        """The multipliers of the next round, from the losses of this and the previous round, (members,) each."""
        linear = multipliers.linear + multipliers.quadratic * violation
        grown = violation > self.gamma * previous  # infinite in the first round
        return Multipliers(linear, torch.where(grown, self.eta * multipliers.quadratic, multipliers.quadratic))


@dataclass(frozen=True)
class Schedule:
    """The settings of one call of `train`; the defaults are the paper's.

    Attributes
    ----------
    noise_learning_rate : learning rate of Q; None: that of the network
    noise_milestones : epochs at which the learning rate of Q alone is halved
    cosine : whether the learning rate follows cosine annealing to zero (Loshchilov and Hutter 2017)
    clip : largest Euclidean norm of one member's gradient (gradient clipping; Pascanu and others 2013), None: any
    patience : epochs without a better held-out likelihood after which a member stops (early stopping)
        Only where rows are held out; the best parameters are then kept.
    stop_together : so many consecutive members stop at the same epoch, that of their smallest mean held-out loss
    max_restarts : how often a member that diverges may restart, each time at half the learning rate
    """

    epochs: int = 150
    batch_size: int = 64
    learning_rate: float = 0.01
    noise_learning_rate: float | None = None
    noise_milestones: tuple[int, ...] = (50, 100)
    cosine: bool = False
    clip: float | None = 5.0
    patience: int = 20
    stop_together: int = 1
    lagrangian: AugmentedLagrangian | None = None
    max_restarts: int = 8

    def noise_factor(self, epoch: int) -> float:
        """Learning rate of Q in an epoch, as a multiple of that of the network."""
        own = 1.0 if self.noise_learning_rate is None else self.noise_learning_rate / self.learning_rate
        return own * 0.5 ** sum(epoch >= milestone for milestone in self.noise_milestones)

    @property
    def max_norm(self) -> float:
        """The largest norm of a gradient as a finite number."""
        return NO_CLIP if self.clip is None else self.clip

    def rate_factor(self, epoch: int) -> float:
        """Factor of the learning rate of all parameters in an epoch."""
        return (1 + math.cos(math.pi * epoch / self.epochs)) / 2 if self.cosine else 1.0
