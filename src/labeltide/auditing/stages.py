"""Progress of an audit: a bar with stages and the remaining time on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from labeltide.training.progress import LogLines, OnEpochShare, progress_log, watch_epochs

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

    def __init__(self, bar: Progress | None = None, log: LogLines | None = None) -> None:
        self.bar, self.log = bar, log
        self.task = None if bar is None else bar.add_task("starting", total=sum(SHARES.values()))
        self.seconds: dict[str, float] = {}
        self._before = 0.0
        self._share = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; it ends with its whole share of the bar."""
        started, self._share = time.monotonic(), SHARES[name]
        self._show(0.0, f"{list(SHARES).index(name) + 1} of {len(SHARES)}: {TITLES[name]}")
        with watch_epochs(self._trainings()):
            yield
        self.seconds[name] = time.monotonic() - started
        self._before += self._share
        self._show(0.0)

    def done(self, share: float) -> None:
        """Say how much of the stage is done."""
        self._show(min(max(share, 0.0), 1.0) * self._share)

    def tell(self, text: str) -> None:
        """Show lines that stay: above the bar, or in the log."""
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        if self.log is not None:
            self.log.say(text)

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
        if self.log is not None and title is not None:
            self.log.say(title)
        elif self.log is not None:
            self.log.say_seldom(f"about {self._before + within:.0f} % done")


@contextmanager
def show_stages(shown: bool) -> Iterator[Stages]:
    """Draw the bar on a terminal's standard error, or write lines where there is none."""
    console = Console(stderr=True)
    if not shown:
        yield Stages()
        return
    if not console.is_terminal:
        with progress_log() as lines:
            yield Stages(log=lines)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        yield Stages(bar)
