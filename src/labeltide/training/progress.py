"""A progress bar for people; nothing for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

OnEpoch = Callable[[int, float], None]  # epochs done, average loss


@contextmanager
def epoch_bar(title: str, epochs: int, shown: bool) -> Iterator[OnEpoch]:
    """Give a function that moves the bar; it is drawn on a terminal's standard error only."""
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
