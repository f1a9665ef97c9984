"""The training loop: mini-batch Adam with gradient clipping and early stopping, for all members of a fleet at once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.kernels.threads import torch_on_one_thread
from labeltide.models.base import SequenceModel
from labeltide.objectives.objective import Objective
from labeltide.training.checkpoint import Checkpoint
from labeltide.training.data import FleetData
from labeltide.training.history import History
from labeltide.training.progress import OnEpoch
from labeltide.training.running import Running
from labeltide.training.schedule import Schedule
from labeltide.training.state import TrainingState, flatten_parameters
from labeltide.training.step import Fleet, TrainingStep

logger = logging.getLogger("labeltide.training")


class EpochLosses(NamedTuple):
    """What the history keeps of an epoch: losses and multipliers, shape (members,) each, NaN where there are none."""

    training: Tensor
    held_out: Tensor
    linear: Tensor
    quadratic: Tensor


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
    """Train every member of a fleet in place; the result does not depend on the other members.

    Members share the features and differ in labels, rows, weights and seed. A member that diverges is reset to its
    parameters before the epoch and continues at half the learning rate. Where rows are held out, training stops early
    and the parameters with the best held-out likelihood of recorded labels are kept.
    """
    parameters = flatten_parameters(fleet, data.members).to(data.features.device)
    state = TrainingState.start(parameters, schedule.learning_rate, dict(fleet.model.named_buffers()))
    if schedule.lagrangian is not None:
        start = schedule.lagrangian.start(data.members, state.parameters.device)
        state.linear, state.quadratic = start.linear, start.quadratic
    losses = _resume(state, checkpoint)
    step = TrainingStep(fleet, data, objective, schedule, state)
    running = Running.all_members(step, seeds)
    fleet.train()
    while state.epoch < schedule.epochs and bool(state.active.any()):
        with _seeded(seeds, state.epoch, state.parameters.device), _threads_for(fleet.model):
            running = running.narrowed()
            epoch = _run_epoch(running)
        losses.append(torch.stack(epoch).double().cpu().numpy())
        if on_epoch is not None:
            on_epoch(state.epoch, float(np.nanmean(losses[-1][0])) if np.isfinite(losses[-1][0]).any() else np.nan)
        if checkpoint is not None:
            checkpoint.save(state, np.stack(losses))
    if running.held_out is not None:
        state.return_to(state.best, state.best_buffers, torch.ones_like(state.active))
    _leave_finite(step, seeds)
    fleet.eval()
    return _history(state, losses, data.members)


def _run_epoch(running: Running) -> EpochLosses:
    """Train one epoch, then update multipliers, restarts and early stopping."""
    step, held_out = running.step, running.held_out
    state, schedule = step.state, step.schedule
    active = state.active.clone()
    multipliers = [torch.full_like(state.linear, torch.nan)] * 2
    if schedule.lagrangian is not None:
        multipliers = [state.linear.clone(), state.quadratic.clone()]
    training = step.run_epoch(step.data.epoch_rows(running.seeds, state.epoch, schedule.batch_size), state.epoch)
    if schedule.lagrangian is not None and schedule.lagrangian.ends_round(state.epoch):
        state.next_round(schedule.lagrangian, training)
    lost = state.restart_diverged(schedule.max_restarts)
    if bool(lost.any()):  # the only synchronisation with the device in an epoch
        logger.warning(
            "Members %s diverged in epoch %d; they go on from the epoch before at half the rate.",
            running.numbers(lost),
            state.epoch + 1,
        )
    state.epoch += 1
    scores = torch.full_like(training, torch.nan)
    if held_out is not None:
        scores = evaluate(step.fleet, step.data, step.objective, held_out)
        state.keep_best(running.stopping_scores(scores), schedule.patience)
    running.write_back()
    losses = (values.masked_fill(~active, torch.nan) for values in (training, scores, *multipliers))
    return EpochLosses(*map(running.among_all, losses))


@torch.no_grad()
def evaluate(fleet: Fleet, data: FleetData, objective: Objective, rows: Tensor) -> Tensor:
    """The average loss of recorded labels on a (batches, members, batch) table of row numbers: shape (members,).

    Infinite where the loss is not finite, NaN where there is no label.
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


def _leave_finite(step: TrainingStep, seeds: Sequence[int]) -> None:
    """Reset members whose loss is not finite after the last step to their last safe parameters."""
    state = step.state
    rows = step.data.epoch_rows(seeds, state.epoch, step.schedule.batch_size)[:1]
    broken = evaluate(step.fleet, step.data, step.objective, rows).isposinf()
    state.return_to(state.safe, state.safe_buffers, broken)


def _resume(state: TrainingState, checkpoint: Checkpoint | None) -> list[np.ndarray]:
    """Restore the state from a checkpoint; returns the losses of the finished epochs."""
    saved = checkpoint.load() if checkpoint is not None else None
    if saved is None:
        return []
    current = state.tensors()
    forms = [{k: (v.shape, v.dtype) for k, v in tensors.items()} for tensors in (current, saved.tensors)]
    if forms[0] != forms[1] or saved.losses.shape[1:] != (len(EpochLosses._fields), len(state.active)):
        raise ValueError(f"The checkpoint {checkpoint.path} does not fit this model. Delete it to start anew.")  # type: ignore[union-attr]
    for name, value in current.items():
        value.copy_(saved.tensors[name])
    state.epoch = saved.epoch
    logger.info("Going on from epoch %d.", saved.epoch)
    return list(saved.losses)


def _history(state: TrainingState, losses: list[np.ndarray], members: int) -> History:
    table = np.stack(losses) if losses else np.zeros((0, len(EpochLosses._fields), members))
    best = state.best_epoch if np.isfinite(table[:, 1]).any() else torch.full_like(state.best_epoch, state.epoch)
    restarts = state.restarts.cpu().numpy()
    return History(table[:, 0], table[:, 1], best.cpu().numpy(), restarts, table[:, 2], table[:, 3])


@contextlib.contextmanager
def _seeded(seeds: Sequence[int], epoch: int, device: torch.device) -> Iterator[None]:
    """Seed the global random generator within an epoch, for users' models that draw from it (dropout)."""
    seed = int(np.random.SeedSequence([*map(int, seeds), epoch]).generate_state(1)[0])
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":  # torch.manual_seed would keep a stack trace for unused GPUs: 2 ms a call
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield


def _threads_for(model: SequenceModel) -> contextlib.AbstractContextManager[None]:
    """One thread for our own networks on a CPU: beside another job a transformer took 14 s with one, 140 with two."""
    small = model.is_small and next(model.parameters()).device.type == "cpu"
    return torch_on_one_thread() if small else contextlib.nullcontext()
