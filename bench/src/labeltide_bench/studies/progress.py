"""The progress bar of a study: current fleet, finished runs, remaining time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labeltide.training import OnEpochShare

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@dataclass
class StudyBar:
    """Count of runs; a fleet in training counts by its share of finished epochs."""

    progress: Progress
    task: TaskID
    done: float = 0.0

    def start(self, title: str, runs: int) -> OnEpochShare:
        """Say what is running and give the function that moves the bar within it."""
        self.progress.update(self.task, description=title)
        return lambda share: self.progress.update(self.task, completed=self.done + share * runs)

    def finish(self, title: str, runs: int) -> None:
        """Count a finished fleet."""
        self.done += runs
        self.progress.update(self.task, completed=self.done, description=f"{title}: done")


@contextmanager
def study_bar(runs: Sequence[int], shown: bool) -> Iterator[StudyBar]:
    """A bar over all runs, on a terminal's standard error only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} runs"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as progress:
        yield StudyBar(progress, progress.add_task("starting", total=sum(runs)))
