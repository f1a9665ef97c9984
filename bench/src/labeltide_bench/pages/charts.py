"""Figures of errors: against the noise rate, over the clock, and the mean ranks of methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labeltide_bench.pages.cells import Cell, methods_of
from labeltide_bench.pages.figures import thinned
from labeltide_bench.pages.method_order import Q_ERRORS, estimates_q
from labeltide_bench.pages.style import (
    MARKERS,
    SETTINGS,
    Palette,
    Picture,
    colours,
    fence,
    grid,
    legend,
    picture,
    shown,
)
from labeltide_bench.pages.verdict import Ranks

Looks = dict[str, dict[str, Any]]

ERRORS = {
    "test_error": "test error (%)",
    "frobenius": "distance of Q,\nFrobenius (%)",
    "absolute": "error of Q (%)",
}


def draw_levels(name: str, cells: Sequence[Cell], palette: Palette | None = None) -> Picture | None:
    """Errors of one data set against the true average rate of wrong labels, a column for each shape.

    An error far above the others of its row is marked at the top with its number, so that it does not set the scale.
    Nor does the distance of Q of a method that estimates none: it is the noise itself.
    """
    shapes = [shape for shape in _shapes(cells) if sum(cell.shape == shape for cell in cells) > 1]
    metrics = _measured(cells, "metrics")
    if not shapes or not metrics:
        return None
    methods = methods_of(cells)
    looks = _looks(methods, palette)
    with matplotlib.rc_context(SETTINGS):
        figure, axes = grid(len(metrics), len(shapes), (1.75, 1.3), entries=len(methods))
        for row, metric in enumerate(metrics):
            scaling = [method for method in methods if metric not in Q_ERRORS or estimates_q(method)]
            top = 1.08 * fence(100 * cell.over_draws(method, metric).mean for cell in cells for method in scaling)
            for axis, shape in zip(axes[row], shapes, strict=True):
                at_levels = sorted((cell for cell in cells if cell.shape == shape), key=lambda cell: cell.rate)
                for method in methods:
                    mark_above = top if method in scaling else math.inf
                    _level_line(axis, at_levels, method, metric, looks[method], mark_above)
                if row == 0:
                    axis.set_title(shown(shape))
            if top > 0:
                axes[row][0].set_ylim(0, top)
        _label(figure, axes, metrics, looks, "wrong labels (%)")
        caption = f"{cells[0].name}: errors against the average rate of wrong labels."
        return picture(figure, name, caption, _alt(cells, metrics, methods, "average rate of wrong labels"))


def _level_line(
    axis: Axes, cells: Sequence[Cell], method: str, metric: str, look: dict[str, Any], mark_above: float
) -> None:
    numbers = [cell.over_draws(method, metric) for cell in cells]
    points = [(100 * cell.rate, 100 * n.mean, 100 * n.spread) for cell, n in zip(cells, numbers, strict=True) if n.n]
    if not points:
        return
    rates, means, spreads = np.array(points).T
    low, high, gap = means - np.nan_to_num(spreads), means + np.nan_to_num(spreads), np.full(len(rates), np.nan)
    # One line with gaps for all bars: a tenth of the size of matplotlib's own error bars.
    axis.plot(np.repeat(rates, 3), np.stack([low, high, gap], axis=1).ravel(), color=look["color"], linewidth=0.7)
    axis.plot(rates, means, **look)
    above = means > mark_above
    for rate, mean in zip(rates[above], means[above], strict=True):
        axis.plot([rate], [0.96 * mark_above], marker="^", markersize=4, color=look["color"])
        axis.annotate(f"{mean:.0f}", (rate, 0.96 * mark_above), (3, -3), textcoords="offset points", fontsize=6.5)


def draw_over_time(name: str, cells: Sequence[Cell], palette: Palette | None = None) -> Picture | None:
    """Errors of one data set over the clock, mean over draws, a column for each shape or person."""
    metrics = _measured(cells, "over_time")
    metrics.pop("absolute", None)  # it draws the same picture as the Frobenius norm
    if not metrics:
        return None
    methods = methods_of(cells)
    looks = _looks(methods, palette)
    with matplotlib.rc_context(SETTINGS):
        figure, axes = grid(len(metrics), len(cells), (1.75, 1.3), entries=len(methods))
        for row, metric in enumerate(metrics):
            for axis, cell in zip(axes[row], cells, strict=True):
                for method in methods:
                    _time_line(axis, cell, method, metric, looks[method])
                if row == 0:
                    axis.set_title(shown(cell.annotator or cell.shape))
            drawn = [np.asarray(line.get_ydata(), dtype=float) for axis in axes[row] for line in axis.get_lines()]
            top = 1.08 * fence(np.nanmax(values) for values in drawn if np.isfinite(values).any())
            if top > 0:
                axes[row][0].set_ylim(0, top)
        _label(figure, axes, metrics, looks, cells[0].info.clock or "clock")
        return picture(figure, name, f"{cells[0].name}: errors over the clock.", _alt(cells, metrics, methods, "clock"))


def _time_line(axis: Axes, cell: Cell, method: str, metric: str, look: dict[str, Any]) -> None:
    stack, clock = cell.stack(method, metric), cell.any_run.clock
    if stack is None or clock is None or stack.shape[1:] != clock.shape:
        return
    steps = thinned(len(clock))
    counted = np.isfinite(stack).sum(axis=0)
    means = np.divide(np.nansum(stack, axis=0), counted, out=np.full(clock.shape, np.nan), where=counted > 0)
    axis.plot(clock[steps], 100 * means[steps], color=look["color"], linewidth=1.1)


def draw_ranks(name: str, ranks: Ranks, palette: Palette | None = None) -> Picture:
    """Critical difference diagram (Demšar 2006): mean ranks with bars as long as the critical difference."""
    colour = palette or colours(ranks.methods)
    with matplotlib.rc_context(SETTINGS):
        figure, axes = grid(1, 1, (3.6, 0.26 * len(ranks.methods)), left=1.9)
        axis = axes[0][0]
        for index, (method, mean) in enumerate(zip(ranks.methods, ranks.means, strict=True)):
            half = ranks.difference / 2
            axis.plot([mean - half, mean + half], [index, index], color=colour[method], linewidth=5, alpha=0.3)
            axis.plot([mean], [index], color=colour[method], marker="o", markersize=6)
        axis.set_yticks(range(len(ranks.methods)), [shown(method, 28, 1) for method in ranks.methods])
        axis.set_ylim(len(ranks.methods) - 0.5, -0.5)
        axis.set_xticks(range(1, len(ranks.methods) + 1))
        axis.set_xlabel("mean rank of the test error (1 is best)")
        caption = (
            f"Mean ranks over the {ranks.n_cells} cells in which all these methods ran. Bars are as long as Nemenyi's "
            f"critical difference at the 5 % level, {ranks.difference:.2f} ranks: methods whose bars do not "
            "overlap differ."
        )
        pairs = zip(ranks.methods, ranks.means, strict=True)
        return picture(figure, name, caption, "Mean ranks: " + ", ".join(f"{m} {mean:.2f}" for m, mean in pairs) + ".")


def _shapes(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell.shape for cell in cells))


def _measured(cells: Sequence[Cell], where: str) -> dict[str, str]:
    """The errors that at least one run of the cells has; those of Q only where some method estimates it."""
    kept = [(method, run) for cell in cells for method, runs in cell.runs.items() for run in runs]
    measured = {
        metric
        for method, run in kept
        for metric in getattr(run, where)
        if metric not in Q_ERRORS or estimates_q(method)
    }
    return {metric: text for metric, text in ERRORS.items() if metric in measured}


def _looks(methods: Sequence[str], palette: Palette | None = None) -> Looks:
    """Colour and marker of every method, so that neither alone has to tell them apart; the same on the whole page."""
    colour = palette or colours(methods)
    return {
        method: {
            "color": colour[method],
            "marker": MARKERS[list(colour).index(method) % len(MARKERS)],
            "markersize": 3,
            "linewidth": 1.1,
        }
        for method in methods
    }


def _label(figure: Figure, axes: list[list[Axes]], metrics: dict[str, str], looks: Looks, along: str) -> None:
    """What both kinds of chart share: names of the axes and one legend."""
    for row, text in zip(axes, metrics.values(), strict=True):
        row[0].set_ylabel(text)
        row[0].set_ylim(bottom=0)
    for axis in axes[-1]:
        axis.set_xlabel(along)
    legend(figure, list(looks), list(looks.values()))


def _alt(cells: Sequence[Cell], metrics: dict[str, str], methods: Sequence[str], along: str) -> str:
    drawn = ", ".join(text.split(" (")[0].replace("\n", " ") for text in metrics.values())
    return f"{cells[0].name}: {drawn} of {', '.join(methods)} against the {along}."
