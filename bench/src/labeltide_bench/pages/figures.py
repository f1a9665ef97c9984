"""Figures of Q(t): true and estimated noise over the clock, and the noise shapes of a study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from labeltide_bench.pages.cells import Cell
from labeltide_bench.pages.method_order import estimates_q
from labeltide_bench.pages.style import INK, SETTINGS, Palette, Picture, colours, grid, legend, picture, shown

COLUMNS = 10  # panels side by side
POINTS = 50  # of a curve; more cannot be seen in a small panel
DASHES = ("-", "--", ":", "-.")


def draw_noise(
    path: Path,
    clock: np.ndarray,
    true: np.ndarray,
    estimates: Mapping[str, np.ndarray],
    class_names: Sequence[str],
) -> None:
    """Draw, for each class, how often its labels were wrong over the clock, true against estimated.

    Parameters
    ----------
    clock : array of shape (points,)
    true : array of shape (points, classes, classes)
    estimates : method name → array of the same shape
    """
    colour = colours(list(estimates))
    with matplotlib.rc_context({**SETTINGS, "font.size": 10, "axes.titlesize": 11}):
        figure, axes = grid(1, true.shape[-1], (4.2, 3.0), entries=1 + len(estimates))
        for code, axis in enumerate(axes[0]):
            axis.plot(clock, wrong(true, code), color=INK, linewidth=3)
            for name, matrices in estimates.items():
                axis.plot(clock, wrong(matrices, code), color=colour[name], linewidth=2)
            axis.set_title(f"when {shown(str(class_names[code]), 40, 1)} is true")
            axis.set_xlabel("time, from start to end of a sequence")
            axis.set_ylim(-2, 60)
        axes[0][0].set_ylabel("recorded label is wrong (%)")
        looks = [
            {"color": INK, "linewidth": 3},
            *({"color": colour[name], "linewidth": 2} for name in estimates),
        ]
        legend(figure, ["true", *estimates], looks)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, facecolor="white")


def wrong(matrices: np.ndarray, code: int) -> np.ndarray:
    """Percent of the labels of a class that are recorded wrong: the last axis but two is time."""
    return 100 * (1 - matrices[..., code, code])


def thinned(points: int) -> np.ndarray:
    """Places of at most `POINTS` points of a curve, ends included."""
    return np.unique(np.linspace(0, points - 1, min(points, POINTS)).round().astype(int))


def draw_recovery(name: str, cell: Cell, palette: Palette | None = None) -> Picture | None:
    """Q(t) of every method in a cell, mean over draws with the range of all draws; None where no estimate was kept."""
    stacks = {method: cell.stack(method, "noise") for method in cell.runs}
    kept = {method: stack for method, stack in stacks.items() if stack is not None}
    true, clock = cell.true_noise, cell.any_run.clock
    if true is None or clock is None or not any(map(estimates_q, kept)):
        return None
    draws, truth, top = ("folds", "counted", 100) if cell.annotator else ("draws", "true", 60)
    with matplotlib.rc_context(SETTINGS):
        bands = math.ceil(len(kept) / COLUMNS)
        columns = math.ceil(len(kept) / bands)
        figure, axes = grid(
            cell.n_classes * bands,
            columns,
            (1.28, 1.1),
            entries=3,
            left=0.8,
            gap=0.1,
            row_gap=0.2 if bands == 1 else 0.45,
        )
        colour = palette or colours(list(cell.runs))
        for index in range(bands * columns):
            for code in range(cell.n_classes):
                axis = axes[(index // columns) * cell.n_classes + code][index % columns]
                if index >= len(kept):
                    axis.set_axis_off()
                    continue
                method = list(kept)[index]
                _recovery_panel(axis, clock, true, kept[method], code, colour[method])
                axis.set_ylim(-2, top + 2)
                axis.set_yticks([0, top // 2, top] if cell.annotator else [0, 25, 50])
                if code == 0:
                    axis.set_title(shown(method))
                if index % columns == 0:
                    axis.set_ylabel(f"{shown(cell.class_names[code], 14, 1)}\nwrong (%)")
        for axis in axes[-1]:
            axis.set_xlabel(shown(cell.info.clock or "clock", 24, 1))
        grey: dict[str, Any] = {"color": INK, "alpha": 0.5}
        looks: list[dict[str, Any]] = [{"color": INK, "linestyle": "--"}, grey, {**grey, "linewidth": 6, "alpha": 0.2}]
        legend(figure, [truth, f"estimate, mean over {draws}", f"lowest to highest of {draws}"], looks)
        return picture(figure, name, *_recovery_words(cell, truth, list(kept)))


def _recovery_words(cell: Cell, truth: str, methods: Sequence[str]) -> tuple[str, str]:
    """Caption and alternative text of a figure of Q(t)."""
    title = f"{cell.name}, {cell.level_text if cell.annotator else f'{cell.shape} noise'}"
    counted = cell.annotator and cell.info.reference != "clean"
    kind = "class that the others give" if counted else "true class"
    share = f"at {100 * cell.rate:.0f} % on average"
    caption = f"{title}: share of wrong labels of each {kind} over the clock, {share}."
    alt = f"{title}: {truth} and estimated share of wrong labels over time, a column for each of {', '.join(methods)}."
    return caption, alt


def _recovery_panel(axis: Axes, clock: np.ndarray, true: np.ndarray, stack: np.ndarray, code: int, colour: str) -> None:
    """One method and one class; the stack has shape (draws, points, classes, classes)."""
    curves = wrong(stack, code)  # (draws, points)
    curves = curves[np.isfinite(curves).all(axis=1)]
    steps = thinned(len(clock))
    if len(curves) and curves.shape[1] == len(clock):
        low, high = curves.min(axis=0)[steps], curves.max(axis=0)[steps]
        axis.fill_between(clock[steps], low, high, color=colour, alpha=0.25, linewidth=0)
        axis.plot(clock[steps], curves.mean(axis=0)[steps], color=colour)
    axis.plot(clock[steps], wrong(true, code)[steps], color=INK, linestyle="--", linewidth=1.1)


def draw_shapes(name: str, cells: Sequence[Cell], headlines: Sequence[Cell]) -> Picture | None:
    """Every shape at every level, of the first data set that has it; the level of the tables drawn strong."""
    shapes = list(dict.fromkeys(cell.shape for cell in cells if cell.any_run.true_noise is not None))
    if not shapes:
        return None
    with matplotlib.rc_context(SETTINGS):
        columns = min(len(shapes), 6)
        most = max(cell.n_classes for cell in cells)
        figure, axes = grid(math.ceil(len(shapes) / columns), columns, (1.7, 1.4), entries=most)
        flat = [axis for row in axes for axis in row]
        for axis, shape in zip(flat, shapes, strict=False):
            strong = next(cell for cell in headlines if cell.shape == shape)
            for cell in (cell for cell in cells if cell.shape == shape and cell.task == strong.task):
                _shape_panel(axis, cell, is_strong=cell is strong)
            axis.set_title(shown(shape))
            axis.set_ylim(-2, 62)
        for axis in flat[len(shapes) :]:
            axis.set_axis_off()
        axes[0][0].set_ylabel("wrong (%)")
        for axis in axes[-1]:
            axis.set_xlabel("clock")
        looks = [{"color": INK, "linestyle": DASHES[code % len(DASHES)]} for code in range(most)]
        legend(figure, [f"true class {code + 1}" for code in range(most)], looks)
        caption = (
            "The noise functions: share of wrong labels of each true class over the clock. Strong lines are the "
            "level of the tables, faint lines the other levels."
        )
        return picture(figure, name, caption, f"Share of wrong labels over time for the shapes {', '.join(shapes)}.")


def _shape_panel(axis: Axes, cell: Cell, *, is_strong: bool) -> None:
    run = cell.any_run
    if run.clock is None or run.true_noise is None:
        return
    steps = thinned(len(run.clock))
    for code in range(cell.n_classes):
        look = DASHES[code % len(DASHES)]
        curve = wrong(run.true_noise, code)[steps]
        axis.plot(
            run.clock[steps],
            curve,
            linestyle=look,
            color=INK,
            alpha=1 if is_strong else 0.25,
            linewidth=1.6 if is_strong else 0.8,
        )
