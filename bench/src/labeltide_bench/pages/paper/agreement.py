"""Agreement with the paper, one number a figure or table: mean absolute differences, and means within its bands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from labeltide._files import csv_text
from labeltide_bench.pages.cells import Cell, methods_of
from labeltide_bench.pages.method_order import base_name
from labeltide_bench.pages.paper.sources import (
    SIX,
    UNCORRECTED,
    FigureValue,
    MatchedFigure,
    Point,
    interval,
    shown_name,
)
from labeltide_bench.pages.paper.tables import PlainTable
from labeltide_bench.pages.published import published

MEASURES = {"accuracy": "accuracy", "mae": "MAE of Q", "test_error": "test error", "frobenius": "Q, Frobenius"}
ORIGIN = {True: "the paper's", False: "substitute", None: ""}
CODE = "paper's code"  # in the label of a method that has its settings
MINUS = "\N{MINUS SIGN}"


class Agreement(NamedTuple):
    """One figure or table: how far our means lie from the paper's."""

    name: str
    data: str
    origin: str  # whether the data are the paper's own
    measure: str
    distances: dict[str, float]  # method → mean absolute difference in points
    mean: float  # over all points of all methods
    signed: float  # mean of ours minus the paper's
    points: int
    in_band: int
    overlaps: int


def agreement_of(name: str, data: str, origin: str, measure: str, curves: dict[str, list[Point]]) -> Agreement:
    """Compare the points that have both numbers, by method."""
    both = {method: [point for point in points if math.isfinite(point.difference)] for method, points in curves.items()}
    every = [point for points in both.values() for point in points]
    return Agreement(
        name,
        data,
        origin,
        measure,
        {method: _mean(abs(point.difference) for point in points) for method, points in both.items() if points},
        _mean(abs(point.difference) for point in every),
        _mean(point.difference for point in every),
        len(every),
        sum(point.is_in_band for point in every),
        sum(point.overlaps for point in every),
    )


def figure_agreement(matched: MatchedFigure) -> Agreement:
    """Agreement of one figure; the Q of a method that estimates none is left out."""
    figure = matched.figure
    curves = {method: matched.points(method) for method in matched.estimating}
    return agreement_of(figure.number, figure.dataset, _origin(matched.cells), MEASURES[figure.measure], curves)


def table_agreements(name: str, cells: Sequence[Cell]) -> list[Agreement]:
    """Agreement of a printed table, by metric, on the paper's own data and on substitutes.

    Methods with the settings of the paper's code have rows of their own.
    """
    groups = [[cell for cell in cells if (cell.info.faithful is False) is kind] for kind in (False, True)]
    rows = [
        _table(name, group, metric, is_code=is_code)
        for is_code in (False, True)
        for metric in ("test_error", "frobenius")
        for group in groups
    ]
    return [row for row in rows if row.points]


def _table(name: str, cells: Sequence[Cell], metric: str, *, is_code: bool) -> Agreement:
    """Bands are one printed standard deviation to each side."""
    labels = [label for label in methods_of(cells) if (CODE in label if is_code else label in SIX)]
    curves = {base_name(label): _printed_points(cells, label, metric) for label in labels}
    data = ", ".join(dict.fromkeys(cell.name for cell in cells))
    return agreement_of(f"{name}, {CODE}" if is_code else name, data, _origin(cells), MEASURES[metric], curves)


def _printed_points(cells: Sequence[Cell], method: str, metric: str) -> list[Point]:
    points = []
    for cell in cells:
        printed, summary = published(cell, method, metric), cell.over_draws(method, metric)
        if printed and summary.n:
            mean, spread = 100 * printed.mean, 100 * printed.spread
            value = FigureValue(
                "", cell.name, cell.n_classes, cell.shape, method, metric, 100 * cell.rate, *_band(mean, spread)
            )
            points.append(Point(100 * cell.rate, interval(summary, is_accuracy=False), value))
    return points


def _band(mean: float, spread: float) -> tuple[float, float, float]:
    return mean, mean - spread, mean + spread


def agreement_table(rows: Sequence[Agreement]) -> PlainTable:
    """All figures and tables in one table."""
    heads = ["Figure", "Measure and data", "All", "In band", "Overlap", "Bias", *SIX]
    body = [
        [
            row.name,
            f"{row.measure}: {row.data}{'*' if row.origin == ORIGIN[False] else ''}",
            points_text(row.mean),
            share_text(row.in_band, row.points),
            share_text(row.overlaps, row.points),
            signed_text(row.signed),
            *(points_text(_distance(row, method)) for method in SIX),
        ]
        for row in rows
    ]
    caption = (
        "Mean absolute difference between our mean and the paper's, in percentage points, over all cells of a figure "
        "(All) and for each method. Bias: mean of ours minus the paper's. In band: how many of our means lie within "
        "the paper's band. Overlap: how many of our 95 % intervals meet it. For tables the band is one printed "
        "standard deviation to each side; in tables 2 and 3 themselves \N{DOUBLE DAGGER} marks more than two. MAE of "
        "Q: mean absolute error of an entry. * Substitute data, not the paper's recordings."
    )
    return PlainTable("Agreement with the paper", caption, heads, body, words=1)


def _distance(row: Agreement, method: str) -> float:
    """Of a method, under either of its names."""
    names = (method, UNCORRECTED) if method == "ignore" else (method,)
    return next((row.distances[name] for name in names if name in row.distances), math.nan)


def difference_table(matched: MatchedFigure) -> PlainTable:
    """Ours minus the paper's for each shape and method: mean over levels, mean absolute difference, in band."""
    methods = [name for name in matched.estimating if any(math.isfinite(p.difference) for p in matched.points(name))]
    shapes = dict.fromkeys(shape for shape, _ in matched.curves)
    rows = [[shape, *(_difference(matched.points(method, shape)) for method in methods)] for shape in shapes]
    rows.append(["all", *(_difference(matched.points(method)) for method in methods)])
    caption = (
        "Ours minus the paper's in points, mean over levels; in brackets the mean absolute difference and how many of "
        "our means lie in the paper's band."
    )
    return PlainTable(f"{matched.figure.number}: difference", caption, ["Noise", *map(shown_name, methods)], rows)


def _difference(points: Sequence[Point]) -> str:
    kept = [point for point in points if math.isfinite(point.difference)]
    if not kept:
        return "\N{EN DASH}"
    mean, size = _mean(p.difference for p in kept), _mean(abs(p.difference) for p in kept)
    return f"{signed_text(mean)} ({points_text(size)}; {share_text(sum(p.is_in_band for p in kept), len(kept))})"


def as_csv(rows: Sequence[Agreement]) -> str:
    """The table with one line for each figure, numbers unrounded enough to compute with."""
    names = list(dict.fromkeys([*SIX, *(method for row in rows for method in row.distances)]))
    titles = ["figure", "data", "data_are", "measure", "mean_absolute_difference", "mean_difference"]
    titles += [f"mean_absolute_difference of {name}" for name in names]
    lines: list[list[Any]] = [[*titles, "cells_and_methods", "in_band", "overlapping"]]
    for row in rows:
        distances = [_number(row.distances.get(name, math.nan)) for name in names]
        head = [row.name, row.data, row.origin, row.measure, _number(row.mean), _number(row.signed)]
        lines.append([*head, *distances, row.points, row.in_band, row.overlaps])
    return csv_text(lines)


def points_text(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "\N{EN DASH}"


def signed_text(value: float) -> str:
    if not math.isfinite(value):
        return "\N{EN DASH}"
    text = f"{value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", MINUS)


def share_text(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "\N{EN DASH}"


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else ""


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return float(np.mean(kept)) if kept else math.nan


def _origin(cells: Sequence[Cell]) -> str:
    kinds = {ORIGIN.get(cell.info.faithful, "") for cell in cells}
    return " and ".join(sorted(kinds - {""}, reverse=True))
