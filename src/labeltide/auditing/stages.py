"""Progress of an audit: a bar with stages and the remaining time on a terminal, lines in the log elsewhere.

The remaining time is what `expected_seconds` in `fitting.py` expects, times how much slower this machine has been so
far. Within a stage it is never less than its share of the work that is left at the speed of the stage.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from labeltide.training.loop import LogLines, OnEpochShare, progress_log, watch_epochs

EXPECTED = {"read": 1.0, "fit": 45.0, "judge": 4.0, "bands": 45.0, "page": 5.0}  # seconds, until more is known
TITLES = {
    "read": "reading the table",
    "fit": "learning from the labels",
    "judge": "judging every label",
    "bands": "bands and tests",
    "page": "writing the page",
}
TRAININGS = 4  # that one fit usually runs, one after the other
TRAINED = 0.7  # share of a fit that is training; the chain takes the rest
LATE = 0.2  # of the time spent in a stage is expected to be left, where it takes longer than expected
MIN_SECONDS = 3.0  # of finished work, before the speed of the machine is judged by it


class Stages:
    """Which stage an audit is in, how far, and how long each took."""

    def __init__(
        self, bar: Progress | None = None, log: LogLines | None = None, console: Console | None = None
    ) -> None:
        self.bar, self.log, self.console = bar, log, console
        self.expected = dict(EXPECTED)
        self.seconds: dict[str, float] = {}
        self.name, self._title = "", ""
        self._started, self._share = time.monotonic(), 0.0
        self.task = None if bar is None else bar.add_task("starting", total=1.0)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Take the seconds that later stages are expected to take."""
        self.expected |= seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        self.name, self._started, self._share = name, time.monotonic(), 0.0
        self._title = f"{len(self.seconds) + 1} of {len(TITLES)}: {TITLES[name]}"
        self._show(self._title)
        with watch_epochs(self._trainings()):
            yield
        self.seconds[name] = time.monotonic() - self._started
        self.name = ""
        self._show()

    def done(self, share: float) -> None:
        """Say how much of the stage is done."""
        self._share = max(self._share, min(max(share, 0.0), 1.0))
        self._show()

    def left(self) -> float:
        """The seconds that are left."""
        later = sum(self.expected[name] for name in TITLES if name not in self.seconds and name != self.name)
        if not self.name:
            return later * self._slowness()
        spent = time.monotonic() - self._started
        whole = self.expected[self.name] * self._slowness()
        by_model, by_share = whole - spent, spent * (1 - self._share) / self._share if self._share > 0.05 else 0.0
        return max(by_model, by_share, LATE * spent) + later * self._slowness()

    def _slowness(self) -> float:
        """Seconds that finished work took, over those expected of it."""
        spent = sum(self.seconds[name] for name in self.seconds if name != "read")
        wanted = sum(self.expected[name] for name in self.seconds if name != "read")
        if self.name and self._share > 0:
            spent += time.monotonic() - self._started
            wanted += self._share * self.expected[self.name]
        return spent / wanted if spent > MIN_SECONDS else 1.0

    def rows(self, done: int, total: int, part: tuple[float, float] = (0.0, 1.0)) -> None:
        """Say how many rows are done, and how many a second; the bar says how long the rest will take.

        `part` is the share of the stage at which these rows begin and end.
        """
        spent = max(time.monotonic() - self._started, 1e-6)
        self._share = max(self._share, part[0] + (part[1] - part[0]) * done / max(total, 1))
        self._show(f"{self._title}, {done:,} of {total:,} rows, {done / spent:,.0f} a second", seldom=True)

    def spent(self) -> float:
        """The seconds that the present stage has taken so far."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Say a sentence on standard error, above the bar."""
        if self.console is not None:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _trainings(self) -> OnEpochShare:
        """Watch one training after the other; how many there will be is only known at the end."""
        met, last = 0, 0.0

        def watch(share: float) -> None:
            nonlocal met, last
            met += share < last
            last = share
            self.done(TRAINED * (met + share) / max(TRAININGS, met + 1))

        return watch

    def _show(self, title: str | None = None, seldom: bool = False) -> None:
        if self.bar is not None and self.task is not None:
            gone = sum(self.seconds.values()) + (time.monotonic() - self._started if self.name else 0.0)
            self.bar.update(self.task, completed=gone / max(gone + self.left(), 1e-9), description=title)
        if self.log is not None and title is not None and not seldom:
            self.log.say(title)
        elif self.log is not None:
            self.log.say_seldom(f"{title + ', ' if title else ''}about {_minutes(self.left())} left")


def _minutes(seconds: float) -> str:
    return "{}:{:02d}".format(*divmod(round(seconds), 60))


class TimeLeft(ProgressColumn):
    """The remaining time of the stages, in minutes and seconds."""

    stages: Stages | None = None

    def render(self, task: Task) -> Text:
        """The time at this moment."""
        return Text(f"about {_minutes(0.0 if self.stages is None else self.stages.left())} left")


@contextmanager
def show_stages(shown: bool) -> Iterator[Stages]:
    """Draw the bar on a terminal's standard error, or write lines where there is none."""
    console = Console(stderr=True)
    if not shown:
        yield Stages()
        return
    if not console.is_terminal:
        with progress_log() as lines:
            yield Stages(log=lines, console=console)
        return
    left = TimeLeft()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, left, console=console, transient=True) as bar:
        left.stages = Stages(bar, console=console)
        yield left.stages
