"""The conclusions of a report as sentences computed from the numbers: wins, mean ranks and agreement with the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from labeltide_bench.pages.cells import Cell, methods_of
from labeltide_bench.pages.method_order import base_name, contenders
from labeltide_bench.pages.published import has_published, published
from labeltide_bench.pages.result_tables import percent


def write_verdict(cells: Sequence[Cell], headlines: Sequence[Cell]) -> list[str]:
    """Sentences: who wins on clean test labels, who finds Q, and how far this agrees with the paper."""
    methods = methods_of(cells)
    if len(methods) == 1:
        table = scores(cells, methods, "test_error")
        return [
            f"Only one method was run, {methods[0]}, so there is nothing to compare. Its mean error on "
            f"clean test labels is {_percent(_mean(table[:, 0]))} over {count(len(cells), 'cell')}."
        ]
    sentences = [_winner(cells, "test_error", "error on clean test labels"), _against_ignore(cells)]
    sentences += [_winner(cells, "absolute", "error of Q"), _agreement(headlines)]
    return [sentence for sentence in sentences if sentence]


def count(number: int, noun: str) -> str:
    """A count with its noun: 1 cell, 2 cells."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _winner(cells: Sequence[Cell], metric: str, what: str) -> str:
    wins = count_wins(cells, metric)
    if not wins.n_cells:
        return ""
    order = sorted(wins.firsts, key=lambda name: -wins.firsts[name])
    first, second = order[0], order[1]
    most, total = wins.firsts[first], count(wins.n_cells, "cell")
    if wins.firsts[second] == most:
        return f"For the {what}, {first} and {second} are each lowest in {most} of {total}."
    share = 100 if most == wins.n_cells else min(round(100 * most / wins.n_cells), 99)  # nearly all is not all
    margin = _margin(cells, metric, first, wins)
    return f"{first} has the lowest {what} in {most} of {total} ({share} %){margin}."


def _margin(cells: Sequence[Cell], metric: str, first: str, wins: Wins) -> str:
    """How far the winner lies below the rest: against the best of the others, cell by cell."""
    methods = contenders(wins.methods)
    table = scores(cells, methods, metric)
    winner = table[:, methods.index(first)]
    rest = np.delete(table, methods.index(first), axis=1)
    both = np.isfinite(winner) & np.isfinite(rest).any(axis=1)
    if not both.any():
        return ""
    best = np.nanmin(np.where(np.isfinite(rest[both]), rest[both], np.nan), axis=1)
    gap = best - winner[both]
    text = f", {_percent(_mean(winner[both]))} on average where the best of the others has {_percent(_mean(best))}"
    if len(gap) == 1:
        return text
    return f"{text} (difference in a cell: from {_points(gap.min())} to {_points(gap.max())})"


def _against_ignore(cells: Sequence[Cell]) -> str:
    """What correcting is worth: the winner against the method that trusts every label."""
    wins = count_wins(cells)
    methods = contenders(wins.methods)
    plain = next((name for name in methods if base_name(name) == "ignore"), None)
    first = max(wins.firsts, key=lambda name: wins.firsts[name])
    if plain is None or plain == first:
        return ""
    table = scores(cells, [first, plain], "test_error")
    table = table[np.isfinite(table).all(axis=1)]
    if not len(table):
        return ""
    winner_mean, ignore_mean = table.mean(axis=0)
    return f"Ignoring the noise ({plain}) has {_percent(ignore_mean)} where {first} has {_percent(winner_mean)}."


def _agreement(cells: Sequence[Cell]) -> str:
    """How many of the paper's cells lie within two of its standard deviations."""
    original: list[bool] = []
    substitute: list[bool] = []
    for cell in filter(has_published, cells):
        for method in cell.runs:
            for metric in ("test_error", "absolute"):
                printed, ours = published(cell, method, metric), cell.over_draws(method, metric)
                if printed and ours.n:
                    (substitute if cell.info.faithful is False else original).append(not printed.is_far_from(ours.mean))
    parts = [
        f"{sum(near)} of {len(near)} {where}"
        for near, where in ((original, "on the paper's own data"), (substitute, "on substitutes"))
        if near
    ]
    if not parts:
        return ""
    return f"Of the paper's numbers, {' and '.join(parts)} lie within two of its standard deviations of ours."


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else math.nan


def _percent(fraction: float) -> str:
    return f"{percent(fraction)} %" if math.isfinite(fraction) else "no number"


def _points(fraction: float) -> str:
    text = f"{100 * fraction:.1f}".replace("-0.0", "0.0").replace("-", "\N{MINUS SIGN}")
    return f"{text} points"


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
        [methods[index] for index in order],
        [float(means[index]) for index in order],
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
