"""Everything that changes while a fleet is trained: kept together so that it can be saved whole."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor, nn

BETA_MEAN, BETA_VARIANCE, EPSILON = 0.9, 0.999, 1e-8  # Adam's own defaults


def flatten_parameters(module: nn.Module) -> Tensor:
    """Move all parameters of a fleet into one (members, size) tensor, of which they become views."""
    parameters = list(module.parameters())
    flat = torch.cat([parameter.detach().flatten(1) for parameter in parameters], 1)
    pieces = flat.split([parameter[0].numel() for parameter in parameters], 1)
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.data = piece.unflatten(1, parameter.shape[1:])
    return flat


@dataclass
class TrainingState:
    """Tensors with a leading members axis; `epoch` counts the finished ones."""

    parameters: Tensor  # (members, size), the storage of the modules themselves
    safe: Tensor  # the parameters before the running epoch
    best: Tensor  # the parameters with the best held-out likelihood
    best_score: Tensor  # (members,), infinite until scored
    best_epoch: Tensor
    waited: Tensor  # epochs since the best one
    mean: Tensor  # Adam's moments
    variance: Tensor
    count: Tensor  # (members, 1), steps of Adam
    rate: Tensor  # (members, 1)
    active: Tensor  # (members,), False once a member has stopped
    diverged: Tensor  # (members,), set within an epoch
    restarts: Tensor
    linear: Tensor  # the multipliers of the augmented Lagrangian
    quadratic: Tensor
    violation: Tensor  # (members,), the average loss of the last round
    epoch: int = 0

    @classmethod
    def start(cls, parameters: Tensor, rate: float) -> Self:
        """The state before the first epoch."""
        members, device = len(parameters), parameters.device

        def full(value: float | bool | int, *shape: int) -> Tensor:
            return torch.full((members, *shape), value, device=device)

        return cls(
            parameters=parameters,
            safe=parameters.clone(),
            best=parameters.clone(),
            best_score=full(float("inf")),
            best_epoch=full(0),
            waited=full(0),
            mean=torch.zeros_like(parameters),
            variance=torch.zeros_like(parameters),
            count=full(0.0, 1),
            rate=full(rate, 1),
            active=full(True),
            diverged=full(False),
            restarts=full(0),
            linear=full(1.0),
            quadratic=full(0.0),
            violation=full(float("inf")),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "epoch"}

    def adam(self, gradients: Tensor, taking_part: Tensor, group_factor: Tensor, clip: float) -> None:
        """One step of Adam for the members that take part; a gradient that is not finite marks its member.

        Parameters
        ----------
        gradients : Tensor of shape (members, size)
        taking_part : bool Tensor of shape (members,)
        group_factor : Tensor of shape (size,)
            The share of the learning rate for each parameter.
        """
        norms = torch.linalg.vector_norm(gradients, dim=1)
        finite = norms.isfinite()
        self.diverged |= taking_part & ~finite
        moving = (taking_part & ~self.diverged)[:, None].to(gradients.dtype)  # (members, 1)
        shrink = (clip / norms.clamp_min(clip)).nan_to_num(0.0)[:, None]
        gradients = torch.where(finite[:, None], gradients, 0.0) * shrink
        self.count += moving
        self.mean += moving * (1 - BETA_MEAN) * (gradients - self.mean)
        self.variance += moving * (1 - BETA_VARIANCE) * (gradients.square() - self.variance)
        count = self.count.clamp_min(1)
        size = moving * self.rate * (1 - BETA_VARIANCE**count).sqrt() / (1 - BETA_MEAN**count)
        scale = (1 - BETA_VARIANCE**count).sqrt() * EPSILON
        self.parameters -= size * group_factor * self.mean / (self.variance.sqrt() + scale)

    def restart_diverged(self, max_restarts: int) -> Tensor:
        """Put diverged members back to where the epoch began, at half the rate; returns which they were."""
        lost = self.diverged | ~self.parameters.isfinite().all(1)
        column = lost[:, None]
        torch.where(column, self.safe, self.parameters, out=self.parameters)
        self.mean.masked_fill_(column, 0)
        self.variance.masked_fill_(column, 0)
        self.count.masked_fill_(column, 0)
        self.rate = torch.where(column, self.rate / 2, self.rate)
        self.restarts = self.restarts + lost
        self.active &= self.restarts <= max_restarts
        self.diverged.zero_()
        return lost

    def keep_best(self, scores: Tensor, patience: int) -> None:
        """Remember the parameters of members whose held-out loss improved; stop those that waited too long."""
        better = self.active & (scores < self.best_score)
        torch.where(better[:, None], self.parameters, self.best, out=self.best)
        self.best_score = torch.where(better, scores, self.best_score)
        self.best_epoch = torch.where(better, self.epoch, self.best_epoch)
        self.waited = torch.where(better, 0, self.waited + 1)
        self.active &= self.waited < patience
