"""Progress of a study: current fleet, finished runs, remaining time; lines in the log where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labeltide.training import OnEpochShare
from labeltide.training.loop import LogLines, progress_log

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@dataclass
class StudyBar:
    """Count of runs; a fleet in training counts by its share of finished epochs."""

    progress: Progress | LoggedRuns
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


class LoggedRuns:
    """Takes the place of a bar: a line for every fleet that begins, and one every ten seconds."""

    def __init__(self, lines: LogLines, total: int) -> None:
        self.lines, self.total, self.title, self.completed = lines, total, "", 0.0

    def update(self, task: int, *, completed: float | None = None, description: str | None = None) -> None:
        self.completed = self.completed if completed is None else completed
        text = f"{description or self.title}, {self.completed:.0f} of {self.total} runs"
        if description is not None and description != self.title:
            self.title = description
            self.lines.say(text)
        else:
            self.lines.say_seldom(text)


@contextmanager
def study_bar(runs: Sequence[int], shown: bool) -> Iterator[StudyBar]:
    """A bar over all runs on a terminal's standard error, or lines in the log where there is none."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if shown and not console.is_terminal:
        with progress_log() as lines:
            yield StudyBar(LoggedRuns(lines, sum(runs)), TaskID(0))
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} runs"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not shown) as progress:
        yield StudyBar(progress, progress.add_task("starting", total=sum(runs)))
