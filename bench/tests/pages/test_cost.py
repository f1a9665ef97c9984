import math

import numpy as np
import pytest

from labeltide_bench.pages.cells import make_cells
from labeltide_bench.pages.cost import PAPERS, find_costs, paired
from labeltide_bench.pages.method_order import base_name, contenders
from labeltide_bench.pages.results import read_results


@pytest.fixture
def cells(write):
    return lambda records: make_cells(read_results(write(records)).runs)


def test_the_papers_methods_are_six():
    assert PAPERS == ("ignore", "anchor", "volmin", "plugin", "discontinuous", "continuous")


def test_a_reference_on_clean_labels_never_wins():
    assert base_name("clean labels") == base_name("Clean") == "clean"
    assert contenders(["ignore", "tide", "clean labels"]) == ["ignore", "tide"]


def test_costs_equal_a_slow_computation_draw_by_draw(cells, study):
    records = study(["ignore", "continuous", "tide", "clean labels"], draws=5)
    errors = {(r["method"], r["draw"]): r["metrics"]["test_error"] for r in records}
    (cost,) = find_costs(cells(records))
    gaps = [errors["tide", draw] - errors["clean labels", draw] for draw in range(5)]
    assert cost.cost.mean == pytest.approx(np.mean(gaps))
    assert cost.cost.spread == pytest.approx(np.std(gaps, ddof=1))
    means = {name: np.mean([errors[name, draw] for draw in range(5)]) for name in ("ignore", "continuous")}
    assert cost.best == min(means, key=means.get)
    assert cost.behind.mean == pytest.approx(np.mean([errors["tide", d] - errors[cost.best, d] for d in range(5)]))
    # The made-up records have a distance of Q of half their error.
    assert cost.ratio == pytest.approx(cost.tide.mean / means[cost.best])


def test_differences_are_taken_within_the_draws_that_both_have(cells, record):
    made = [record(method="tide", draw=draw, error=0.1 * draw) for draw in (1, 2, 3)]
    made += [record(method="clean", draw=draw, error=0.05) for draw in (2, 3, 4)]
    made[-2]["metrics"] = made[-2]["metrics"] | {"test_error": None}
    (cell,) = cells(made)
    found = paired(cell, "tide", "clean")
    assert (found.mean, found.n, found.failed) == (pytest.approx(0.15), 1, 1)


def test_only_cells_with_tide_and_a_reference_have_a_cost(cells, record):
    both = [record(method=method, dataset="both") for method in ("tide", "clean labels")]
    alone = [record(method="tide", dataset="alone"), record(method="tide (single)", dataset="alone")]
    (cost,) = find_costs(cells(both + alone))
    assert cost.cell.name == "both"
    assert (cost.best, cost.best_error.n) == ("", 0)
    assert math.isnan(cost.ratio)


def test_a_method_told_the_truth_is_not_among_the_papers(cells, record):
    errors = {"known": 0.01, "plugin": 0.2, "tide": 0.1, "clean labels": 0.05}
    (cost,) = find_costs(cells([record(method=m, error=e) for m, e in errors.items()]))
    assert cost.best == "plugin"


def test_without_a_distance_of_the_best_method_there_is_no_ratio(cells, record):
    exact = record(method="ignore")
    exact["metrics"] = exact["metrics"] | {"frobenius": 0.0}
    (cost,) = find_costs(cells([exact, record(method="tide"), record(method="clean labels")]))
    assert math.isnan(cost.ratio)
