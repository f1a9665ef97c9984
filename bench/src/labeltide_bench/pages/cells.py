"""Cells of a study: one data set, noise shape, level and variant, with the runs of all methods."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labeltide_bench.pages.method_order import in_order
from labeltide_bench.pages.results import DatasetInfo, Run

UNIFORM = "uniform"
RECORDED = "recorded"  # the shape and variant of labels by real annotators
Task = tuple[str, int, str]


class DrawSummary(NamedTuple):
    """Mean and standard deviation of a metric over draws."""

    mean: float  # NaN where no draw gave a number
    spread: float  # standard deviation, divided by n - 1; NaN below two draws
    n: int  # draws that gave a number
    failed: int  # draws that gave none


@dataclass(frozen=True, eq=False)
class Cell:
    """All runs that differ in method and draw only."""

    task: Task
    name: str  # the data set as the page calls it
    shape: str
    level: str
    variant: str
    runs: dict[str, list[Run]]  # method → draws

    @property
    def any_run(self) -> Run:
        return next(iter(self.runs.values()))[0]

    @property
    def info(self) -> DatasetInfo:
        return self.any_run.info

    @property
    def n_classes(self) -> int:
        return self.task[1]

    @property
    def annotator(self) -> str:
        """The annotator whose labels were used; empty where the noise was drawn."""
        return str(json.loads(self.level).get("annotator", "")) if self.shape == RECORDED else ""

    @property
    def true_noise(self) -> np.ndarray | None:
        """The Q(t) that labels were drawn from; for recorded labels the observed noise, averaged over folds."""
        kept = [run.true_noise for runs in self.runs.values() for run in runs if run.true_noise is not None]
        if not self.annotator or not kept or len({array.shape for array in kept}) > 1:
            return self.any_run.true_noise
        seen = np.isfinite(kept).sum(axis=0)
        return np.where(seen > 0, np.nansum(kept, axis=0) / np.maximum(seen, 1), np.nan)

    @property
    def rate(self) -> float:
        """The true average error rate of the labels, the same for every run of a cell up to rounding."""
        return float(np.mean([run.rate for runs in self.runs.values() for run in runs]))

    @property
    def percents(self) -> tuple[float, ...]:
        """The levels by the paper's names, in percent: one, several for runs of a printed table, none by constants."""
        level = json.loads(self.level)
        named = level.get("rates", [level["rate"]] if "rate" in level else []) if isinstance(level, dict) else []
        return tuple(round(100 * float(rate), 6) for rate in named)

    @property
    def level_text(self) -> str:
        """The level as the study set it."""
        level = json.loads(self.level)
        if self.annotator:
            return f"labels of {self.annotator}"
        if self.percents:
            return f"average rate set to {', '.join(f'{percent:g}' for percent in self.percents)} %"
        if self.any_run.constants:
            return ", ".join(f"{name} = {value:g}" for name, value in self.any_run.constants.items())
        return self.level if level else "as the study set it"

    @property
    def class_names(self) -> list[str]:
        names = list(self.info.classes)
        return names if len(names) == self.n_classes else [f"class {code}" for code in range(self.n_classes)]

    def over_draws(self, method: str, metric: str) -> DrawSummary:
        """Mean and spread of a metric over the draws of a method; where no draw has the metric, none has failed."""
        runs = self.runs.get(method, [])
        is_measured = any(metric in run.metrics for run in runs)
        return summarise_draws(run.metrics.get(metric, np.nan) for run in runs if is_measured)

    def stack(self, method: str, what: str) -> np.ndarray | None:
        """`noise` or a name of `over_time`, of shape (draws, points, ...); None where it was not kept."""
        runs = self.runs.get(method, [])
        arrays = [run.noise if what == "noise" else run.over_time.get(what) for run in runs]
        kept = [array for array in arrays if array is not None]
        if not kept or len({array.shape for array in kept}) > 1:
            return None
        return np.stack(kept)


def summarise_draws(values: Iterable[float]) -> DrawSummary:
    """Mean and sample standard deviation of the finite values."""
    every = np.array(list(values), dtype=float)
    kept = every[np.isfinite(every)]
    mean = float(kept.mean()) if kept.size else np.nan
    spread = float(kept.std(ddof=1)) if kept.size > 1 else np.nan
    return DrawSummary(mean, spread, int(kept.size), int(every.size - kept.size))


def make_cells(runs: Sequence[Run]) -> list[Cell]:
    """Group runs to cells, ordered by first occurrence of data set and shape, then by rate."""
    names = _names(runs)
    grouped: dict[tuple[Task, str, str, str], dict[str, list[Run]]] = {}
    for run in runs:
        methods = grouped.setdefault((run.task, run.shape, run.level, run.variant), {})
        methods.setdefault(run.method, []).append(run)
    cells = [
        Cell(task, names[task], shape, level, variant, {name: methods[name] for name in in_order(methods)})
        for (task, shape, level, variant), methods in grouped.items()
    ]
    tasks, shapes = (list(dict.fromkeys(getattr(cell, key) for cell in cells)) for key in ("task", "shape"))
    return sorted(cells, key=lambda cell: (tasks.index(cell.task), shapes.index(cell.shape), cell.rate))


def _names(runs: Sequence[Run]) -> dict[Task, str]:
    """The shortest unique name of each task."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    names = {}
    for task in tasks:
        dataset, n_classes, split = task
        alike = [other for other in tasks if other[0] == dataset and other != task]
        more = [f"{n_classes} classes"] if any(other[1] != n_classes for other in alike) else []
        more += [split] if split and any(other[1] == n_classes for other in alike) else []
        names[task] = f"{dataset} ({', '.join(more)})" if more else dataset
    return names


def methods_of(cells: Iterable[Cell]) -> list[str]:
    """Every method of the cells, in the order of the columns."""
    return in_order(method for cell in cells for method in cell.runs)
