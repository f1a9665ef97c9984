"""One optimiser step for a whole fleet: loss, gradient and Adam, recorded as a CUDA graph on GPUs."""

from __future__ import annotations

import logging
from typing import Self

import torch
from torch import Tensor, nn

from labeltide.models.base import SequenceModel
from labeltide.noise.base import NoiseFunction
from labeltide.objectives.objective import Multipliers, Objective, Scored
from labeltide.training.compiled import Measured, compiled_step
from labeltide.training.data import Batch, FleetData
from labeltide.training.schedule import Schedule
from labeltide.training.state import TrainingState, join_flat, learned_parameters

logger = logging.getLogger("labeltide.training")


class Fleet(nn.Module):
    """A model of the true label and its noise function, for all members; no noise function means Q = I."""

    def __init__(self, model: SequenceModel, noise: NoiseFunction | None = None) -> None:
        super().__init__()
        self.model, self.noise = model, noise

    def take(self, index: Tensor) -> Self:
        """A copy of some members."""
        noise = None if self.noise is None else self.noise.take(index)
        return type(self)(self.model.take(index), noise)

    def score(
        self, data: FleetData, batch: Batch, objective: Objective, multipliers: Multipliers | None = None
    ) -> Scored:
        """The objective of a batch for each member."""
        logits = self.model(batch.features, batch.mask)
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


class TrainingStep:
    """A training step on fixed tensors.

    On a GPU it is captured once as a CUDA graph and then replayed: hundreds of small operations cost one launch, and
    the host does not synchronise within an epoch.
    """

    def __init__(self, fleet: Fleet, data: FleetData, objective: Objective, schedule: Schedule, state: TrainingState):
        self.fleet, self.data, self.objective, self.schedule, self.state = fleet, data, objective, schedule, state
        self.parameters = learned_parameters(fleet)
        self.rate_factor = torch.ones_like(state.parameters[0])
        self.first = torch.zeros((), dtype=torch.bool, device=state.parameters.device)
        self.total, self.labels = torch.zeros_like(state.best_score), torch.zeros_like(state.best_score)
        self.compiled = compiled_step(fleet.model, fleet.noise, data, objective)
        self.rows: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.is_recorded = state.parameters.is_cuda and fleet.model.is_recordable

    def run_epoch(self, table: Tensor, epoch: int) -> Tensor:
        """Train on a (batches, members, batch) table of row numbers; returns the average training loss, (members,)."""
        n_model = sum(parameter[0].numel() for parameter in learned_parameters(self.fleet.model))
        self.rate_factor[:n_model] = self.schedule.rate_factor(epoch)
        self.rate_factor[n_model:] = self.schedule.rate_factor(epoch) * self.schedule.noise_factor(epoch)
        self.total.zero_()
        self.labels.zero_()
        if self.compiled:  # filler rows cost nothing there, so members that have stopped are not computed
            table = table.masked_fill(~self.state.active[:, None], -1)
        for number, rows in enumerate(table):
            self._put(rows, first=number == 0)
            if self.graph is not None:
                self.graph.replay()
            else:
                self._step(keep_safe=number == 0)
        return self.total / self.labels.clamp_min(1e-12)

    def _put(self, rows: Tensor, first: bool) -> None:
        if self.rows is None or self.rows.shape != rows.shape:
            self.rows = torch.full_like(rows, -1)
            if self.is_recorded:
                self._record()
        self.rows.copy_(rows)
        self.first.fill_(first)

    def _step(self, keep_safe: bool = True) -> None:
        assert self.rows is not None
        state = self.state
        multipliers = Multipliers(state.linear, state.quadratic) if self.schedule.lagrangian is not None else None
        measured = self.compiled(self.rows, multipliers) if self.compiled else self._by_autograd(self.rows, multipliers)
        if measured.gradients is not None:
            gradients = measured.gradients
            if keep_safe:
                state.keep_safe(gradients, self.first)
            state.adam(gradients, state.active & (self.rows >= 0).any(1), self.rate_factor, self.schedule.max_norm)
        self.total += measured.loss
        self.labels += measured.labels

    def _by_autograd(self, rows: Tensor, multipliers: Multipliers | None) -> Measured:
        scored = self.fleet.score(self.data, self.data.batch(rows), self.objective, multipliers)
        gradients = None
        if self.parameters:
            pieces = torch.autograd.grad(scored.total.sum(), self.parameters, allow_unused=True, materialize_grads=True)
            gradients = join_flat(pieces)
        return Measured(scored.data.detach() * scored.labels, scored.labels, gradients)

    def _record(self) -> None:
        """Warm up with filler rows, which change no parameter, then capture the step as a CUDA graph."""
        try:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self._step()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step()
        except RuntimeError as error:  # an operation that cannot be captured
            logger.info("The training step is not recorded as a CUDA graph: %s", error)
            torch.cuda.synchronize()
            self.is_recorded, graph = False, None
        self.graph = graph


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
