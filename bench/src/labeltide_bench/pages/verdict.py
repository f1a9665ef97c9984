"""The conclusions of a report, as sentences computed from the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from labeltide_bench.pages.cells import Cell, methods_of
from labeltide_bench.pages.method_order import base_name, contenders
from labeltide_bench.pages.published import has_published, published
from labeltide_bench.pages.ranks import Wins, count_wins, scores
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
