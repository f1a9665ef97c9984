"""The table of the cost of label noise, for the page, as Markdown and as CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from labeltide._files import csv_text
from labeltide_bench.pages.cells import UNIFORM, Cell, DrawSummary
from labeltide_bench.pages.cost import CellCost, find_costs
from labeltide_bench.pages.goals import Goal, write_goals
from labeltide_bench.pages.result_tables import MINUS

TITLE = "What the wrong labels cost"
COST_FILES = ("cost.csv", "cost.md")
NONE = "\N{EN DASH}"
NAMES = 2  # columns that are names, not numbers
COST_HEADS = (
    "Data set",
    "Noise",
    "Wrong (%)",
    "tide",
    "clean labels",
    "tide less clean",
    "best of the paper's",
    "its error",
    "tide less best",
    "Q error, tide",
    "Q error, ratio to best",
)
NOTE = (
    "Test errors in percent and differences in points, mean ± standard deviation over draws; differences are taken "
    "draw by draw. The best of the paper's methods is the one with the lowest mean test error in the cell. Q errors "
    "are mean Frobenius norms times 100; the ratio is to that of the same best method."
)


@dataclass(frozen=True, eq=False)
class Cost:
    """The section of the page about the cost of label noise."""

    goals: list[Goal]
    costs: list[CellCost]
    rows: list[list[str]]  # texts under COST_HEADS

    @property
    def title(self) -> str:
        return TITLE

    @property
    def heads(self) -> tuple[str, ...]:
        return COST_HEADS

    @property
    def note(self) -> str:
        return NOTE


def make_cost(cells: Sequence[Cell]) -> Cost | None:
    """The section's numbers and words; None where tide or its reference was not run."""
    costs = find_costs(cells)
    return Cost(write_goals(costs), costs, [_row(cell_cost) for cell_cost in costs]) if costs else None


def as_markdown(cost: Cost) -> str:
    """The section as Markdown."""
    goals = [f"- **{goal.title}: {goal.answer.casefold()}.** {_plain(goal.words)}" for goal in cost.goals]
    rule = ["---"] * NAMES + ["--:"] * (len(COST_HEADS) - NAMES)
    lines = [f"| {' | '.join(map(_plain, row))} |" for row in (list(COST_HEADS), rule, *cost.rows)]
    return "\n".join([f"## {TITLE}", "", *goals, "", NOTE, "", *lines, ""])


def as_csv(cost: Cost) -> str:
    """One line a cell, in percent and points; empty where there is no number."""
    lines = [_line(cell_cost) for cell_cost in cost.costs]
    return csv_text([lines[0], *(line.values() for line in lines)])


def _row(cost: CellCost) -> list[str]:
    variant = "" if cost.cell.variant == UNIFORM else f", {cost.cell.variant}"
    return [
        cost.cell.name,
        f"{cost.cell.shape}{variant}",
        f"{100 * cost.cell.rate:.0f}" if math.isfinite(cost.cell.rate) else NONE,
        _text(cost.tide),
        _text(cost.clean),
        _text(cost.cost, sign=True),
        cost.best or NONE,
        _text(cost.best_error),
        _text(cost.behind, sign=True),
        _text(cost.frobenius),
        f"{cost.ratio:.2f}" if math.isfinite(cost.ratio) else NONE,
    ]


def _text(summary: DrawSummary, *, sign: bool = False) -> str:
    if not summary.n:
        return NONE
    mean = f"{100 * summary.mean:{'+' if sign else ''}.2f}"
    mean = "0.00" if mean in ("+0.00", "-0.00") else mean.replace("-", MINUS)
    failed = f" ({summary.failed} failed)" if summary.failed else ""
    return mean + (f" ± {100 * summary.spread:.2f}" if math.isfinite(summary.spread) else "") + failed


def _plain(text: str) -> str:
    """Text that stays within one cell of a Markdown table and is not read as markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _line(cost: CellCost) -> dict[str, str]:
    line = {
        "dataset": cost.cell.name,
        "shape": cost.cell.shape,
        "variant": cost.cell.variant,
        "wrong_labels": _percent(cost.cell.rate),
        "draws": str(cost.cost.n),
    }
    numbers = {"tide": cost.tide, "clean": cost.clean, "tide_less_clean": cost.cost, "best": cost.best_error}
    numbers |= {"tide_less_best": cost.behind, "frobenius": cost.frobenius, "best_frobenius": cost.best_frobenius}
    for name, summary in numbers.items():
        line |= {name: _percent(summary.mean), f"{name}_spread": _percent(summary.spread)}
    ratio = f"{cost.ratio:.4f}" if math.isfinite(cost.ratio) else ""
    return line | {"best_method": cost.best, "frobenius_ratio": ratio}


def _percent(value: float) -> str:
    return f"{100 * value:.3f}" if math.isfinite(value) else ""
