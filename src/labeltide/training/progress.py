"""Progress bar over epochs, drawn on terminals only, or forwarded to a callback."""

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
    """Call `watcher` with the share of epochs done instead of drawing a bar, as for a bar over many fits."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def epoch_bar(title: str, epochs: int, shown: bool) -> Iterator[OnEpoch]:
    """Yield the callback that advances the bar, which is drawn on standard error if that is a terminal."""
    watcher = _watcher.get()
    if watcher is not None:
        yield lambda done, loss: watcher(done / epochs)
        return
    console = Console(stderr=True)
    if not (shown and console.is_terminal):  # a disabled bar of rich below 14.3 still writes an empty line
        yield lambda done, loss: None
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
