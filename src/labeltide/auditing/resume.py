"""The work of an audit that has not ended, kept beside its folder: a lock, its settings, its fit and its findings.

A killed audit goes on from there with the same numbers. Results are written by `results.py`, whole, at the end.
"""

from __future__ import annotations

import json
import os
import reprlib
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text
from safetensors import SafetensorError, safe_open

from labeltide import _validation
from labeltide._files import to_json, write_atomically, write_json
from labeltide.auditing.results import restore_interrupted
from labeltide.chain.families import WeightedFamily
from labeltide.chain.passes import ChainData, ChainParameters, TrainingEvidence
from labeltide.estimators import TideClassifier
from labeltide.estimators.storage import load
from labeltide.tables.files import FileSet
from labeltide.training.loop import LogLines, OnEpochShare, progress_log, watch_epochs
from labeltide.training.state import fingerprint

LOCK, SETTINGS = "lock", "settings.json"
FITTED, EVIDENCE, INFERRED = "fitted.safetensors", "evidence.safetensors", "inferred.safetensors"


@dataclass(frozen=True)
class UnfinishedAudit:
    """What an audit has done so far; keeps nothing where `folder` is None."""

    folder: Path | None

    def begin(self, settings: Mapping[str, Any], resume: bool) -> None:
        """Go on with the work of the same settings and data, or start anew; earlier work is kept until this moment."""
        if self.folder is None:
            return
        if resume:
            path = self.folder / SETTINGS
            try:
                earlier = json.loads(path.read_bytes())
            except (ValueError, RecursionError):
                raise ValueError(f"The saved work {path} cannot be read. Leave out --resume to start over.") from None
            earlier, words = earlier if isinstance(earlier, dict) else {}, []
            for name, value in to_json(settings).items():
                if earlier.get(name) != value:
                    changed = f"{name} was {reprlib.repr(earlier.get(name))} and is now {reprlib.repr(value)}"
                    words.append("the table has changed" if name == "data" else changed)
            if words:
                raise ValueError(
                    f"The interrupted audit had other settings or data: {'; '.join(words[:3])}. Use the same to resume "
                    "it, or leave out --resume to start over."
                )
            return
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        write_json(self.folder / SETTINGS, settings)

    def fitted(self, settings: TideClassifier) -> TideClassifier | None:
        """The fit, where it had ended; files do not hold all of its settings."""
        if self.folder is None or not (self.folder / EVIDENCE).exists():
            return None
        estimator = load_tide(self.folder / FITTED)._twin(training=read_evidence(self.folder / EVIDENCE))
        return estimator.set_params(**settings.get_params())

    def keep_fit(self, estimator: TideClassifier) -> None:
        """Keep the fit."""
        if self.folder is not None:
            estimator.save_fit(self.folder / FITTED)
            write_evidence(self.folder / EVIDENCE, estimator.training_)  # last: it says that the fit is whole

    def take_findings(self, estimator: TideClassifier) -> None:
        """Give the estimator the bands and tests that were computed before."""
        if self.folder is not None and (self.folder / INFERRED).exists():
            estimator._take_findings(load_tide(self.folder / INFERRED))

    def keep_findings(self, estimator: TideClassifier) -> None:
        """Keep the bands and tests that were computed so far."""
        if self.folder is not None:
            estimator.save_fit(self.folder / INFERRED)


@contextmanager
def unfinished_work(folder: Path | None, out: Path | None, resume: bool) -> Iterator[UnfinishedAudit]:
    """Lock the folder of unfinished work for one audit; it is gone after a good end, or if nothing was begun."""
    if folder is None:
        yield UnfinishedAudit(None)
        return
    if resume and not (folder / SETTINGS).exists():
        raise ValueError(f"There is no interrupted audit of {str(out)!r} to resume. Leave out --resume to start one.")
    handle = _lock(folder, out)
    try:
        if out is not None:
            restore_interrupted(out)
        yield UnfinishedAudit(folder)
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt as stop:
        stop.work_is_kept = (folder / SETTINGS).exists()  # type: ignore[attr-defined]
        raise
    finally:
        if not (folder / SETTINGS).exists():
            shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _lock(folder: Path, out: Path | None) -> int:
    """An open file that only one process can hold; the system lets go of it when the process ends, however it does."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LOCK
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # another audit has just ended
            continue
        if not _take(handle):
            os.close(handle)
            raise ValueError(
                f"Another audit is writing to {str(out)!r}. Wait until it ends, or name another folder with --out."
            )
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            return handle
        os.close(handle)


def _take(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def load_tide(path: Path) -> TideClassifier:
    """A fit of an interrupted audit."""
    try:
        estimator = load(path)
    except ValueError as error:
        raise ValueError(f"The saved work {error} Leave out --resume to start over.") from None
    if not isinstance(estimator, TideClassifier):
        raise ValueError(f"The saved work {path} is of another method. Leave out --resume to start over.")
    return estimator


def write_evidence(path: Path, training: TrainingEvidence) -> None:
    """Write labels, evidence and chain of a fit, whole or not at all."""
    found = {f"data.{name}": value for name, value in vars(training.data).items()}
    found |= {f"chain.{name}": value for name, value in training.parameters._asdict().items()}
    found |= training._asdict() | {"grid": torch.from_numpy(training.grid)}
    tensors = {name: each.contiguous() for name, each in sorted(found.items()) if isinstance(each, torch.Tensor)}
    about = {
        "digest": fingerprint(*tensors.values()),
        "n_points": training.data.n_points,
        "n_classes": training.data.n_classes,
        "gaps": training.data.gaps,
        "period": training.period,
        "families": training.families,
    }
    metadata = {"labeltide": json.dumps(about)}
    write_atomically(path, lambda draft: safetensors.torch.save_file(tensors, draft, metadata=metadata))


def read_evidence(path: Path) -> TrainingEvidence:
    """Read what `write_evidence` wrote; a damaged file is a ValueError."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads(file.metadata()["labeltide"])
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        if about["digest"] != fingerprint(*tensors.values()):
            raise ValueError("its content has changed")
        _check(about, tensors)
        parts: dict[str, dict[str, Any]] = {"data": {"points": None}, "chain": {}, "": {}}
        for name, tensor in tensors.items():
            part, _, own = name.rpartition(".")
            parts[part][own] = tensor
        sizes = {name: about[name] for name in ("n_points", "n_classes")}
        return TrainingEvidence(
            ChainData(**parts["data"], **sizes, gaps=tuple(about["gaps"])),
            ChainParameters(**parts["chain"]),
            **parts[""] | {"grid": tensors["grid"].numpy()},
            period=tuple(about["period"]) if isinstance(about["period"], list) else about["period"],
            families=tuple(WeightedFamily(*family) for family in about["families"]),
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"The saved work {path} cannot be read ({error}). Leave out --resume to start over.") from None


def _check(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Refuse numbers that the kernels must not meet: a digest says that a file is whole, not that it is sound."""
    classes, points, gaps, grid = about["n_classes"], about["n_points"], about["gaps"], tensors["grid"]
    _validation.check_number("n_classes", classes, 2, _validation.MAX_CLASSES, whole=True)
    _validation.check_number("n_points", points, 1, whole=True)
    if gaps[:1] != [1] or not all(type(gap) is int and 1 <= gap < 2**31 for gap in gaps):
        raise ValueError("its gaps must be whole numbers from 1")
    (_, n, steps, people), (_, n_matrices, *_) = tensors["data.labels"].shape, tensors["chain.matrices"].shape
    axes, most = (n, steps), sys.float_info.max
    sound: dict[str, tuple[tuple[int, ...], torch.dtype, float, float]] = {  # shape, type, least and largest number
        "data.labels": ((1, *axes, people), torch.int8, -1, classes - 1),
        "data.mask": (axes, torch.bool, 0, 1),
        "data.points": (axes, torch.int64, 0, points - 1),
        "data.evidence": ((1, *axes, classes), torch.float32, -torch.inf, most),
        "data.future_evidence": ((1, *axes, classes), torch.float32, -torch.inf, most),
        "data.trusted": (axes, torch.int8, -1, classes - 1),
        "data.jumps": (axes, torch.int8, 0, len(gaps) - 1),
        "data.trained_with": ((1,), torch.float32, -torch.inf, most),
        "chain.start": ((1, classes), torch.float32, 0, most),
        "chain.transition": ((1, classes, classes), torch.float32, 0, most),
        "chain.power": ((1,), torch.float32, -torch.inf, most),
        "chain.matrices": ((1, n_matrices, points, classes, classes), torch.float32, 0, most),
        "chain.bursts": ((1,), torch.float32, -torch.inf, most),
        "folds": ((1, n), torch.int64, 0, n),
        "grid": ((points, *grid.shape[1:2]), torch.float64, -torch.inf, torch.inf),
        "clusters": ((n,), torch.int64, -1, 2**53),
        "shares": ((people,), torch.float64, -torch.inf, most),
    }
    for name, tensor in tensors.items():
        shape, dtype, low, high = sound[name]
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            raise ValueError(f"its {name} must have shape {shape} and type {dtype}")
        if tensor.numel() and not low <= tensor.min().item() <= tensor.max().item() <= high:
            raise ValueError(f"its {name} must hold numbers from {low} to {high}")
    if n_matrices not in (1, people) or ("data.points" not in tensors and steps > points):
        raise ValueError("its parts do not fit each other")
    if "data.evidence" not in tensors:
        raise ValueError("its evidence is missing")
    for name in ("chain.start", "chain.transition", "chain.matrices"):
        if not ((tensors[name].sum(-1) - 1).abs() < 1e-3).all():
            raise ValueError("its chain must be made of probabilities")


# Bytes on disk for each label, measured on simulated studies with seven features: judged parts, and the two tables of
# results.
PART_BYTES, RESULT_BYTES = 35, 35
SORT_BYTES = 160  # of a row that DuckDB sorts: its copy in order, and its temporary files
GIGABYTE = 1e9


def say_disk(files: FileSet, copies: bool, folder: Path) -> str:
    """A sentence on the disk that an audit needs while it runs; too little of it is an error."""
    needed = files.n_rows * float((SORT_BYTES if copies else 0) + PART_BYTES + RESULT_BYTES)
    disk = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(disk).free
    amounts = (
        f"about {needed / GIGABYTE:.1f} GB of disk space while it runs, besides its results; "
        f"{free / GIGABYTE:.1f} GB are free"
    )
    if free < needed:
        raise ValueError(f"This audit needs {amounts} in {str(disk)!r}. Free some, or name a folder on another disk.")
    return f"The audit takes {amounts}."


# Progress of an audit: a bar with stages and the remaining time on a terminal, lines in the log elsewhere.

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
