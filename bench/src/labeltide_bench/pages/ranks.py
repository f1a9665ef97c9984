"""Comparison of methods over cells: pairwise wins, mean ranks, the tests of Friedman (1937) and Nemenyi (1963)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from labeltide_bench.pages.cells import Cell, methods_of
from labeltide_bench.pages.method_order import contenders

SIGNIFICANCE = 0.05


class Wins(NamedTuple):
    """Share of the cells in which the method of the row has the lower mean; a tie is half a win."""

    methods: list[str]
    shares: np.ndarray  # (methods, methods); NaN on the diagonal and where two never met
    cells: np.ndarray  # (methods, methods): cells in which both ran
    firsts: dict[str, int]  # cells in which a method had the lowest mean of all; ties count for each
    n_cells: int


class Ranks(NamedTuple):
    """Mean ranks over the cells in which all these methods ran."""

    methods: list[str]  # best first
    means: list[float]
    n_cells: int
    difference: float  # Nemenyi's critical difference at the 5 % level
    p_value: float  # Friedman's test; NaN below three methods


def scores(cells: Sequence[Cell], methods: Sequence[str], metric: str) -> np.ndarray:
    """Means over draws, shape (cells, methods): NaN where a method did not run, infinite where it failed."""
    table = np.full((len(cells), len(methods)), np.nan)
    for row, cell in enumerate(cells):
        for column, method in enumerate(methods):
            summary = cell.over_draws(method, metric)
            if summary.n or summary.failed:
                table[row, column] = summary.mean if summary.n else np.inf
    return table


def count_wins(cells: Sequence[Cell], metric: str = "test_error") -> Wins:
    """Compare every two methods in every cell in which both ran."""
    methods = methods_of(cells)
    table = scores(cells, methods, metric)
    left, right = table[:, :, None], table[:, None, :]
    met = ~(np.isnan(left) | np.isnan(right))  # (cells, methods, methods)
    won = np.where(met, np.where(left == right, 0.5, left < right), 0).sum(axis=0)
    count = met.sum(axis=0)
    shares = np.divide(won, count, out=np.full(won.shape, np.nan), where=count > 0)
    np.fill_diagonal(shares, np.nan)
    fair = contenders(methods)
    return Wins(methods, shares, count, *_firsts(table[:, [methods.index(name) for name in fair]], fair))


def _firsts(table: np.ndarray, methods: Sequence[str]) -> tuple[dict[str, int], int]:
    """How often each method has the lowest mean, over the cells in which at least two ran."""
    table = table[(~np.isnan(table)).sum(axis=1) > 1]
    if not len(table):
        return dict.fromkeys(methods, 0), 0
    lowest = np.nanmin(table, axis=1, keepdims=True)
    counts = (table == lowest).sum(axis=0)
    return {name: int(count) for name, count in zip(methods, counts, strict=True)}, len(table)


def mean_ranks(cells: Sequence[Cell], metric: str = "test_error") -> Ranks | None:
    """Rank the methods that ran in at least half of the cells; None with fewer than two methods or cells."""
    methods = contenders(methods_of(cells))
    table = scores(cells, methods, metric)
    often = (~np.isnan(table)).mean(axis=0) >= 0.5
    methods = [name for name, keep in zip(methods, often, strict=True) if keep]
    table = table[:, often]
    table = table[~np.isnan(table).any(axis=1)]
    n_cells, n_methods = table.shape
    if n_cells < 2 or n_methods < 2:
        return None
    means = np.array([rankdata(row) for row in table]).mean(axis=0)
    order = np.argsort(means, kind="stable")
    return Ranks(
        [methods[place] for place in order],
        [float(means[place]) for place in order],
        n_cells,
        critical_difference(n_methods, n_cells),
        _friedman(table),
    )


def critical_difference(n_methods: int, n_cells: int, level: float = SIGNIFICANCE) -> float:
    r"""Critical difference of Nemenyi (1963; Demšar 2006): :math:`q_\alpha \sqrt{k (k + 1) / (6 N)}`.

    Here k methods are compared in N cells, and q is the quantile of the studentised range over √2.
    """
    q = studentized_range.ppf(1 - level, n_methods, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_cells)))


def _friedman(table: np.ndarray) -> float:
    if table.shape[1] < 3:
        return math.nan
    finite = np.where(np.isinf(table), np.finfo(float).max, table)
    return float(friedmanchisquare(*finite.T).pvalue)
