"""Backpropagation of a training step on the CPU without autograd: compiled kernels on preallocated memory.

`Fleet.score` and autograd take some two hundred small operations per step. Here the model and the objective take four
calls and Q's network three, which write into the flat gradient of `TrainingState`. Fleets, data and objectives that the
kernels do not support go through autograd.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labeltide.kernels import choose, library
from labeltide.kernels import gru as gru_kernel
from labeltide.kernels import step as step_kernel
from labeltide.kernels.gru import TILE_ROWS, GRUTask, SumTask
from labeltide.kernels.step import ObjectiveTask
from labeltide.models.base import SequenceModel
from labeltide.noise.functions import LearnedNoise, NetworkNoise, NoiseFunction
from labeltide.training.data import Batch, FleetData
from labeltide.training.objective import Multipliers, Objective, add_gradient
from labeltide.training.state import join_flat, learned_parameters


def compiled_step(
    model: SequenceModel, noise: NoiseFunction | None, data: FleetData, objective: Objective
) -> CompiledStep | None:
    """The compiled step of a fleet, or None where the kernels do not support it and autograd is used."""
    parameters = model.fused_parameters()
    if parameters is None or type(objective) is not Objective:
        return None
    tables = (data.labels, data.mask, data.weights, data.grid, data.features)
    supported = (
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
    return CompiledStep(parameters, noise, data, objective) if supported else None


class CompiledStep:
    """Loss and gradient of batches of one fleet, given as row numbers of its data."""

    def __init__(
        self, parameters: Sequence[Tensor], noise: NoiseFunction | None, data: FleetData, objective: Objective
    ) -> None:
        self.parameters, self.noise, self.data, self.objective = parameters, noise, data, objective
        self.n_model = sum(parameter[0].numel() for parameter in self.parameters)
        self.noise_parameters = [] if noise is None else learned_parameters(noise)
        n_noise = sum(parameter[0].numel() for parameter in self.noise_parameters)
        self.gradients = torch.zeros(data.members, self.n_model + n_noise)
        self.network = None
        if type(noise) is NetworkNoise and all(parameter.requires_grad for parameter in noise.parameters()):
            plan = noise.plan(data.grid)
            self.network = step_kernel.CompiledNetwork(*plan) if step_kernel.usable(*plan) else None
        self.fixed_matrices = None if noise is None or self.noise_parameters else noise(data.grid).detach().contiguous()
        self.labels = None if data.is_gathered else compiled_labels(data)
        self.batch = 0

    def __call__(self, rows: Tensor, multipliers: Multipliers | None) -> tuple[Tensor, Tensor, Tensor]:
        """Summed loss, summed weight of the labels and gradient of a (members, batch) table of rows, -1 for none."""
        if rows.shape[1] != self.batch:
            self._make_room(rows.shape[1])
        if self.labels is None:
            batch = self.data.batch(rows)
            self._read(batch, compiled_labels(batch), 0)  # the rows of one member after those of the other
            rows = torch.arange(rows.numel()).view(rows.shape).masked_fill(rows < 0, -1)
        task = self.objective_task
        self.gru_task.rows = task.rows = rows.data_ptr()
        library.run("labeltide_gru_forward", self.gru_task, self.tiles)
        grid = self._grid()
        if multipliers is not None:
            task.linear, task.quadratic = multipliers.linear.data_ptr(), multipliers.quadratic.data_ptr()
        task.matrices = None if grid is None else grid.data_ptr()
        library.run("labeltide_objective", task, step_kernel.count_items(task))
        library.run("labeltide_gru_backward", self.gru_task, self.tiles)
        library.run("labeltide_sum", self.sum_task, self.data.members)
        if grid is not None and self.noise_parameters:
            self._noise_gradient(grid, multipliers)
        return self.losses.sum(1), self.counts.sum(1), self.gradients

    def _grid(self) -> Tensor | None:
        """Q on the clock grid, or None without noise."""
        if self.noise is None or self.fixed_matrices is not None:
            return self.fixed_matrices
        if self.network is None:
            return self.noise(self.data.grid).contiguous()
        return self._tie(self.network.forward().view(self.grad_matrices.shape))

    def _noise_gradient(self, grid: Tensor, multipliers: Multipliers | None) -> None:
        """Backpropagate from Q to the parameters of the noise function."""
        grad = self.grad_matrices
        for penalty in self.objective.penalties:
            add_gradient(grad, penalty.function, penalty.weigh(multipliers), grid.detach())
        if self.network is not None:
            self.network.backward(self._tie(grad), self.gradients[:, self.n_model :])
        else:
            pieces = torch.autograd.grad(grid, self.noise_parameters, grad, allow_unused=True, materialize_grads=True)
            self.gradients[:, self.n_model :] = join_flat(pieces)

    def _tie(self, values: Tensor) -> Tensor:
        """Average over tied annotators, of Q and of its gradient."""
        return values if not isinstance(self.noise, LearnedNoise) else self.noise.tie(values).contiguous()

    def _make_room(self, batch: int) -> None:
        """Allocate the tensors and kernel tasks for batches of this size."""
        self.batch, members, steps = batch, self.data.members, self.data.mask.shape[1]
        classes, tiles = self.parameters[4].shape[2], -(-batch // TILE_ROWS)
        self.tiles = members * tiles
        self.logits, self.grad_logits = torch.zeros(2, members, batch, steps, classes)
        self.parts = torch.empty(members, tiles, self.n_model)
        self.losses, self.counts = torch.zeros(2, members, steps)
        self.groups = 1 if self.noise is None else self.noise.annotators
        annotator_axis = (self.groups,) if self.groups > 1 else ()
        self.grad_matrices = torch.zeros(members, *annotator_axis, len(self.data.grid), classes, classes)
        self.gru_task = self._gru_task()
        self.sum_task = SumTask(members, tiles, self.n_model, self.gradients.stride(0))
        self.sum_task.parts, self.sum_task.sums = self.parts.data_ptr(), self.gradients.data_ptr()
        # Annotators whose labels have a Q; `_read` sets the others.
        noisy = 0 if self.data.targets is not None else self.data.labels.shape[-1]
        task = ObjectiveTask(*self.logits.shape, 0, self.groups, 0, len(self.data.grid), noisy)
        task.logits, task.losses, task.counts = (t.data_ptr() for t in (self.logits, self.losses, self.counts))
        task.grad_logits, task.grad_matrices = self.grad_logits.data_ptr(), self.grad_matrices.data_ptr()
        self.objective_task = task
        if self.labels is not None:
            self._read(self.data, self.labels, self.labels.shape[1])

    def _gru_task(self) -> GRUTask:
        """Arguments of the GRU, but for the rows and their features."""
        members, batch, steps, classes = self.logits.shape
        task = GRUTask(members, batch, steps, self.data.features.shape[2], self.parameters[4].shape[1], classes)
        for i, parameter in enumerate(self.parameters):
            task.strides[i], task.parameters[i] = parameter.stride(0), parameter.data_ptr()
        self.kept = torch.empty(self.tiles * gru_kernel.kept_size(task))
        task.out, task.kept = self.logits.data_ptr(), self.kept.data_ptr()
        task.grad_out, task.gradients = self.grad_logits.data_ptr(), self.parts.data_ptr()
        return task

    def _read(self, tables: FleetData | Batch, labels: Tensor, table: int) -> None:
        """Read rows from these tables, of which each member has so many rows of labels, weights and targets."""
        self.kept_tables, task = (tables, labels), self.objective_task
        self.gru_task.features, task.annotators, task.table = tables.features.data_ptr(), labels.shape[-1], table
        task.labels, task.mask, task.weights = labels.data_ptr(), tables.mask.data_ptr(), tables.weights.data_ptr()
        task.places, task.targets = library.pointer(tables.points), library.pointer(tables.targets)


def compiled_labels(data: FleetData | Batch) -> Tensor:
    """Labels in the layout of the compiled objective: (members, rows, steps, annotators).

    Trusted labels are one more annotator, whose Q is the identity. Soft targets are one annotator, whose label is 0
    where there is a target and -1 elsewhere.
    """
    if data.targets is not None:
        return ((data.targets.sum(-1, keepdim=True) > 0).to(torch.int8) - 1).contiguous()
    if data.trusted is None:
        return data.labels
    return torch.cat([data.labels, data.trusted[..., None].expand(*data.labels.shape[:3], 1)], -1)
