"""Cost of label noise: `tide` against the same networks on clean labels by cell, acceptance criteria, and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labeltide._files import csv_text
from labeltide_bench.pages.cells import UNIFORM, Cell, DrawSummary, summarise_draws
from labeltide_bench.pages.method_order import GROUPS, OTHERS, REFERENCE, base_name
from labeltide_bench.pages.published import PAPER_RATE, RATE_TOLERANCE
from labeltide_bench.pages.result_tables import MINUS, percent
from labeltide_bench.pages.verdict import count

TIDE = "tide"
CLEAN_LABELS = "clean"
PAPERS = tuple(name for title, names in GROUPS.items() if title not in (OTHERS, REFERENCE) for name in names)


@dataclass(frozen=True, eq=False)
class CellCost:
    """One cell in which both tide and the reference ran; differences are paired by draw."""

    cell: Cell
    tide: DrawSummary  # test errors
    clean: DrawSummary
    cost: DrawSummary  # tide less the reference
    best: str  # the paper's method with the lowest mean error here; empty where none ran
    best_error: DrawSummary
    behind: DrawSummary  # tide less that method
    frobenius: DrawSummary  # of tide's Q
    best_frobenius: DrawSummary

    @property
    def ratio(self) -> float:
        """Tide's distance of Q over that of the best method; NaN where the latter has none."""
        other = self.best_frobenius.mean
        return self.frobenius.mean / other if other > 0 else math.nan


def find_costs(cells: Sequence[Cell]) -> list[CellCost]:
    """Every cell that has a method named tide and a reference trained on clean labels."""
    return [_cost(cell, clean) for cell in cells if TIDE in cell.runs and (clean := method_in(cell, CLEAN_LABELS))]


def method_in(cell: Cell, name: str) -> str:
    """The label under which a method ran in a cell, its own name first; empty where it did not run."""
    return name if name in cell.runs else next((label for label in cell.runs if base_name(label) == name), "")


def paired(cell: Cell, method: str, other: str, metric: str = "test_error") -> DrawSummary:
    """Mean and spread over draws of one method's number less another's in the same draw."""
    other_errors = {run.draw: run.metrics.get(metric, np.nan) for run in cell.runs.get(other, [])}
    shared_runs = [run for run in cell.runs.get(method, []) if run.draw in other_errors]
    return summarise_draws(run.metrics.get(metric, np.nan) - other_errors[run.draw] for run in shared_runs)


def _cost(cell: Cell, clean: str) -> CellCost:
    best = _best(cell)
    return CellCost(
        cell,
        tide=cell.over_draws(TIDE, "test_error"),
        clean=cell.over_draws(clean, "test_error"),
        cost=paired(cell, TIDE, clean),
        best=best,
        best_error=cell.over_draws(best, "test_error"),
        behind=paired(cell, TIDE, best),
        frobenius=cell.over_draws(TIDE, "frobenius"),
        best_frobenius=cell.over_draws(best, "frobenius"),
    )


def _best(cell: Cell) -> str:
    """The label with the lowest mean test error among the paper's methods that gave a number."""
    means = {label: cell.over_draws(label, "test_error").mean for label in cell.runs if base_name(label) in PAPERS}
    finite = {label: mean for label, mean in means.items() if math.isfinite(mean)}
    return min(finite, key=lambda label: finite[label]) if finite else ""


HIGH = (0.36, 0.43)  # shares of wrong labels that are reported as 40 % and have no bound
SYNTHETIC = "synthetic"  # the paper's data whose labels do not persist
JUMP = "jump"
COST = 0.010  # most above clean labels
BEHIND = 0.003  # most above the best of the paper's methods
FEWER = 2 / 3  # of that method's error, on average
NEARER = 1 / 2  # of its distance of Q, on average
CLOSE = 0.005  # most above ignore without noise, and above continuous where labels do not persist
SLACK = 1e-9  # so that exactly the bound is met

Worse = dict[str, float]  # cell in words → difference


class Goal(NamedTuple):
    """One criterion."""

    title: str
    met: bool | None  # None: no bound, for information
    words: str

    @property
    def answer(self) -> str:
        return {True: "Met", False: "Missed", None: "For information"}[self.met]


def write_goals(costs: Sequence[CellCost]) -> list[Goal]:
    """All criteria for which the study has cells, with the names of the cells that miss them."""
    usual = [cost for cost in costs if _at(cost.cell, PAPER_RATE) and _is_usual(cost.cell)]
    high = [cost for cost in costs if HIGH[0] <= cost.cell.rate <= HIGH[1] and _is_usual(cost.cell)]
    cells = [cost.cell for cost in costs]
    silent = [cell for cell in cells if cell.rate < 0.005]
    fresh = [cell for cell in cells if _is_synthetic(cell) and cell.rate >= 0.005]
    strange = [cell for cell in cells if _is_strange(cell)]
    return [
        *_against_clean(usual),
        *_against_papers([cost for cost in usual if cost.best]),
        *_bounded("Nothing lost without wrong labels", "0 % wrong labels", silent, "ignore", CLOSE),
        *_high(high),
        *_bounded("Labels that do not persist", "synthetic data", fresh, "continuous", CLOSE),
        *_distance(fresh, "continuous"),
        *_bounded(
            "Noise that tide does not assume", "bursts, mistakes near boundaries or a jump", strange, "ignore", 0
        ),
        *_distance(strange, "continuous"),
    ]


def _is_strange(cell: Cell) -> bool:
    return cell.shape == JUMP or cell.variant.startswith(("bursts", "near"))


def _is_synthetic(cell: Cell) -> bool:
    return cell.task[0].casefold().startswith(SYNTHETIC)


def _is_usual(cell: Cell) -> bool:
    return cell.variant == UNIFORM and not _is_strange(cell) and not _is_synthetic(cell)


def _at(cell: Cell, level: float) -> bool:
    return abs(cell.rate - level) < RATE_TOLERANCE


def _against_clean(costs: Sequence[CellCost]) -> Iterator[Goal]:
    if not costs:
        return
    above = {name_cell(cost.cell): cost.cost.mean for cost in costs}
    words = (
        f"At 30 % wrong labels, tide's error lies at most {_bound(COST)} above that of the same networks trained on "
        f"clean labels in {_share(above, COST)}; the mean difference is {_average(above)}."
    )
    yield Goal("Close to clean labels", _holds(above, COST), words + _named("More in", above, COST))


def _against_papers(costs: Sequence[CellCost]) -> Iterator[Goal]:
    if not costs:
        return
    ran = [name for name in PAPERS if any(method_in(cost.cell, name) for cost in costs)]
    behind = {name_cell(cost.cell): cost.behind.mean for cost in costs}
    words = (
        f"At 30 % wrong labels, tide is at most {_bound(BEHIND)} worse than the best of the paper's methods in each "
        f"cell ({', '.join(ran)}) in {_share(behind, BEHIND)}."
    )
    yield Goal("Never behind the paper's methods", _holds(behind, BEHIND), words + _named("Worse in", behind, BEHIND))
    yield from _lower("A third fewer errors", "The mean error of tide", costs, FEWER, _errors)
    yield from _lower(
        "Half the distance of Q", "The mean Frobenius error of tide's Q (x 100)", costs, NEARER, _distances
    )


def _errors(cost: CellCost) -> tuple[float, float]:
    return cost.tide.mean, cost.best_error.mean


def _distances(cost: CellCost) -> tuple[float, float]:
    return cost.frobenius.mean, cost.best_frobenius.mean


def _lower(
    title: str, what: str, costs: Sequence[CellCost], bound: float, pair: Callable[[CellCost], tuple[float, float]]
) -> Iterator[Goal]:
    """Ratio of means over cells to the best other method, with a bound; the mean of ratios is given too."""
    pairs = np.array([pair(cost) for cost in costs])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    if not len(pairs) or not pairs[:, 1].mean() > 0:
        return
    tide_mean, best_mean = pairs.mean(axis=0)
    kept = pairs[pairs[:, 1] > 0]
    each = float((kept[:, 0] / kept[:, 1]).mean())
    words = (
        f"{what} is {percent(tide_mean)} over {count(len(pairs), 'cell')} at 30 % wrong labels, that of the best of "
        f"the paper's methods in each cell {percent(best_mean)}: a ratio of {tide_mean / best_mean:.2f}, where at most "
        f"{bound:.2f} was asked for. The mean of the cells' own ratios is {each:.2f}."
    )
    yield Goal(title, bool(tide_mean / best_mean <= bound + SLACK), words)


def _bounded(title: str, where: str, cells: Sequence[Cell], other: str, bound: float) -> Iterator[Goal]:
    """Whether `tide` is at most `bound` worse than another method in every cell in which that ran."""
    labels = [(cell, label) for cell in cells if (label := method_in(cell, other))]
    if not labels:
        return
    above = {name_cell(cell): paired(cell, TIDE, label).mean for cell, label in labels}
    rule = f"at most {_bound(bound)} worse than" if bound else "not worse than"
    words = f"With {where}, tide is {rule} {other} in {_share(above, bound)}; the mean difference is {_average(above)}."
    yield Goal(title, _holds(above, bound), words + _named("Worse in", above, bound))


def _high(costs: Sequence[CellCost]) -> Iterator[Goal]:
    above = {name_cell(cost.cell): cost.cost.mean for cost in costs if math.isfinite(cost.cost.mean)}
    if not above:
        return
    most = max(above, key=lambda name: above[name])
    words = (
        f"At 40 % wrong labels, the mean difference between tide and clean labels is {_average(above)} over "
        f"{count(len(above), 'cell')}, the largest in {most} ({_difference(above[most])})."
    )
    yield Goal("More noise", None, words)


def _distance(cells: Sequence[Cell], other: str) -> Iterator[Goal]:
    """Distance of Q(t) for `tide` and another method, without a bound."""
    labels = [(cell, label) for cell in cells if (label := method_in(cell, other))]
    pairs = np.array(
        [[cell.over_draws(name, "frobenius").mean for name in (TIDE, label)] for cell, label in labels]
    ).reshape(-1, 2)
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    if not len(pairs):
        return
    tide_mean, other_mean = pairs.mean(axis=0)
    nearer = int((pairs[:, 0] <= pairs[:, 1]).sum())
    words = (
        f"In these cells the mean Frobenius error of Q (x 100) is {percent(tide_mean)} for tide and "
        f"{percent(other_mean)} for {other}; tide's is the lower in {nearer} of {count(len(pairs), 'cell')}."
    )
    yield Goal("Q there", None, words)


def name_cell(cell: Cell) -> str:
    """A cell in words: data set, shape, and what is not usual."""
    more = [] if cell.variant == UNIFORM else [cell.variant]
    more += [] if _at(cell, PAPER_RATE) else [f"{100 * cell.rate:.0f} %"]
    return f"{cell.name}: {', '.join([cell.shape, *more])}"


def _holds(above: Worse, bound: float) -> bool:
    return not _misses(above, bound)


def _misses(above: Worse, bound: float) -> Worse:
    """Cells above the bound, and those without a number, the worst first."""
    missing = {name: value for name, value in above.items() if not value <= bound + SLACK}
    return dict(sorted(missing.items(), key=lambda item: -item[1] if math.isfinite(item[1]) else -math.inf))


def _share(above: Worse, bound: float) -> str:
    return f"{len(above) - len(_misses(above, bound))} of {count(len(above), 'cell')}"


def _named(head: str, above: Worse, bound: float) -> str:
    misses = _misses(above, bound)
    if not misses:
        return ""
    return f" {head}: " + "; ".join(f"{name} ({_difference(value)})" for name, value in misses.items()) + "."


def _average(above: Worse) -> str:
    finite = [value for value in above.values() if math.isfinite(value)]
    return f"{_difference(float(np.mean(finite)))} points" if finite else "no number"


def _difference(value: float) -> str:
    """Points with a sign; two decimals, so that a miss by little does not read as the bound."""
    if not math.isfinite(value):
        return "no number"
    text = f"{100 * value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text.replace("-", "\N{MINUS SIGN}")


def _bound(value: float) -> str:
    return f"{100 * value:.1f} points"


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
