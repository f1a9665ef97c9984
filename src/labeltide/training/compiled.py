"""The gradient of a training step on the CPU without autograd: a few compiled calls on the same memory every time.

What `Fleet.score` and autograd record as some two hundred small operations is here four calls for the model and the
objective and three for Q's network, which write into the flat gradient of `TrainingState`. Fleets, data and objectives
that the calls are not written for are left to autograd.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.kernels import choose, library
from labeltide.kernels import gru as gru_kernel
from labeltide.kernels import network as network_kernel
from labeltide.kernels import objective as objective_kernel
from labeltide.kernels.gru import ROWS
from labeltide.kernels.sums import Sum
from labeltide.models.base import SequenceModel
from labeltide.models.gru import GRUModel
from labeltide.noise.base import LearnedNoise, NoiseFunction
from labeltide.noise.network import NetworkNoise
from labeltide.objectives.objective import Multipliers, Objective
from labeltide.objectives.penalties import add_gradient
from labeltide.training.data import FleetData
from labeltide.training.state import join, learned


class Measured(NamedTuple):
    """What a step needs to know of a batch."""

    loss: Tensor  # (members,), the summed weighted losses of the labels
    labels: Tensor  # (members,), their summed weights
    gradients: Tensor | None  # (members, size); None where nothing is learned


def compiled_step(
    model: SequenceModel, noise: NoiseFunction | None, data: FleetData, objective: Objective
) -> CompiledStep | None:
    """A compiled step for fleets, data and objectives that it is written for; None leaves them to autograd."""
    if type(model) is not GRUModel or model.backwards is not None or type(objective) is not Objective:
        return None
    parameters = list(model.parameters())
    tables = (data.labels, data.mask, data.weights, data.grid, data.features)
    fits = (
        gru_kernel.usable(data.features[None], *parameters)
        and choose("objective", data.features.device) == "c"
        and all(parameter.requires_grad for parameter in parameters)
        and all(table.is_contiguous() for table in tables)
        and (data.points is None or data.points.is_contiguous())
        and (data.labels.dtype, data.mask.dtype, data.weights.dtype) == (torch.int8, torch.bool, torch.float32)
        and (data.trusted is None or data.trusted.dtype == torch.int8)
        and (data.targets is None or (data.targets.dtype == torch.float32 and data.targets.is_contiguous()))
        and (noise is None or objective.loss == "forward")
        and 0 not in data.labels.shape
    )
    return CompiledStep(model, noise, data, objective) if fits else None


class CompiledStep:
    """Measures batches of one fleet on one set of data, given as rows."""

    def __init__(self, model: GRUModel, noise: NoiseFunction | None, data: FleetData, objective: Objective) -> None:
        self.model, self.noise, self.data, self.objective = model, noise, data, objective
        self.parameters = list(model.parameters())
        self.n_model = sum(parameter[0].numel() for parameter in self.parameters)
        self.noise_parameters = [] if noise is None else learned(noise)
        n_noise = sum(parameter[0].numel() for parameter in self.noise_parameters)
        self.gradients = torch.zeros(data.members, self.n_model + n_noise)
        self.network = _network(noise, data.grid)
        self.given = None if noise is None or self.noise_parameters else noise(data.grid).detach().contiguous()
        self.labels, self.noisy = _labels(data)
        self.batch = 0

    def __call__(self, rows: Tensor, multipliers: Multipliers | None) -> Measured:
        """Take the gradient of a (members, batch) table of rows, -1 to fill up."""
        if rows.shape[1] != self.batch:
            self._make_room(rows.shape[1])
        self.gru.rows = self.task.rows = rows.data_ptr()
        library.run("labeltide_gru_forward", self.gru, self.tiles)
        grid = self._grid()
        if multipliers is not None:
            self.task.linear, self.task.quadratic = multipliers.linear.data_ptr(), multipliers.quadratic.data_ptr()
        self.task.matrices = None if grid is None else grid.data_ptr()
        library.run("labeltide_objective", self.task, objective_kernel.items(self.task))
        library.run("labeltide_gru_backward", self.gru, self.tiles)
        library.run("labeltide_sum", self.sum, self.data.members)
        if grid is not None and self.noise_parameters:
            self._noise_gradient(grid, multipliers)
        return Measured(self.losses.sum(1), self.counts.sum(1), self.gradients)

    def _grid(self) -> Tensor | None:
        if self.noise is None or self.given is not None:
            return self.given
        if self.network is None:
            return self.noise(self.data.grid).contiguous()
        return self._tie(self.network.forward().view(self.grad_matrices.shape))

    def _noise_gradient(self, grid: Tensor, multipliers: Multipliers | None) -> None:
        grad = self.grad_matrices
        for penalty in self.objective.penalties:
            add_gradient(grad, penalty.function, penalty.weigh(multipliers), grid.detach())
        if self.network is not None:
            self.network.backward(self._tie(grad), self.gradients[:, self.n_model :])
        else:
            pieces = torch.autograd.grad(grid, self.noise_parameters, grad, allow_unused=True, materialize_grads=True)
            self.gradients[:, self.n_model :] = join(pieces)

    def _tie(self, values: Tensor) -> Tensor:
        """What annotators who are held alike have in common, of Q and of its gradient."""
        return values if not isinstance(self.noise, LearnedNoise) else self.noise.tie(values).contiguous()

    def _make_room(self, batch: int) -> None:
        """Tasks and their memory for batches of this size."""
        self.batch, data = batch, self.data
        members, table, steps, annotators = self.labels.shape
        hidden, classes = self.parameters[4].shape[1:]
        gru = gru_kernel.Task(members, batch, steps, data.features.shape[2], hidden, classes)
        for i, parameter in enumerate(self.parameters):
            gru.strides[i], gru.parameters[i] = parameter.stride(0), parameter.data_ptr()
        tiles = -(-batch // ROWS)
        self.tiles = members * tiles
        self.logits, self.grad_logits = torch.zeros(2, members, batch, steps, classes)
        self.kept = torch.empty(self.tiles * gru_kernel.kept_size(gru))
        self.parts = torch.empty(members, tiles, self.n_model)
        self.losses, self.counts = torch.zeros(2, members, steps)
        groups = 1 if self.noise is None else self.noise.annotators
        own = (groups,) if groups > 1 else ()
        self.grad_matrices = torch.zeros(members, *own, len(data.grid), classes, classes)
        gru.features, gru.out, gru.kept = data.features.data_ptr(), self.logits.data_ptr(), self.kept.data_ptr()
        gru.grad_out, gru.gradients = self.grad_logits.data_ptr(), self.parts.data_ptr()
        self.gru = gru
        self.sum = Sum(members, tiles, self.n_model, self.gradients.stride(0))
        self.sum.parts, self.sum.sums = self.parts.data_ptr(), self.gradients.data_ptr()
        sizes = (members, batch, steps, classes, annotators, groups, table, len(data.grid), self.noisy)
        task = objective_kernel.Task(*sizes)
        task.labels, task.mask, task.weights = self.labels.data_ptr(), data.mask.data_ptr(), data.weights.data_ptr()
        task.places, task.targets = library.pointer(data.points), library.pointer(data.targets)
        task.logits = self.logits.data_ptr()
        task.losses, task.counts = self.losses.data_ptr(), self.counts.data_ptr()
        task.grad_logits, task.grad_matrices = self.grad_logits.data_ptr(), self.grad_matrices.data_ptr()
        self.task = task


def _labels(data: FleetData) -> tuple[Tensor, int]:
    """The annotators' labels as the compiled objective takes them, and how many of them speak through Q.

    Trusted labels are one more annotator, who makes no mistakes; targets one, whose labels say where there is a target.
    """
    if data.targets is not None:
        return ((data.targets.sum(-1, keepdim=True) > 0).to(torch.int8) - 1).contiguous(), 0
    annotators = data.labels.shape[-1]
    if data.trusted is None:
        return data.labels, annotators
    trusted = data.trusted[None, ..., None].expand(data.members, -1, -1, -1)
    return torch.cat([data.labels, trusted], -1), annotators


def _network(noise: NoiseFunction | None, grid: Tensor) -> network_kernel.CompiledNetwork | None:
    """Q's network compiled, where Q is one and learned."""
    if type(noise) is not NetworkNoise or not all(parameter.requires_grad for parameter in noise.parameters()):
        return None
    plan = noise.plan(grid)
    return network_kernel.CompiledNetwork(*plan) if network_kernel.usable(*plan) else None
