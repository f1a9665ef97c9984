"""Cost of label noise: test error of `tide` minus that of the same networks trained on clean labels, by cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labeltide_bench.pages.cells import Cell, DrawSummary, summarise_draws
from labeltide_bench.pages.method_order import GROUPS, OTHERS, REFERENCE, base_name

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
