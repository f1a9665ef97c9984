"""The table of costs as text: for the page, to be pasted (Markdown), and for other programs (CSV)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from labeltide_bench.pages.cells import UNIFORM, Cell, Number
from labeltide_bench.pages.cost import CellCost, find_costs
from labeltide_bench.pages.goals import Goal, write_goals
from labeltide_bench.pages.tables import MINUS

TITLE = "What the wrong labels cost"
FILES = ("cost.csv", "cost.md")
NONE = "\N{EN DASH}"
NAMES = 2  # columns that are names, not numbers
HEADS = (
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
    """All that is said of the cost of wrong labels."""

    goals: list[Goal]
    costs: list[CellCost]
    rows: list[list[str]]  # texts under HEADS

    @property
    def title(self) -> str:
        return TITLE

    @property
    def heads(self) -> tuple[str, ...]:
        return HEADS

    @property
    def note(self) -> str:
        return NOTE


def make_cost(cells: Sequence[Cell]) -> Cost | None:
    """The section's numbers and words; None where tide or its reference was not run."""
    costs = find_costs(cells)
    return Cost(write_goals(costs), costs, [_row(one) for one in costs]) if costs else None


def as_markdown(cost: Cost) -> str:
    """The section as it would be pasted into a text."""
    goals = [f"- **{goal.title}: {goal.answer.casefold()}.** {_plain(goal.words)}" for goal in cost.goals]
    rule = ["---"] * NAMES + ["--:"] * (len(HEADS) - NAMES)
    lines = [f"| {' | '.join(map(_plain, row))} |" for row in (list(HEADS), rule, *cost.rows)]
    return "\n".join([f"## {TITLE}", "", *goals, "", NOTE, "", *lines, ""])


def as_csv(cost: Cost) -> str:
    """One line a cell, in percent and points; empty where there is no number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    lines = [_line(one) for one in cost.costs]
    writer.writerow(lines[0])
    writer.writerows(line.values() for line in lines)
    return text.getvalue()


def _row(one: CellCost) -> list[str]:
    variant = "" if one.cell.variant == UNIFORM else f", {one.cell.variant}"
    return [
        one.cell.name,
        f"{one.cell.shape}{variant}",
        f"{100 * one.cell.rate:.0f}" if math.isfinite(one.cell.rate) else NONE,
        _text(one.tide),
        _text(one.clean),
        _text(one.cost, sign=True),
        one.best or NONE,
        _text(one.best_error),
        _text(one.behind, sign=True),
        _text(one.frobenius),
        f"{one.ratio:.2f}" if math.isfinite(one.ratio) else NONE,
    ]


def _text(found: Number, *, sign: bool = False) -> str:
    if not found.n:
        return NONE
    mean = f"{100 * found.mean:{'+' if sign else ''}.2f}"
    mean = "0.00" if mean in ("+0.00", "-0.00") else mean.replace("-", MINUS)
    failed = f" ({found.failed} failed)" if found.failed else ""
    return mean + (f" ± {100 * found.spread:.2f}" if math.isfinite(found.spread) else "") + failed


def _plain(text: str) -> str:
    """Text that stays within one cell of a Markdown table and is not read as markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _line(one: CellCost) -> dict[str, str]:
    line = {
        "dataset": one.cell.name,
        "shape": one.cell.shape,
        "variant": one.cell.variant,
        "wrong_labels": _percent(one.cell.rate),
        "draws": str(one.cost.n),
    }
    numbers = {"tide": one.tide, "clean": one.clean, "tide_less_clean": one.cost, "best": one.best_error}
    numbers |= {"tide_less_best": one.behind, "frobenius": one.frobenius, "best_frobenius": one.best_frobenius}
    for name, found in numbers.items():
        line |= {name: _percent(found.mean), f"{name}_spread": _percent(found.spread)}
    ratio = f"{one.ratio:.4f}" if math.isfinite(one.ratio) else ""
    return line | {"best_method": one.best, "frobenius_ratio": ratio}


def _percent(value: float) -> str:
    return f"{100 * value:.3f}" if math.isfinite(value) else ""
