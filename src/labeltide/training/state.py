r"""Optimiser state of a fleet: parameters, Adam's moments (Kingma and Ba 2015), snapshots and multipliers.

All state that changes during training is here, so that a checkpoint is complete. Adam with gradient g, clipped to a
norm of c by :math:`g \leftarrow g \min(1, c / \|g\|)`, is

.. math:: m &\leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \\
          \theta &\leftarrow \theta - \alpha \, \hat m / (\sqrt{\hat v} + \epsilon), \quad
          \hat m = m / (1 - \beta_1^t), \; \hat v = v / (1 - \beta_2^t).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from labeltide._files import write_atomically
from labeltide.kernels import choose
from labeltide.kernels.compiled import adam_step

BETA_MEAN, BETA_VARIANCE, EPSILON = 0.9, 0.999, 1e-8  # the defaults of Kingma and Ba (2015)


def learned_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that require a gradient; frozen ones do not."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def flatten_parameters(module: nn.Module, members: int) -> Tensor:
    """Move all learned parameters of a fleet into one (members, size) tensor, of which they become views."""
    parameters = learned_parameters(module)
    if not parameters:
        return torch.zeros(members, 0)
    flat = join_flat(parameters)
    pieces = flat.split([parameter[0].numel() for parameter in parameters], 1)
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.data = piece.view(parameter.shape)
    return flat


def join_flat(tensors: Sequence[Tensor]) -> Tensor:
    """Flatten tensors of shape (members, ...) and concatenate them to (members, size)."""
    return torch.cat([tensor.detach().reshape(len(tensor), -1) for tensor in tensors], 1)


@dataclass
class TrainingState:
    """Tensors with a leading members axis, changed in place only; `epoch` is the number of finished epochs."""

    parameters: Tensor  # (members, size), the storage of the modules themselves
    safe: Tensor  # the parameters before the current epoch
    best: Tensor  # the parameters with the best held-out likelihood
    best_score: Tensor  # (members,), infinite until scored
    best_epoch: Tensor
    waited: Tensor  # epochs since the best one
    mean: Tensor  # Adam's first moment
    variance: Tensor  # Adam's second moment
    count: Tensor  # (members, 1), steps of Adam
    rate: Tensor  # (members, 1), learning rate
    active: Tensor  # (members,), False once a member has stopped
    diverged: Tensor  # (members,), set within an epoch
    restarts: Tensor
    linear: Tensor  # the multipliers of the augmented Lagrangian
    quadratic: Tensor
    violation: Tensor  # (members,), the average loss of the last round
    buffers: dict[str, Tensor] = field(default_factory=dict)  # running statistics of users' modules
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
        tensors: dict[str, Tensor] = {}
        for name, value in vars(self).items():
            if isinstance(value, dict):
                tensors |= {f"{name}.{key}": tensor for key, tensor in value.items()}
            elif name != "epoch":
                tensors[name] = value
        return tensors

    def keep_safe(self, gradients: Tensor, asked: Tensor) -> None:
        """Snapshot parameters and buffers of the members that `asked` selects and whose gradient is finite."""
        sound = _finite(gradients) & asked
        _replace(self.safe, self.parameters, sound)
        _replace(self.safe_buffers, self.buffers, sound)

    def return_to(self, parameters: Tensor, buffers: dict[str, Tensor], chosen: Tensor) -> None:
        """Reset the chosen members to a snapshot of parameters and buffers."""
        _replace(self.parameters, parameters, chosen)
        _replace(self.buffers, buffers, chosen)

    def adam(self, gradients: Tensor, taking_part: Tensor, group_factor: Tensor, clip: float) -> None:
        """One step of Adam with gradient clipping; members whose gradient is not finite are marked as diverged.

        `group_factor`, of shape (size,), is a factor of the learning rate of each parameter.
        """
        if self.parameters.dtype == torch.float32 and choose("adam", self.parameters.device) == "c":
            updated = (self.parameters, self.mean, self.variance, gradients.contiguous(), self.count)
            adam_step(updated, (self.rate, group_factor, taking_part), self.diverged, clip)
            return
        norms = torch.linalg.vector_norm(gradients, dim=1)
        finite = norms.isfinite()
        self.diverged |= taking_part & ~finite
        moving = (taking_part & ~self.diverged)[:, None].to(gradients.dtype)  # (members, 1)
        if gradients.is_cuda or not bool((norms <= clip).all()):  # on a GPU this test would synchronise with the host
            shrink = (clip / norms.clamp_min(clip)).nan_to_num(0.0)[:, None]
            gradients = torch.where(finite[:, None], gradients, 0.0) * shrink
        self.count += moving
        self.mean.lerp_(gradients, moving * (1 - BETA_MEAN))
        self.variance.lerp_(gradients.square(), moving * (1 - BETA_VARIANCE))
        count = self.count.clamp_min(1)
        root = (1 - BETA_VARIANCE**count).sqrt()
        size = moving * self.rate * root / (1 - BETA_MEAN**count)  # (members, 1)
        step = torch.mul(self.mean, group_factor).mul_(size)
        self.parameters.addcdiv_(step, self.variance.sqrt().add_(root * EPSILON), value=-1)

    def restart_diverged(self, max_restarts: int) -> Tensor:
        """Reset diverged members to the start of the epoch, at half the learning rate; returns which they are."""
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
        """Update the multipliers after a round with this average loss, shape (members,)."""
        finite = violation.isfinite()
        grown = violation > lagrangian.gamma * self.violation  # infinite in the first round
        _replace(self.linear, self.linear + self.quadratic * violation, finite)
        _replace(self.quadratic, torch.where(grown, lagrangian.eta * self.quadratic, self.quadratic), finite)
        _replace(self.violation, violation, finite)
        self.active &= violation != 0

    def keep_best(self, scores: Tensor, patience: int) -> None:
        """Early stopping: snapshot members whose held-out loss improved, stop those without progress.

        A member without validation labels (a score of NaN) keeps its last parameters and trains to the end.
        """
        better = self.active & (scores.isnan() | (scores < self.best_score))
        _replace(self.best, self.parameters, better)
        _replace(self.best_buffers, self.buffers, better)
        _replace(self.best_score, scores, better & ~scores.isnan())
        self.best_epoch.masked_fill_(better, self.epoch)
        self.waited += 1
        self.waited.masked_fill_(better, 0)
        self.active &= self.waited < patience


def _replace(old: Tensor | dict[str, Tensor], new: Any, chosen: Tensor) -> None:
    """Overwrite the chosen members of a tensor, or of each in a dictionary, in place."""
    if isinstance(old, dict):
        for name, values in old.items():
            _replace(values, new[name], chosen)
    elif not chosen.is_cuda and bool(chosen.all()):  # the usual case; on a GPU this test would wait for the device
        old.copy_(new)
    else:
        torch.where(chosen.reshape(-1, *[1] * (old.ndim - 1)), new, old, out=old)


def _finite(values: Tensor) -> Tensor:
    """Which members' values, shape (members, size), are all finite, in one pass; `isfinite` would take six."""
    return values.sum(1).isfinite()  # a sum that overflows counts as infinite


@dataclass(frozen=True)
class AugmentedLagrangian:
    r"""Augmented Lagrangian method (Bertsekas 1982; Nocedal and Wright 2006, chapter 17).

    It is algorithm 1 of Nagaraj and others (2025).

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


@dataclass(frozen=True)
class Schedule:
    """The settings of one call of `train`; the defaults are the paper's."""

    epochs: int = 150
    batch_size: int = 64
    learning_rate: float = 0.01
    noise_learning_rate: float | None = None  # of Q; None: that of the network
    noise_milestones: tuple[int, ...] = (50, 100)  # epochs at which the learning rate of Q alone is halved
    milestones: tuple[int, ...] = ()  # epochs at which all learning rates are divided by ten
    shuffle: bool = True  # whether every epoch draws a new order of the rows
    cosine: bool = False  # whether the learning rate follows cosine annealing to zero (Loshchilov and Hutter 2017)
    clip: float | None = 5.0  # largest Euclidean norm of a member's gradient (Pascanu and others 2013); None: any
    patience: int = 20  # epochs without a better loss of held-out rows, if any, after which a member stops
    stop_together: int = 1  # so many consecutive members stop at one epoch, that of their smallest mean held-out loss
    lagrangian: AugmentedLagrangian | None = None
    max_restarts: int = 8  # of a member that diverges, each time at half the learning rate

    def rate_factors(self, epoch: int) -> tuple[float, float]:
        """Factors of the learning rate in an epoch: of the network, and of Q."""
        factor = 0.1 ** sum(epoch >= milestone for milestone in self.milestones)
        if self.cosine:
            factor *= (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        own = 1.0 if self.noise_learning_rate is None else self.noise_learning_rate / self.learning_rate
        return factor, factor * own * 0.5 ** sum(epoch >= milestone for milestone in self.noise_milestones)


# Checkpoints: the state of a running fit, saved so that an interrupted fit resumes and ends with the same numbers.


@dataclass
class Checkpoint:
    """A file with the latest state of one call of `train`, replaced atomically."""

    path: Path
    fingerprint: str  # a digest of data and settings; a file of another fit is refused
    seconds: float = 10.0  # the shortest time between two writes
    written: float = field(default_factory=time.monotonic, init=False)
    cost: float = field(default=0.0, init=False)  # seconds that the last write took

    def save(self, state: TrainingState, losses: np.ndarray) -> None:
        """Write the state if enough time has passed since the last write; writing takes at most a tenth of the time."""
        started = time.monotonic()
        if started - self.written < max(self.seconds, 10 * self.cost):
            return
        tensors = {name: value.cpu().contiguous() for name, value in state.tensors().items()}
        tensors = dict(sorted({**tensors, "losses": torch.from_numpy(losses)}.items()))
        digest = fingerprint(*tensors.values())
        header = {"fingerprint": self.fingerprint, "epoch": state.epoch, "digest": digest}
        write_atomically(self.path, save(tensors, metadata={"labeltide": json.dumps(header)}))
        self.written = time.monotonic()
        self.cost = self.written - started if self.seconds else 0.0

    def load(self) -> tuple[dict[str, Tensor], np.ndarray] | None:
        """The saved tensors and the losses of every epoch, (epochs, 4, members); None if there is no file yet."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = json.loads(file.metadata()["labeltide"])
                tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
            owner, epoch, digest = header["fingerprint"], header["epoch"], header["digest"]
            if digest != fingerprint(*tensors.values()):
                raise ValueError("its content has changed")
            losses = tensors.pop("losses").numpy()
            if type(epoch) is not int or losses.ndim != 3 or losses.dtype != np.float64 or len(losses) != epoch:
                raise ValueError("it must hold the losses of every epoch")
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"The checkpoint {self.path} cannot be read ({error}). Delete it to start anew.") from None
        if owner != self.fingerprint:
            raise ValueError(
                f"The checkpoint {self.path} belongs to a fit with other data or settings. Give the same data and "
                "settings to go on with it, or delete it to start anew."
            )
        return tensors, losses


def fingerprint(*parts: object) -> str:
    """SHA-256 of arrays, tensors and, by their `repr`, other objects."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            part = part.cpu().numpy()
        if isinstance(part, np.ndarray):
            digest.update(repr((part.shape, part.dtype)).encode())
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)  # without a copy
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()
