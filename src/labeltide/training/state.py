"""Everything that changes while a fleet is trained: kept together so that it can be saved whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import torch
from torch import Tensor, nn

from labeltide.kernels import choose
from labeltide.kernels.adam import adam_step
from labeltide.objectives.objective import Multipliers
from labeltide.training.schedule import AugmentedLagrangian

BETA_MEAN, BETA_VARIANCE, EPSILON = 0.9, 0.999, 1e-8  # Adam's own defaults


def learned(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that training moves; frozen ones stay as they are."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def flatten_parameters(module: nn.Module, members: int) -> Tensor:
    """Move all learned parameters of a fleet into one (members, size) tensor, of which they become views."""
    parameters = learned(module)
    if not parameters:
        return torch.zeros(members, 0)
    flat = join(parameters)
    pieces = flat.split([parameter[0].numel() for parameter in parameters], 1)
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.data = piece.view(parameter.shape)
    return flat


def join(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of shape (members, ...) side by side as one of shape (members, size)."""
    return torch.cat([tensor.detach().reshape(len(tensor), -1) for tensor in tensors], 1)


@dataclass
class TrainingState:
    """Tensors with a leading members axis, changed in place only; `epoch` counts the finished ones."""

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
    buffers: dict[str, Tensor] = field(default_factory=dict)  # running statistics that users' own modules keep
    safe_buffers: dict[str, Tensor] = field(default_factory=dict)
    best_buffers: dict[str, Tensor] = field(default_factory=dict)
    epoch: int = 0

    @classmethod
    def start(cls, parameters: Tensor, rate: float, buffers: dict[str, Tensor] | None = None) -> Self:
        """The state before the first epoch."""
        buffers = buffers or {}
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
            rate=full(float(rate), 1),
            active=full(True),
            diverged=full(False),
            restarts=full(0),
            linear=full(1.0),
            quadratic=full(0.0),
            violation=full(float("inf")),
            buffers=buffers,
            safe_buffers={name: value.clone() for name, value in buffers.items()},
            best_buffers={name: value.clone() for name, value in buffers.items()},
        )

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name."""
        found: dict[str, Tensor] = {}
        for name in (f.name for f in fields(self) if f.name != "epoch"):
            value = getattr(self, name)
            found |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
        return found

    def take(self, index: Tensor, parameters: Tensor, buffers: dict[str, Tensor]) -> Self:
        """A copy of some members' state, around parameters and buffers that are theirs already."""
        taken: dict[str, Any] = {}
        for name in (f.name for f in fields(self) if f.name != "epoch"):
            value = getattr(self, name)
            many = isinstance(value, dict)
            taken[name] = {key: v[index] for key, v in value.items()} if many else value[index]
        return type(self)(**taken | {"parameters": parameters, "buffers": buffers}, epoch=self.epoch)

    def put(self, index: Tensor, part: TrainingState) -> None:
        """Overwrite the state of some members, in place."""
        theirs = part.tensors()
        for name, value in self.tensors().items():
            value[index] = theirs[name]
        self.epoch = part.epoch

    def keep_safe(self, gradients: Tensor, asked: Tensor) -> None:
        """Where asked, remember the parameters, and buffers, of members whose gradient there is finite."""
        sound = _finite(gradients) & asked
        _replace(self.safe, self.parameters, sound)
        _replace_all(self.safe_buffers, self.buffers, sound)

    def return_to(self, parameters: Tensor, buffers: dict[str, Tensor], chosen: Tensor) -> None:
        """Put the chosen members back to remembered parameters and buffers."""
        _replace(self.parameters, parameters, chosen)
        _replace_all(self.buffers, buffers, chosen)

    def adam(self, gradients: Tensor, taking_part: Tensor, group_factor: Tensor, clip: float) -> None:
        """One step of Adam for the members that take part; a gradient that is not finite marks its member.

        Parameters
        ----------
        gradients : Tensor of shape (members, size)
        taking_part : bool Tensor of shape (members,)
        group_factor : Tensor of shape (size,)
            The share of the learning rate for each parameter.
        """
        if self.parameters.dtype == torch.float32 and choose("adam", self.parameters.device) == "c":
            changed = (self.parameters, self.mean, self.variance, gradients.contiguous(), self.count)
            adam_step(changed, (self.rate, group_factor, taking_part), self.diverged, clip)
        else:
            self._plain_adam(gradients, taking_part, group_factor, clip)

    def _plain_adam(self, gradients: Tensor, taking_part: Tensor, group_factor: Tensor, clip: float) -> None:
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
        lost = self.diverged | ~_finite(self.parameters)
        if not lost.is_cuda and not bool(lost.any()):
            return lost
        column = lost[:, None]
        self.return_to(self.safe, self.safe_buffers, lost)
        self.mean.masked_fill_(column, 0)
        self.variance.masked_fill_(column, 0)
        self.count.masked_fill_(column, 0)
        _replace(self.rate, self.rate / 2, lost)
        self.restarts += lost
        self.active &= self.restarts <= max_restarts
        self.diverged.zero_()
        return lost

    def next_round(self, lagrangian: AugmentedLagrangian, violation: Tensor) -> None:
        """Weigh the data term anew after a round with this average loss, shape (members,)."""
        update = lagrangian.update(Multipliers(self.linear, self.quadratic), violation, self.violation)
        finite = violation.isfinite()
        _replace(self.linear, update.linear, finite)
        _replace(self.quadratic, update.quadratic, finite)
        _replace(self.violation, violation, finite)

    def keep_best(self, scores: Tensor, patience: int) -> None:
        """Remember the parameters of members whose held-out loss improved; stop those that waited too long.

        A member with nothing to be judged by (a score of NaN) keeps its last parameters and trains to the end.
        """
        better = self.active & (scores.isnan() | (scores < self.best_score))
        _replace(self.best, self.parameters, better)
        _replace_all(self.best_buffers, self.buffers, better)
        _replace(self.best_score, scores, better & ~scores.isnan())
        self.best_epoch.masked_fill_(better, self.epoch)
        self.waited += 1
        self.waited.masked_fill_(better, 0)
        self.active &= self.waited < patience


def _replace(old: Tensor, new: Tensor, chosen: Tensor) -> None:
    """Overwrite the chosen members of `old` in place."""
    if not chosen.is_cuda and bool(chosen.all()):  # the usual case; a look at the host would wait for a GPU
        old.copy_(new)
        return
    torch.where(chosen.reshape(-1, *[1] * (old.ndim - 1)), new, old, out=old)


def _replace_all(old: dict[str, Tensor], new: dict[str, Tensor], chosen: Tensor) -> None:
    for name, values in old.items():
        _replace(values, new[name], chosen)


def _finite(values: Tensor) -> Tensor:
    """Which members' values, shape (members, size), are all finite: one pass, where `isfinite` takes six."""
    return values.sum(1).isfinite()  # a sum that overflows is as good as infinite here
