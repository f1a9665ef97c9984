"""One optimiser step for a whole fleet: loss, gradient and Adam, recorded as a CUDA graph on GPUs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from labeltide.kernels import choose, compiled, library
from labeltide.kernels.compiled import TILE_ROWS, ObjectiveTask, SumTask
from labeltide.models.base import SequenceModel
from labeltide.noise.functions import LearnedNoise, NetworkNoise, NoiseFunction
from labeltide.training.objective import Batch, FleetData, Multipliers, Objective, ObjectiveTerms, add_gradient
from labeltide.training.state import Schedule, TrainingState, join_flat, learned_parameters

logger = logging.getLogger("labeltide.training")
Result = TypeVar("Result")


class Fleet(nn.Module):
    """A model of the true label and its noise function, for all members; no noise function means Q = I."""

    def __init__(self, model: SequenceModel, noise: NoiseFunction | None = None) -> None:
        super().__init__()
        self.model, self.noise = model, noise

    def score(
        self, data: FleetData, batch: Batch, objective: Objective, multipliers: Multipliers | None = None
    ) -> ObjectiveTerms:
        """The objective of a batch for each member."""
        return self.score_logits(self.model(batch.features, batch.mask), data, batch, objective, multipliers)

    def score_logits(
        self, logits: Tensor, data: FleetData, batch: Batch, objective: Objective, multipliers: Multipliers | None
    ) -> ObjectiveTerms:
        """The objective of a batch, from the logits of the model."""
        # (members, [annotators,] points, classes, classes)
        grid = None if self.noise is None else self.noise(data.grid)
        return objective(
            logits.log_softmax(-1),
            batch.labels,
            batch.mask[..., None] * batch.weights[..., None, None],
            trusted=batch.trusted,
            targets=batch.targets,
            matrices=_at_points(grid, batch.points),
            grid=grid,
            multipliers=multipliers,
        )


class Replay(Generic[Result]):
    """Work on fixed tensors: called, or on a GPU captured once as a CUDA graph and then replayed.

    Hundreds of small operations then cost one launch. The result is the same tensors after every replay.
    """

    def __init__(self, work: Callable[[], Result], is_captured: bool) -> None:
        self.work, self.is_captured = work, is_captured
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> Result:
        self.prepare()
        if self.graph is None:
            return self.work()
        self.graph.replay()
        return self.result

    def prepare(self) -> None:
        """Capture the work unless that was done or cannot be done."""
        if self.is_captured and self.graph is None:
            try:
                self.graph, self.result = capture(self.work)
            except RuntimeError as error:  # an operation that cannot be captured
                logger.info("The training step is not recorded as a CUDA graph: %s", error)
                torch.cuda.synchronize()
                self.is_captured = False


def captures_graphs(device: torch.device) -> bool:
    """Whether steps on this device are captured as CUDA graphs."""
    return device.type == "cuda"


def capture(work: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Call the work three times to warm up, then capture it as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


class TrainingStep:
    """A training step on fixed tensors.

    On a GPU the whole step is captured as a CUDA graph, so that the host does not synchronise within an epoch. A model
    that must not be captured, such as a user's module, is called between captured parts.
    """

    def __init__(self, fleet: Fleet, data: FleetData, objective: Objective, schedule: Schedule, state: TrainingState):
        self.fleet, self.data, self.objective, self.schedule, self.state = fleet, data, objective, schedule, state
        self.model_parameters = learned_parameters(fleet.model)
        self.noise_parameters = [] if fleet.noise is None else learned_parameters(fleet.noise)
        self.rate_factor = torch.ones_like(state.parameters[0])
        self.first = torch.zeros((), dtype=torch.bool, device=state.parameters.device)
        self.is_first = True  # the same on the host
        self.total, self.labels = torch.zeros_like(state.best_score), torch.zeros_like(state.best_score)
        self.compiled = compiled_step(fleet.model, fleet.noise, data, objective)
        can_capture = captures_graphs(state.parameters.device)
        self.is_recorded = can_capture and fleet.model.is_recordable
        self.in_parts = can_capture and not fleet.model.is_recordable
        self.reset()

    def reset(self) -> None:
        """Drop the captured graphs and their memory; the next batch makes them anew."""
        self.rows: Tensor | None = None
        self.batch: Batch | None = None
        self.logits: Tensor | None = None
        self.gradients: Tensor | None = None
        self.gather = Replay(lambda: self.data.batch(self.rows), self.in_parts)  # type: ignore[arg-type]
        self.score = Replay(self._score, self.in_parts)
        self.update = Replay(self._update, self.in_parts)
        self.whole = Replay(self._step, self.is_recorded)

    def run_epoch(self, table: Tensor, epoch: int) -> Tensor:
        """Train on a (batches, members, batch) table of row numbers; returns the average training loss, (members,)."""
        n_model = sum(parameter[0].numel() for parameter in self.model_parameters)
        self.rate_factor[:n_model], self.rate_factor[n_model:] = self.schedule.rate_factors(epoch)
        self.total.zero_()
        self.labels.zero_()
        if self.compiled:  # filler rows cost nothing there, so members that have stopped are not computed
            table = table.masked_fill(~self.state.active[:, None], -1)
        for number, rows in enumerate(table):
            if self.rows is None or self.rows.shape != rows.shape:
                self.reset()
                self.rows = torch.full_like(rows, -1)
                self.whole.prepare()  # on filler rows, which change nothing
            self.rows.copy_(rows)
            self.is_first = number == 0
            self.first.fill_(self.is_first)
            self.whole()
        return self.total / self.labels.clamp_min(1e-12)

    def _step(self) -> None:
        assert self.rows is not None
        step = self.compiled(self.rows, self._multipliers()) if self.compiled else self._by_autograd()
        loss, labels, gradients = step
        if gradients is not None:
            self.gradients = self._fix(self.gradients, gradients)
            if self.in_parts and self.update.graph is None:  # capture it on filler rows
                rows = self.rows.clone()
                self.rows.fill_(-1)
                self.update.prepare()
                self.rows.copy_(rows)
            self.update()
        self.total += loss
        self.labels += labels

    def _by_autograd(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Differentiate the objective by the logits, then the model by its parameters.

        Returns the summed loss, the summed weight of the labels, and the gradient, None where nothing is learned.
        """
        self.batch = self.gather()
        logits = self.fleet.model(self.batch.features, self.batch.mask)
        self.logits = self._fix(self.logits, logits.detach()).requires_grad_(bool(self.model_parameters))
        loss, labels, gradients = self.score()
        self.batch = None  # frees its memory, unless a graph holds it
        pieces = list(gradients)
        if self.model_parameters:
            grad_logits = pieces.pop(0)
            pieces = [*_gradients(logits, self.model_parameters, grad_logits), *pieces]
        return loss, labels, join_flat(pieces) if pieces else None

    def _fix(self, old: Tensor | None, new: Tensor) -> Tensor:
        """A tensor that a captured part reads, always in the same memory."""
        if not self.in_parts:
            return new
        if old is None:
            return new.clone()
        old.detach().copy_(new)
        return old

    def _score(self) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """The loss of a batch, the weight of its labels, and the gradients by the logits and the parameters of Q."""
        assert self.batch is not None
        assert self.logits is not None
        scored = self.fleet.score_logits(self.logits, self.data, self.batch, self.objective, self._multipliers())
        inputs = [*([self.logits] if self.model_parameters else []), *self.noise_parameters]
        gradients = _gradients(scored.total.sum(), inputs) if inputs else ()
        return scored.data.detach() * scored.labels, scored.labels, gradients

    def _update(self) -> None:
        assert self.rows is not None
        assert self.gradients is not None
        state = self.state
        if self.is_recorded or self.in_parts or self.is_first:
            state.keep_safe(self.gradients, self.first)
        clip = NO_CLIP if self.schedule.clip is None else self.schedule.clip
        state.adam(self.gradients, state.active & (self.rows >= 0).any(1), self.rate_factor, clip)

    def _multipliers(self) -> Multipliers | None:
        return Multipliers(self.state.linear, self.state.quadratic) if self.schedule.lagrangian is not None else None


def _gradients(value: Tensor, inputs: Sequence[Tensor], grad_value: Tensor | None = None) -> tuple[Tensor, ...]:
    """Gradients, zero where the value does not depend on an input."""
    return torch.autograd.grad(value, inputs, grad_value, allow_unused=True, materialize_grads=True)


def _at_points(grid: Tensor | None, points: Tensor | None) -> Tensor | None:
    """Q at every step of a batch, looked up on the grid, in the shapes of the losses."""
    if grid is None:
        return None
    if grid.ndim == 5:  # the annotator axis comes after the clock, as in labels
        grid = grid.movedim(1, 2)  # (members, points, annotators, classes, classes)
    if points is None:
        return grid.unsqueeze(1) if grid.ndim == 5 else grid
    member = torch.arange(len(grid), device=grid.device)[:, None, None]
    return grid[member, points]  # (members, batch, steps, [annotators,] classes, classes)


NO_CLIP = 3e38  # no finite gradient in single precision has a larger norm


# Backpropagation on the CPU without autograd, by compiled kernels on preallocated memory. `Fleet.score` and autograd
# take some two hundred small operations per step. Here the model and the objective take four calls and Q's network
# three. Fleets, data and objectives that the kernels do not support go through autograd.


def compiled_step(
    model: SequenceModel, noise: NoiseFunction | None, data: FleetData, objective: Objective
) -> CompiledStep | None:
    """The compiled step of a fleet, or None where the kernels do not support it and autograd is used."""
    parameters = model.fused_parameters()
    if parameters is None or type(objective) is not Objective:
        return None
    tables = (data.labels, data.mask, data.weights, data.grid, data.features)
    supported = (
        compiled.gru_usable(data.features[None], *parameters)
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
            self.network = compiled.CompiledNetwork(*plan) if compiled.network_usable(*plan) else None
        self.fixed_matrices = None if noise is None or self.noise_parameters else noise(data.grid).detach().contiguous()
        self.labels = None if data.sets is not None or data.backwards else compiled_labels(data)  # None: gathered
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
        grid = self.fixed_matrices  # Q on the clock grid; None without noise
        if self.network is not None:
            grid = self._tie(self.network.forward().view(self.grad_matrices.shape))
        elif self.noise is not None and grid is None:
            grid = self.noise(self.data.grid).contiguous()
        if multipliers is not None:
            task.linear, task.quadratic = multipliers.linear.data_ptr(), multipliers.quadratic.data_ptr()
        task.matrices = None if grid is None else grid.data_ptr()
        # Items are blocks of steps of one member, or whole members where rows have different clocks.
        blocks = 1 if task.grid_index else -(-task.steps // compiled.STEPS_PER_ITEM)
        library.run("labeltide_objective", task, task.members * blocks)
        library.run("labeltide_gru_backward", self.gru_task, self.tiles)
        library.run("labeltide_sum", self.sum_task, self.data.members)
        if grid is not None and self.noise_parameters:  # from Q to the parameters of the noise function
            grad = self.grad_matrices
            for penalty in self.objective.penalties:
                add_gradient(grad, penalty.function, penalty.weigh(multipliers), grid.detach())
            if self.network is not None:
                self.network.backward(self._tie(grad), self.gradients[:, self.n_model :])
            else:
                self.gradients[:, self.n_model :] = join_flat(_gradients(grid, self.noise_parameters, grad))
        return self.losses.sum(1), self.counts.sum(1), self.gradients

    def _tie(self, values: Tensor) -> Tensor:
        """Average over tied annotators, of Q and of its gradient."""
        return values if not isinstance(self.noise, LearnedNoise) else self.noise.tie(values).contiguous()

    def _make_room(self, batch: int) -> None:
        """Allocate the tensors and kernel tasks for batches of this size."""
        self.batch, members, (steps, inputs) = batch, self.data.members, self.data.features.shape[1:]
        classes, tiles = self.parameters[4].shape[2], -(-batch // TILE_ROWS)
        self.tiles = members * tiles
        self.logits, self.grad_logits = torch.zeros(2, members, batch, steps, classes)
        self.parts = torch.empty(members, tiles, self.n_model)
        self.losses, self.counts = torch.zeros(2, members, steps)
        self.groups = 1 if self.noise is None else self.noise.annotators
        annotator_axis = (self.groups,) if self.groups > 1 else ()
        self.grad_matrices = torch.zeros(members, *annotator_axis, len(self.data.grid), classes, classes)
        task = compiled.make_gru_task(self.data.features, self.parameters, (members, batch, steps, inputs))
        self.kept = torch.empty(self.tiles * compiled.kept_size(task))
        task.out, task.kept = self.logits.data_ptr(), self.kept.data_ptr()
        task.grad_out, task.gradients = self.grad_logits.data_ptr(), self.parts.data_ptr()
        self.gru_task = task
        sizes = (members, tiles, self.n_model, self.gradients.stride(0))
        self.sum_task = SumTask(*sizes, self.parts.data_ptr(), self.gradients.data_ptr())
        # Annotators whose labels have a Q; `_read` sets the others.
        noisy = 0 if self.data.targets is not None else self.data.labels.shape[-1]
        objective = ObjectiveTask(*self.logits.shape, 0, self.groups, 0, len(self.data.grid), noisy)
        objective.logits, objective.grad_logits = self.logits.data_ptr(), self.grad_logits.data_ptr()
        objective.losses, objective.counts = self.losses.data_ptr(), self.counts.data_ptr()
        objective.grad_matrices = self.grad_matrices.data_ptr()
        self.objective_task = objective
        if self.labels is not None:
            self._read(self.data, self.labels, self.labels.shape[1])

    def _read(self, tables: FleetData | Batch, labels: Tensor, table: int) -> None:
        """Read rows from these tables, of which each member has so many rows of labels, weights and targets."""
        self.kept_tables, task = (tables, labels), self.objective_task
        self.gru_task.features, task.annotators, task.table = tables.features.data_ptr(), labels.shape[-1], table
        task.labels, task.mask, task.weights = labels.data_ptr(), tables.mask.data_ptr(), tables.weights.data_ptr()
        task.grid_index, task.targets = library.pointer(tables.points), library.pointer(tables.targets)


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
