"""A progress bar for people; nothing for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

OnEpoch = Callable[[int, float], None]  # epochs done, average loss
OnEpochShare = Callable[[float], None]  # share of the epochs done

_watcher: ContextVar[OnEpochShare | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_epochs(watcher: OnEpochShare) -> Iterator[None]:
    """Tell someone else (a bar over many fits) how far each training is, instead of drawing a bar for it."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def epoch_bar(title: str, epochs: int, shown: bool) -> Iterator[OnEpoch]:
    """Give a function that moves the bar; it is drawn on a terminal's standard error only."""
    watcher = _watcher.get()
    if watcher is not None:
        yield lambda done, loss: watcher(done / epochs)
        return
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs, loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as progress:
        task = progress.add_task(title, total=epochs, loss=float("nan"))
        yield lambda done, loss: progress.update(task, completed=done, loss=loss)
