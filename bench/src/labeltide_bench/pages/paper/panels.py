"""The figures of the page: which curves stand in which panel, and how the axes are set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from labeltide_bench.pages.cells import Cell
from labeltide_bench.pages.cost import method_in
from labeltide_bench.pages.figures import thinned, wrong
from labeltide_bench.pages.paper.match import MatchedFigure, Point
from labeltide_bench.pages.paper.panel import Curve, Panel, nice_ticks
from labeltide_bench.pages.paper.values import ACCURACY, SHAPES, shown_name
from labeltide_bench.pages.style import fence

LOW = 0.05  # share of the paper's values below 60 % from which an axis begins at 50 %
TRUTH = "truth"


@dataclass(frozen=True)
class DrawnPanel:
    """The markup of a panel and what lies outside its axes."""

    svg: str
    beyond: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Drawn:
    """A figure of the page."""

    number: str
    subject: str
    slug: str
    caption: str
    panels: list[DrawnPanel]


def key_of(method: str) -> str:
    """The class that colours a method: letters only, `ignore` for every name of no correction."""
    return "".join(c if c.isalnum() else "-" for c in shown_name(method)).strip("-")


def draw_matched(matched: MatchedFigure, caption: str) -> Drawn:
    """Six panels, one for each shape, all with the same axes."""
    figure = matched.figure
    y_range, y_ticks = _accuracy_axis(matched) if figure.measure == ACCURACY else _error_axis(matched)
    names = ", ".join(map(shown_name, matched.methods))
    panels = []
    for shape in SHAPES:
        curves = [curve for method in matched.methods for curve in _curves(matched, shape, method)]
        alt = f"{figure.number}, {shape} noise: {figure.measure} of {names} against wrong labels."
        panel = Panel(shape, curves, y_range=y_range, y_ticks=y_ticks, alt=alt)
        panels.append(DrawnPanel(panel.svg(), panel.beyond))
    subject = figure.subject + (" (substitute data)" if matched.is_substitute else "")
    return Drawn(figure.number, subject, figure.slug, caption, panels)


def panels_left(matched: MatchedFigure) -> list[str]:
    """The panels of the error of Q that ignore, which has no say in their axis, leaves at the top."""
    _, top = _error_axis(matched)[0]
    return [shape for shape in SHAPES if _highest(matched.points("ignore", shape)) > top]


def _highest(points: Sequence[Point]) -> float:
    values = [p.ours.mean for p in points if p.ours] + [p.paper.value for p in points if p.paper]
    return max(values, default=0.0)


def _curves(matched: MatchedFigure, shape: str, method: str) -> list[Curve]:
    points = matched.points(method, shape)
    key, leaves = key_of(method), method == "ignore" and matched.figure.measure != ACCURACY
    dodge = matched.methods.index(method) - (len(matched.methods) - 1) / 2
    found = []
    paper = [point.paper for point in points if point.paper]
    if paper:
        x, y = [value.wrong_percent for value in paper], [value.value for value in paper]
        band = [value.lower for value in paper], [value.upper for value in paper]
        found.append(Curve(key, shown_name(method), x, y, *band, is_paper=True, leaves=leaves))
    ours = [(point.wrong_percent, point.ours) for point in points if point.ours]
    if ours:
        x, y = [percent for percent, _ in ours], [interval.mean for _, interval in ours]
        bars = [interval.lower for _, interval in ours], [interval.upper for _, interval in ours]
        found.append(Curve(key, shown_name(method), x, y, *bars, marker=key, dodge=dodge, leaves=leaves))
    return found


def _accuracy_axis(matched: MatchedFigure) -> tuple[tuple[float, float], tuple[float, ...]]:
    """From 60 to 100 % as in the paper; from 50 % where many of its own values lie below 60."""
    values = [point.paper.value for point in matched.points() if point.paper]
    bottom = 50 if np.mean(np.array(values) < 60) > LOW else 60
    return (bottom, 100), tuple(range(bottom, 101, 10))


def _error_axis(matched: MatchedFigure) -> tuple[tuple[float, float], tuple[float, ...]]:
    """From 0 to the largest error of Q that is no outlier; `ignore`, whose error is the rate itself, has no say."""
    methods = [method for method in matched.methods if method != "ignore"]
    points = [point for method in methods for point in matched.points(method)]
    ours, paper = [p.ours.mean for p in points if p.ours], [p.paper.value for p in points if p.paper]
    ticks = nice_ticks(max([fence(ours) if ours else 0, *paper]))
    return (0, ticks[-1]), ticks


def draw_noise_functions(cells: Sequence[Cell]) -> list[DrawnPanel]:
    """Figure 4: the share of wrong labels of both classes over the clock, the level nearest to 30 % drawn strong."""
    panels = []
    for shape in SHAPES:
        kept = [cell for cell in cells if cell.shape == shape and cell.true_noise is not None and cell.n_classes == 2]
        if not kept:
            continue
        strong = min(kept, key=lambda cell: abs(cell.rate - 0.3))
        curves = []
        for cell in [cell for cell in kept if cell is not strong] + [strong]:
            for code in range(2 if shape == "mixed" else 1):
                key = f"{TRUTH}-{'strong' if cell is strong else 'faint'}{code}"
                curves.append(_over_clock(cell, key, wrong(_known(cell.true_noise), code)))
        panel = Panel(shape, curves, (0, 1), (0, 50), (0, 0.5, 1), (0, 10, 20, 30, 40, 50), "clock", f"{shape} noise")
        panels.append(DrawnPanel(panel.svg()))
    return panels


def draw_depictions(cells: Sequence[Cell]) -> dict[str, str]:
    """Table 1: the curve of each shape alone, at the level nearest to 30 %."""
    drawn = {}
    for shape in SHAPES:
        kept = [cell for cell in cells if cell.shape == shape and cell.true_noise is not None and cell.n_classes == 2]
        if kept:
            cell = min(kept, key=lambda cell: abs(cell.rate - 0.3))
            curve = _over_clock(cell, f"{TRUTH}-strong0", wrong(_known(cell.true_noise), 0))
            drawn[shape] = Panel("", [curve], (0, 1), (0, 50), (), (0, 50), "", f"{shape} noise").svg()
    return drawn


def draw_estimates(cells: Sequence[Cell], methods: Sequence[str], classes: Sequence[int] = (0, 1)) -> list[DrawnPanel]:
    """Figure 2: the true share of wrong labels over the clock and each method's estimate, mean over draws."""
    panels = []
    for cell in cells:
        for code in classes:
            curves = []
            for method in methods:
                stack = cell.stack(method_in(cell, method), "noise")
                if stack is not None and stack.shape[1:] == _known(cell.true_noise).shape:
                    curves.append(_over_clock(cell, key_of(method), wrong(np.nanmean(stack, axis=0), code), method))
            curves.append(_over_clock(cell, f"{TRUTH}-dashed", wrong(_known(cell.true_noise), code)))
            top = nice_ticks(max(50.0, *(float(np.nanmax(curve.y)) for curve in curves)))
            clock = _known(cell.any_run.clock)
            ends = (float(clock[0]), float(clock[-1]))
            who = f"{cell.name.split(' (')[0]}, {cell.annotator}" if cell.annotator else f"{cell.shape} noise"
            title = f"{who}: {cell.class_names[code]}"
            ticks = [tick for tick in nice_ticks(ends[1]) if ends[0] <= tick <= ends[1]]
            panel = Panel(title, curves, ends, (0, top[-1]), ticks, top, cell.info.clock or "clock", title)
            panels.append(DrawnPanel(panel.svg()))
    return panels


def _over_clock(cell: Cell, key: str, values: np.ndarray, name: str = "") -> Curve:
    clock = _known(cell.any_run.clock)
    steps = thinned(len(clock))
    return Curve(key, name, clock[steps].tolist(), values[steps].tolist())


def _known(array: np.ndarray | None) -> np.ndarray:
    if array is None:
        raise ValueError("This figure needs records with curves over the clock. Do not pack them with --no-arrays.")
    return array
