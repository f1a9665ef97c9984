"""The only training loop: a whole fleet, epoch by epoch."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from labeltide.models.base import SequenceModel
from labeltide.noise.base import NoiseFunction
from labeltide.objectives.objective import Multipliers, Objective, Scored
from labeltide.training.checkpoint import Checkpoint
from labeltide.training.data import Batch, FleetData
from labeltide.training.history import History
from labeltide.training.progress import OnEpoch
from labeltide.training.schedule import Schedule
from labeltide.training.state import TrainingState, flatten_parameters, join, learned

logger = logging.getLogger("labeltide.training")


class Fleet(nn.Module):
    """What is trained together: models of the true label and, unless labels are taken for true, their noise."""

    def __init__(self, model: SequenceModel, noise: NoiseFunction | None = None) -> None:
        super().__init__()
        self.model, self.noise = model, noise

    def score(
        self, data: FleetData, batch: Batch, objective: Objective, multipliers: Multipliers | None = None
    ) -> Scored:
        """The objective of a batch, for each member."""
        logits = self.model(batch.features, batch.mask)
        grid = None if self.noise is None else self.noise(data.grid)  # (members, points, classes, classes)
        return objective(
            logits.log_softmax(-1),
            batch.labels,
            batch.mask[..., None] * batch.weights[..., None, None],
            trusted=batch.trusted,
            matrices=_at_points(grid, batch.points),
            grid=grid,
            multipliers=multipliers,
        )


class EpochLosses(NamedTuple):
    """One number for each member."""

    training: Tensor
    held_out: Tensor


def train(
    fleet: Fleet,
    data: FleetData,
    objective: Objective,
    schedule: Schedule,
    seeds: Sequence[int],
    *,
    checkpoint: Checkpoint | None = None,
    on_epoch: OnEpoch | None = None,
) -> History:
    """Train every member of a fleet in place, each as if it were alone.

    Members share the features and differ in labels, rows, weights and seed. A member that diverges is put back to
    the last good epoch and goes on at half the rate. Where rows are held out, the parameters with the best held-out
    likelihood of recorded labels remain.
    """
    _keep_freed_memory()
    parameters = flatten_parameters(fleet, data.members).to(data.features.device)
    state = TrainingState.start(parameters, schedule.learning_rate, dict(fleet.model.named_buffers()))
    if schedule.lagrangian is not None:
        start = schedule.lagrangian.start(data.members, state.parameters.device)
        state.linear, state.quadratic = start.linear, start.quadratic
    losses = _resume(state, checkpoint)
    held_out = data.held_out_rows(4 * schedule.batch_size) if bool(data.held_out.any()) else None
    fleet.train()
    while state.epoch < schedule.epochs and bool(state.active.any()):
        with _seeded(seeds, state.epoch, state.parameters.device):
            epoch = _run_epoch(fleet, data, objective, schedule, state, seeds, held_out)
        losses.append(torch.stack(epoch).double().cpu().numpy())
        if on_epoch is not None:
            on_epoch(state.epoch, float(np.nanmean(losses[-1][0])) if np.isfinite(losses[-1][0]).any() else np.nan)
        if checkpoint is not None:
            last = state.epoch == schedule.epochs or not bool(state.active.any())
            checkpoint.save(state, np.stack(losses), final=last)
    if held_out is not None:
        state.return_to(state.best, state.best_buffers, torch.ones_like(state.active))
    _leave_finite(fleet, data, objective, schedule, state, seeds)
    fleet.eval()
    return _history(state, losses, data.members)


def _run_epoch(
    fleet: Fleet,
    data: FleetData,
    objective: Objective,
    schedule: Schedule,
    state: TrainingState,
    seeds: Sequence[int],
    held_out: Tensor | None,
) -> EpochLosses:
    """Train one epoch and decide who goes on."""
    running = state.active.clone()
    training = _improve(fleet, data, objective, schedule, state, seeds)
    if schedule.lagrangian is not None and (state.epoch + 1) % schedule.lagrangian.epochs_per_round == 0:
        update = schedule.lagrangian.update(Multipliers(state.linear, state.quadratic), training, state.violation)
        finite = training.isfinite()
        state.linear = torch.where(finite, update.linear, state.linear)
        state.quadratic = torch.where(finite, update.quadratic, state.quadratic)
        state.violation = torch.where(finite, training, state.violation)
    lost = state.restart_diverged(schedule.max_restarts)
    if bool(lost.any()):  # the one wait for the device in an epoch
        logger.warning(
            "Members %s diverged in epoch %d; they go on from the epoch before at half the rate.",
            lost.nonzero().flatten().tolist(),
            state.epoch + 1,
        )
    state.epoch += 1
    scores = torch.full_like(training, torch.nan)
    if held_out is not None:
        scores = evaluate(fleet, data, objective, held_out)
        state.keep_best(scores, schedule.patience)
    return EpochLosses(training.masked_fill(~running, torch.nan), scores.masked_fill(~running, torch.nan))


def _improve(
    fleet: Fleet,
    data: FleetData,
    objective: Objective,
    schedule: Schedule,
    state: TrainingState,
    seeds: Sequence[int],
) -> Tensor:
    """Go through all batches once; returns the average loss while doing so."""
    parameters = learned(fleet)
    factor = _group_factor(fleet, schedule.noise_factor(state.epoch), state.parameters)
    multipliers = Multipliers(state.linear, state.quadratic) if schedule.lagrangian is not None else None
    total, count = torch.zeros_like(state.best_score), torch.zeros_like(state.best_score)
    for number, rows in enumerate(data.epoch_rows(seeds, state.epoch, schedule.batch_size)):
        scored = fleet.score(data, data.batch(rows), objective, multipliers)
        if parameters:
            pieces = torch.autograd.grad(scored.total.sum(), parameters, allow_unused=True, materialize_grads=True)
            gradients = join(pieces)
            if number == 0:
                state.keep_safe(gradients)
            state.adam(gradients, state.active & (rows >= 0).any(1), factor, schedule.clip)
        total, count = total + scored.data.detach() * scored.labels, count + scored.labels
    return total / count.clamp_min(1e-12)


@torch.no_grad()
def evaluate(fleet: Fleet, data: FleetData, objective: Objective, rows: Tensor) -> Tensor:
    """The average loss of recorded labels on the given (batches, members, batch) rows: shape (members,).

    Infinite where the model breaks down, NaN where there is no label to judge by.
    """
    total, count = torch.zeros_like(data.weights[:, 0]), torch.zeros_like(data.weights[:, 0])
    was_training = fleet.training
    fleet.eval()
    for index in rows:
        batch = data.batch(index)._replace(weights=(index >= 0).to(data.weights.dtype))
        scored = fleet.score(data, batch, objective)
        total, count = total + scored.data * scored.labels, count + scored.labels
    fleet.train(was_training)
    return torch.where(count > 0, (total / count).nan_to_num(float("inf")), torch.nan)


def _leave_finite(
    fleet: Fleet,
    data: FleetData,
    objective: Objective,
    schedule: Schedule,
    state: TrainingState,
    seeds: Sequence[int],
) -> None:
    """Put members whose last step broke their predictions back to the last parameters known to be sound."""
    rows = data.epoch_rows(seeds, state.epoch, schedule.batch_size)[:1]
    state.return_to(state.safe, state.safe_buffers, evaluate(fleet, data, objective, rows).isposinf())


def _at_points(grid: Tensor | None, points: Tensor | None) -> Tensor | None:
    """Q for every step of a batch, from Q on the grid."""
    if grid is None or points is None:
        return grid
    member = torch.arange(len(grid), device=grid.device)[:, None, None]
    return grid[member, points]  # (members, batch, steps, classes, classes)


def _group_factor(fleet: Fleet, noise_factor: float, parameters: Tensor) -> Tensor:
    n_model = sum(parameter[0].numel() for parameter in learned(fleet.model))
    factor = torch.ones_like(parameters[0])
    factor[n_model:] = noise_factor
    return factor


def _resume(state: TrainingState, checkpoint: Checkpoint | None) -> list[np.ndarray]:
    """Put a saved state in place; returns the losses of the epochs already done."""
    saved = checkpoint.load() if checkpoint is not None else None
    if saved is None:
        return []
    current = state.tensors()
    if {k: v.shape for k, v in current.items()} != {k: v.shape for k, v in saved.tensors.items()}:
        raise ValueError(f"The checkpoint {checkpoint.path} does not fit this model. Delete it to start anew.")  # type: ignore[union-attr]
    for name, value in current.items():
        value.copy_(saved.tensors[name])
    state.epoch = saved.epoch
    logger.info("Going on from epoch %d.", saved.epoch)
    return list(saved.losses)


def _history(state: TrainingState, losses: list[np.ndarray], members: int) -> History:
    table = np.stack(losses) if losses else np.zeros((0, 2, members))
    best = state.best_epoch if np.isfinite(table[:, 1]).any() else torch.full_like(state.best_epoch, state.epoch)
    return History(table[:, 0], table[:, 1], best.cpu().numpy(), state.restarts.cpu().numpy())


@contextlib.contextmanager
def _seeded(seeds: Sequence[int], epoch: int, device: torch.device) -> Iterator[None]:
    """Fix the global random stream within an epoch, for models of users that draw from it (dropout)."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(np.random.SeedSequence([*map(int, seeds), epoch]).generate_state(1)[0]))
        yield


@cache
def _keep_freed_memory() -> None:
    """Ask the C library to keep freed blocks: training asks for the same ones at every step.

    glibc gives large blocks back at once, and the pages then fault in anew; keeping them made a step of ten GRUs
    about twice as fast. Other C libraries are left alone.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
            library.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
