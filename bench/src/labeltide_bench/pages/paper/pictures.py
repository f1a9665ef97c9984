"""Figures 1 and 3 of the page: bars on moving, and the noise of real annotators in place of stress detection."""

from __future__ import annotations

from collections.abc import Sequence

from labeltide_bench.pages.cells import Cell
from labeltide_bench.pages.paper.bars import Bar, draw_bars
from labeltide_bench.pages.paper.match import interval
from labeltide_bench.pages.paper.panels import DrawnPanel, draw_estimates, key_of
from labeltide_bench.pages.paper.values import SIX
from labeltide_bench.pages.published import published

IN_STRESS = ("ignore", "volmin", "discontinuous", "continuous", "tide")


def draw_figure_one(cell: Cell) -> list[str]:
    """Error of Q and accuracy of static and temporal methods in a cell, with the printed numbers."""
    errors = [bar for method in (*SIX[1:], "tide") for bar in _bars(cell, method, "frobenius")]
    accuracies = [bar for method in (*SIX, "tide") for bar in _bars(cell, method, "test_error")]
    drawn = [draw_bars(f"{cell.shape} noise: approximation error of Q (%)", errors)] if errors else []
    return drawn + ([draw_bars(f"{cell.shape} noise: accuracy (%)", accuracies, 100)] if accuracies else [])


def _bars(cell: Cell, method: str, metric: str) -> list[Bar]:
    """The bar of a method, or none where it has no number."""
    summary, printed, is_accuracy = (
        cell.over_draws(method, metric),
        published(cell, method, metric),
        metric != "frobenius",
    )
    if not summary.n:
        return []
    ours = interval(summary, is_accuracy=is_accuracy)
    if printed is None:
        return [Bar(key_of(method), method, ours.mean, ours.lower, ours.upper)]
    paper = 100 * (1 - printed.mean if is_accuracy else printed.mean)
    return [Bar(key_of(method), method, ours.mean, ours.lower, ours.upper, paper, 100 * printed.spread)]


def draw_people_curves(cells: Sequence[Cell]) -> list[DrawnPanel]:
    """Counted and estimated noise of the annotator whose noise changes most, for each data set."""
    panels = []
    kept = [cell for cell in cells if cell.true_noise is not None and cell.any_run.clock is not None]
    for name in dict.fromkeys(cell.name for cell in kept):
        most = max((cell for cell in kept if cell.name == name), key=lambda cell: cell.any_run.observed_change)
        panels += draw_estimates([most], IN_STRESS, range(most.n_classes))
    return panels
