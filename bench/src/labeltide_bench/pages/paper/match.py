"""Curves of the paper's figures beside ours: cells matched to values by shape and rate of wrong labels."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student

from labeltide_bench.pages.cells import UNIFORM, Cell, DrawSummary, methods_of
from labeltide_bench.pages.paper.values import (
    ACCURACY,
    PAPER_NAMES,
    SHAPES,
    FigureValue,
    PaperFigure,
    figure_values,
    shown_name,
)

NEAR = 1.0  # points of the rate by which a level of the paper may differ from ours; its figures round to whole percents
LEVEL = 0.95  # of our intervals


class Interval(NamedTuple):
    """A mean over draws and its 95 % interval (Student's t), in percent."""

    mean: float
    lower: float
    upper: float
    draws: int


class Point(NamedTuple):
    """One method at one level: ours, the paper's, or both."""

    wrong_percent: float
    ours: Interval | None
    paper: FigureValue | None

    @property
    def difference(self) -> float:
        """Ours minus the paper's; NaN where one is missing."""
        return self.ours.mean - self.paper.value if self.ours and self.paper else math.nan

    @property
    def is_in_band(self) -> bool:
        """Whether our mean lies in the paper's band, which was read to two decimals."""
        return bool(self.ours and self.paper and self.paper.lower - 0.005 <= self.ours.mean <= self.paper.upper + 0.005)

    @property
    def overlaps(self) -> bool:
        """Whether our interval meets the paper's band."""
        return bool(
            self.ours and self.paper and self.ours.lower <= self.paper.upper and self.ours.upper >= self.paper.lower
        )


@dataclass(frozen=True, eq=False)
class MatchedFigure:
    """A figure of the paper with our cells of the same data set."""

    figure: PaperFigure
    cells: list[Cell]
    curves: dict[tuple[str, str], list[Point]]  # shape and method → points by level

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for _, method in self.curves))

    @property
    def is_substitute(self) -> bool:
        """Whether our data stand in for recordings of the paper that were not at hand."""
        return any(cell.info.faithful is False for cell in self.cells)

    @property
    def estimating(self) -> list[str]:
        """The methods whose numbers compare: of Q, those that estimate one."""
        return [name for name in self.methods if self.figure.measure == ACCURACY or name != "ignore"]

    def points(self, method: str = "", shape: str = "") -> list[Point]:
        """The points of a method, of a shape, or of all."""
        wanted = [key for key in self.curves if method in ("", key[1]) and shape in ("", key[0])]
        return [point for key in wanted for point in self.curves[key]]


def match_figure(figure: PaperFigure, cells: Sequence[Cell]) -> MatchedFigure:
    """Put our cells of the figure's data set beside its values.

    A method that the figure does not have is shown only where it has runs at every level.
    """
    kept = [cell for cell in cells if cell.task[:2] == (figure.dataset, figure.classes) and cell.variant == UNIFORM]
    values = figure_values()[figure.file]
    known = {*PAPER_NAMES, *(value.method for value in values)}
    ours = [name for name in methods_of(kept) if name in known or all(name in cell.runs for cell in kept)]
    methods = list(dict.fromkeys([*ours, *(value.method for value in values)]))
    curves: dict[tuple[str, str], list[Point]] = {}
    for shape in SHAPES:
        pairs = match_levels(
            [cell for cell in kept if cell.shape == shape],
            sorted({value.wrong_percent for value in values if value.shape == shape}),
        )
        of_shape = {(value.method, value.wrong_percent): value for value in values if value.shape == shape}
        for method in methods:
            points = [_point(figure, cell, percent, method, of_shape) for cell, percent in pairs]
            curves[shape, method] = [point for point in points if point.ours or point.paper]
    return MatchedFigure(figure, kept, curves)


def match_levels(cells: Sequence[Cell], percents: Sequence[float]) -> list[tuple[Cell | None, float]]:
    """Each cell with the paper's level of the nearest rate, one to one; what has no partner stays alone.

    Rates and not names are matched: with three classes the figures show the level called 29 % at its rate, 32 %.
    """
    rates = np.array([100 * cell.rate for cell in cells])
    gaps = np.abs(rates[:, None] - np.array(percents)[None, :])  # (cells, levels)
    rows, columns = linear_sum_assignment(np.where(gaps <= NEAR, gaps**2, 1e6))
    partner = {row: column for row, column in zip(rows, columns, strict=True) if gaps[row, column] <= NEAR}
    pairs: list[tuple[Cell | None, float]] = [
        (cell, percents[partner[row]] if row in partner else float(rates[row])) for row, cell in enumerate(cells)
    ]
    pairs += [(None, percent) for column, percent in enumerate(percents) if column not in partner.values()]
    return sorted(pairs, key=lambda pair: pair[1])


def draws_text(cells: Sequence[Cell], methods: Sequence[str], unit: str = "draws") -> str:
    """How many draws stand behind a mean of each method: one number where all have the same."""
    counts = {shown_name(name): {len(c.runs[name]) for c in cells if name in c.runs} for name in methods}
    ranges = {name: _range(found) for name, found in counts.items() if found}
    if not ranges:
        return ""
    usual = max(ranges.values(), key=list(ranges.values()).count)
    others = ", ".join(f"{name}: {text}" for name, text in ranges.items() if text != usual)
    return f"{usual} {unit}" + (f" ({others})." if others else ".")


def _range(counts: Collection[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _point(
    figure: PaperFigure,
    cell: Cell | None,
    percent: float,
    method: str,
    values: dict[tuple[str, float], FigureValue],
) -> Point:
    summary = cell.over_draws(method, figure.metric) if cell else None
    ours = interval(summary, is_accuracy=figure.measure == ACCURACY) if summary and summary.n else None
    return Point(percent, ours, values.get((method, percent)))


def interval(summary: DrawSummary, *, is_accuracy: bool) -> Interval:
    """Mean and interval in percent; a test error becomes an accuracy."""
    mean = 100 * (1 - summary.mean if is_accuracy else summary.mean)
    half = 0.0
    if summary.n > 1:
        half = 100 * summary.spread / math.sqrt(summary.n) * float(student.ppf((1 + LEVEL) / 2, summary.n - 1))
    return Interval(mean, mean - half, mean + half, summary.n)
