"""Progress over epochs: a bar on a terminal, lines in the log elsewhere, or calls of a callback."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

OnEpoch = Callable[[int, float], None]  # epochs done, average loss
OnEpochShare = Callable[[float], None]  # share of the epochs done

LOG_EVERY = 10.0  # seconds between two lines in the log
logger = logging.getLogger("labeltide.progress")

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

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        self._last = time.monotonic()
        logger.info("%s (%.0f s)", text, self.seconds)

    def say_seldom(self, text: str) -> None:
        if time.monotonic() - self._last >= LOG_EVERY:
            self.say(text)


@contextmanager
def progress_log() -> Iterator[LogLines]:
    """Write progress to the log; to standard error where nobody has set up logging."""
    handler = None if logger.hasHandlers() else logging.StreamHandler(sys.stderr)
    level = logger.level
    if handler is not None:
        logger.addHandler(handler)
    if level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    try:
        yield LogLines()
    finally:
        logger.setLevel(level)
        if handler is not None:
            logger.removeHandler(handler)


@contextmanager
def epoch_bar(title: str, epochs: int, shown: bool) -> Iterator[OnEpoch]:
    """Yield the callback that advances the bar on a terminal's standard error, or writes lines where there is none."""
    watcher = _watcher.get()
    if watcher is not None:
        yield lambda done, loss: watcher(done / epochs)
        return
    console = Console(stderr=True)
    if not shown:  # a disabled bar of rich below 14.3 still writes an empty line
        yield lambda done, loss: None
        return
    if not console.is_terminal:
        with _logged_epochs(title, epochs) as on_epoch:
            yield on_epoch
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs, loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=epochs, loss=float("nan"))
        yield lambda done, loss: progress.update(task, completed=done, loss=loss)


@contextmanager
def _logged_epochs(title: str, epochs: int) -> Iterator[OnEpoch]:
    """A line every ten seconds and one at the end."""
    last = (0, float("nan"))

    def on_epoch(done: int, loss: float) -> None:
        nonlocal last
        last = (done, loss)
        lines.say_seldom(f"{title}: {done} of {epochs} epochs, loss {loss:.3f}")

    with progress_log() as lines:
        yield on_epoch
        lines.say(f"{title}: done after {last[0]} of {epochs} epochs, loss {last[1]:.3f}")
