"""The progress bar of an audit with its stages and the remaining time; drawn on terminals only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from labeltide.training.progress import OnEpochShare, watch_epochs

SHARES = {"read": 1, "fit": 45, "judge": 4, "bands": 45, "page": 5}  # of the time, in percent, as measured
TITLES = {
    "read": "reading the table",
    "fit": "learning from the labels",
    "judge": "judging every label",
    "bands": "bands and tests",
    "page": "writing the page",
}
TRAININGS = 5  # that one fit usually runs, one after the other


class Stages:
    """Which stage an audit is in, how far, and how long each took."""

    def __init__(self, bar: Progress | None = None, console: Console | None = None) -> None:
        self.bar, self.console = bar, console
        self.task = None if bar is None else bar.add_task("starting", total=sum(SHARES.values()))
        self.seconds: dict[str, float] = {}
        self.shares: dict[str, float] = dict(SHARES)
        self._before = 0.0
        self._share = 0.0
        self._title, self._started = "", 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; it ends with its whole share of the bar."""
        started, self._share = time.monotonic(), self.shares[name]
        self._title, self._started = (
            f"{list(self.shares).index(name) + 1} of {len(self.shares)}: {TITLES[name]}",
            started,
        )
        self._show(0.0, self._title)
        with watch_epochs(self._trainings()):
            yield
        self.seconds[name] = time.monotonic() - started
        self._before += self._share
        self._show(0.0)

    def done(self, share: float) -> None:
        """Say how much of the stage is done."""
        self._show(min(max(share, 0.0), 1.0) * self._share)

    def rows(self, done: int, total: int, part: tuple[float, float] = (0.0, 1.0)) -> None:
        """Say how many rows are done, how many a second, and how long the rest will take.

        `part` is the share of the stage at which these rows begin and end.
        """
        spent = max(time.monotonic() - self._started, 1e-6)
        left = spent * (total - done) / max(done, 1)
        title = f"{self._title}, {done:,} of {total:,} rows, {done / spent:,.0f} a second, {_minutes(left)} left"
        self._show((part[0] + (part[1] - part[0]) * done / max(total, 1)) * self._share, title)

    def spent(self) -> float:
        """The seconds that the present stage has taken so far."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Say a sentence on standard error, above the bar."""
        if self.console is not None:
            self.console.print(text, markup=False, highlight=False)

    def _trainings(self) -> OnEpochShare:
        """Watch one training after the other; how many there will be is only known at the end."""
        met, last = 0, 0.0

        def watch(share: float) -> None:
            nonlocal met, last
            met += share < last
            last = share
            self.done((met + share) / max(TRAININGS, met + 1))

        return watch

    def _show(self, within: float, title: str | None = None) -> None:
        if self.bar is not None and self.task is not None:
            said = {} if title is None else {"description": title}
            self.bar.update(self.task, completed=self._before + within, **said)  # type: ignore[arg-type]


@contextmanager
def show_stages(shown: bool) -> Iterator[Stages]:
    """Draw the bar on a terminal's standard error only."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield Stages(console=console if shown else None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        yield Stages(bar, console)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
