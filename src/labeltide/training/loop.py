"""The training loop: mini-batch Adam with gradient clipping and early stopping, for all members of a fleet at once."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from labeltide._display import ShortRepr
from labeltide.kernels.library import torch_on_one_thread
from labeltide.training.objective import FleetData, Objective
from labeltide.training.state import Checkpoint, Schedule, TrainingState, flatten_parameters
from labeltide.training.step import Fleet, TrainingStep

logger = logging.getLogger("labeltide.training")
HISTORY_ROWS = 4  # of an epoch: training and held-out loss, linear and quadratic multiplier


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
        state.linear.fill_(schedule.lagrangian.linear)
        state.quadratic.fill_(schedule.lagrangian.quadratic)
    losses = _resume(state, checkpoint)
    step = TrainingStep(fleet, data, objective, schedule, state)
    held_out = data.held_out_rows(4 * schedule.batch_size) if bool(data.held_out.any()) else None
    fleet.train()
    # One thread for our own networks on a CPU: beside another job a transformer took 14 s with one, 140 with two.
    is_small = fleet.model.is_small and data.features.device.type == "cpu"
    while state.epoch < schedule.epochs and bool(state.active.any()):
        with _seeded(seeds, state.epoch, state.parameters.device), torch_on_one_thread() if is_small else nullcontext():
            epoch = _run_epoch(step, seeds, held_out)
        losses.append(epoch.double().cpu().numpy())
        if on_epoch is not None:
            on_epoch(state.epoch, float(np.nanmean(losses[-1][0])) if np.isfinite(losses[-1][0]).any() else np.nan)
        if checkpoint is not None:
            checkpoint.save(state, np.stack(losses))
    if held_out is not None:
        state.return_to(state.best, state.best_buffers, torch.ones_like(state.active))
    # Members whose loss is not finite after the last step go back to their last safe parameters.
    rows = data.epoch_rows(seeds, state.epoch, schedule.batch_size)[:1]
    broken = evaluate(fleet, data, objective, rows).isposinf()
    state.return_to(state.safe, state.safe_buffers, broken)
    fleet.eval()
    table = np.stack(losses) if losses else np.zeros((0, HISTORY_ROWS, data.members))
    best = state.best_epoch if np.isfinite(table[:, 1]).any() else torch.full_like(state.best_epoch, state.epoch)
    restarts = state.restarts.cpu().numpy()
    return History(table[:, 0], table[:, 1], best.cpu().numpy(), restarts, table[:, 2], table[:, 3])


def _run_epoch(step: TrainingStep, seeds: Sequence[int], held_out: Tensor | None) -> Tensor:
    """Train one epoch, then update multipliers, restarts and early stopping by the rows `held_out`.

    Returns what the history keeps, (4, members): the training and held-out loss and the two multipliers, NaN for none.
    """
    state, schedule = step.state, step.schedule
    active = state.active.clone()
    none = torch.full_like(state.linear, torch.nan)
    multipliers = (none, none) if schedule.lagrangian is None else (state.linear.clone(), state.quadratic.clone())
    rows = step.data.epoch_rows(seeds, state.epoch, schedule.batch_size, shuffle=schedule.shuffle)
    training = step.run_epoch(rows, state.epoch)
    if schedule.lagrangian is not None:
        number, left = divmod(state.epoch + 1, schedule.lagrangian.epochs_per_round)
        if left == 0 and (schedule.lagrangian.rounds is None or number <= schedule.lagrangian.rounds):
            state.next_round(schedule.lagrangian, training)
    lost = state.restart_diverged(schedule.max_restarts)
    if bool(lost.any()):  # the only synchronisation with the device in an epoch
        logger.warning(
            "Members %s diverged in epoch %d; they go back by an epoch and on at half the rate, if a restart is left.",
            lost.nonzero().flatten().tolist(),
            state.epoch + 1,
        )
    state.epoch += 1
    scores = torch.full_like(training, torch.nan)
    if held_out is not None:
        scores = evaluate(step.fleet, step.data, step.objective, held_out)
        state.keep_best(_stopping_scores(step, scores), schedule.patience)
    return torch.stack([values.masked_fill(~active, torch.nan) for values in (training, scores, *multipliers)])


def _stopping_scores(step: TrainingStep, scores: Tensor) -> Tensor:
    """The held-out losses (members,) by which members stop: the mean of those that stop together, NaN for none."""
    together = step.schedule.stop_together
    if together == 1:
        return scores
    scored, team = ~scores.isnan() & step.state.active, torch.arange(len(scores), device=scores.device) // together
    sums = scores.new_zeros(2, len(scores) // together)  # of losses, and their number
    sums.index_add_(1, team, torch.stack([torch.where(scored, scores, 0.0), scored.to(scores)]))
    return (sums[0] / sums[1])[team]


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


def _resume(state: TrainingState, checkpoint: Checkpoint | None) -> list[np.ndarray]:
    """Restore the state from a checkpoint; returns the losses of the finished epochs."""
    saved = checkpoint.load() if checkpoint is not None else None
    if checkpoint is None or saved is None:
        return []
    current, (tensors, losses) = state.tensors(), saved
    forms = [{k: (v.shape, v.dtype) for k, v in each.items()} for each in (current, tensors)]
    if forms[0] != forms[1] or losses.shape[1:] != (HISTORY_ROWS, len(state.active)):
        raise ValueError(f"The checkpoint {checkpoint.path} does not fit this model. Delete it to start anew.")
    for name, value in current.items():
        value.copy_(tensors[name])
    state.epoch = len(losses)
    logger.info("Going on from epoch %d.", state.epoch)
    return list(losses)


@contextmanager
def _seeded(seeds: Sequence[int], epoch: int, device: torch.device) -> Iterator[None]:
    """Seed the global random generator within an epoch, for users' models that draw from it (dropout)."""
    seed = int(np.random.SeedSequence([*map(int, seeds), epoch]).generate_state(1)[0])
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":  # torch.manual_seed would keep a stack trace for unused GPUs: 2 ms a call
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield


@dataclass(frozen=True, repr=False)
class History(ShortRepr):
    """What became of each member in each epoch; NaN once it has stopped."""

    loss: np.ndarray  # (epochs, members), the average loss of a recorded label during the epoch
    held_out: np.ndarray  # (epochs, members), the same on the validation rows; NaN where there are none
    best_epoch: np.ndarray  # (members,), the epoch whose parameters are kept
    restarts: np.ndarray  # (members,), how often it diverged and started again at a lower rate
    linear: np.ndarray  # (epochs, members), the multipliers of the augmented Lagrangian; NaN without one
    quadratic: np.ndarray

    def member(self, index: int) -> Self:
        """The history of one member as a fleet of one."""
        chosen = slice(index, index + 1)
        return type(self)(**{name: values[..., chosen] for name, values in vars(self).items()})


OnEpoch = Callable[[int, float], None]  # epochs done, average loss
OnEpochShare = Callable[[float], None]  # share of the epochs done

LOG_EVERY = 10.0  # seconds between two lines in the log
progress_logger = logging.getLogger("labeltide.progress")

_watcher: ContextVar[OnEpochShare | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_epochs(watcher: OnEpochShare) -> Iterator[None]:
    """Call `watcher` with the share of epochs done instead of drawing a bar, as for a bar over many fits."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


class LogLines:
    """Lines in the log: those that matter at once, others at most every ten seconds."""

    def __init__(self) -> None:
        self.started = self._last = time.monotonic()

    def say(self, text: str) -> None:
        self._last = time.monotonic()
        progress_logger.info("%s (%.0f s)", text, self._last - self.started)

    def say_seldom(self, text: str, share: float = 0.0) -> None:
        """A line with the time left, where the share that is done says it."""
        now = time.monotonic()
        if now - self._last >= LOG_EVERY:
            self.say(f"{text}, about {(now - self.started) * (1 / share - 1):.0f} s left" if share else text)


@contextmanager
def progress_log() -> Iterator[LogLines]:
    """Write progress to the log; to standard error where nobody has set up logging."""
    handler = None if progress_logger.hasHandlers() else logging.StreamHandler(sys.stderr)
    level = progress_logger.level
    if handler is not None:
        progress_logger.addHandler(handler)
    if level == logging.NOTSET:
        progress_logger.setLevel(logging.INFO)
    try:
        yield LogLines()
    finally:
        progress_logger.setLevel(level)
        if handler is not None:
            progress_logger.removeHandler(handler)


@contextmanager
def stages_bar(title: str, stages: int, epochs: int, shown: bool) -> Iterator[None]:
    """One bar over several trainings of so many epochs each, in place of a bar for each of them.

    A training that stops early skips ahead, and so does one that is left out.
    """
    if _watcher.get() is not None or not shown:
        yield
        return
    finished, last = 0, 0.0

    def watch(share: float) -> None:
        nonlocal finished, last
        finished += share <= last  # the next training has begun
        last = share
        on_epoch(min(round((finished + share) * epochs), stages * epochs), math.nan)

    with epoch_bar(title, stages * epochs, shown) as on_epoch:
        with watch_epochs(watch):
            yield
        on_epoch(stages * epochs, math.nan)


@contextmanager
def epoch_bar(title: str, epochs: int, shown: bool) -> Iterator[OnEpoch]:
    """Yield the callback that advances the bar on a terminal's standard error, or writes lines where there is none."""
    watcher, console = _watcher.get(), Console(stderr=True)
    if watcher is not None:
        yield lambda done, loss: watcher(done / epochs)
    elif not shown:  # a disabled bar of rich below 14.3 still writes an empty line
        yield lambda done, loss: None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        more = (TextColumn("epochs{task.fields[loss]}"), TimeRemainingColumn())
        with Progress(*columns, *more, console=console) as progress:
            task = progress.add_task(title, total=epochs, loss="")
            yield lambda done, loss: progress.update(task, completed=done, loss=_describe_loss(loss))
    else:
        last = f"0 of {epochs} epochs"

        def on_epoch(done: int, loss: float) -> None:
            nonlocal last
            last = f"{done} of {epochs} epochs{_describe_loss(loss)}"
            lines.say_seldom(f"{title}: {last}", done / epochs)

        with progress_log() as lines:
            yield on_epoch
            lines.say(f"{title}: done after {last}")


def _describe_loss(loss: float) -> str:
    return "" if math.isnan(loss) else f", loss {loss:.3f}"
