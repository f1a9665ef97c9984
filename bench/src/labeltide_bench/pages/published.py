"""The published numbers of the paper, matched to the cells of a study."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from labeltide_bench.pages.cells import UNIFORM, Cell
from labeltide_bench.pages.method_order import base_name

PAPER_RATE, RATE_TOLERANCE = 0.30, 0.05  # of wrong labels in the paper's tables, and the range around it
RELATIVE_TO = 0.30  # tables 2 and 3 print the mean absolute error of an entry of Q divided by this rate
FAR = 2  # of the paper's standard deviations


class PublishedValue(NamedTuple):
    """One printed number, as a fraction."""

    mean: float
    spread: float

    def is_far_from(self, value: float) -> bool:
        return abs(value - self.mean) > FAR * self.spread + 1e-9  # exactly two is not far


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files("labeltide_bench.pages").joinpath("published.toml").read_text(encoding="utf-8"))


def source() -> str:
    """Where the numbers come from."""
    return str(_tables()["source"])


def printed(shape: str) -> dict[str, Any]:
    """The printed table of a noise shape; empty where there is none."""
    table = _tables().get(shape.casefold())
    return table if isinstance(table, dict) and "constants" in table else {}


def stress() -> dict[str, dict[str, Any]]:
    """Table 4, stress detection: method → words, and percentages with their standard deviations by metric."""
    return {name: row for name, row in _tables()["stress"].items() if isinstance(row, dict)}


def dataset_sizes() -> dict[str, dict[str, Any]]:
    """Table 6: data set → task, sequences n, features d and steps T."""
    return {name: row for name, row in _tables()["datasets"].items() if isinstance(row, dict)}


def paper_name(dataset: str) -> str:
    """The paper's name of a data set in the paper's own form, such as senior for "senior, 1 Hz"; else the same name."""
    return str(_tables()["aliases"].get(dataset.casefold(), dataset))


def headline(cells: Sequence[Cell]) -> Cell:
    """Of one data set and shape: the level of the paper's tables, or else the one nearest to 30 %."""

    def distance(cell: Cell) -> tuple[bool, float]:
        return not _has_the_papers_constants(cell), abs(cell.rate - PAPER_RATE) if math.isfinite(cell.rate) else 1.0

    return min(cells, key=distance)


def published(cell: Cell, method: str, metric: str) -> PublishedValue | None:
    """The paper's number for a method, where the cell holds exactly the levels of a printed table.

    `test_error` and `absolute`, the mean absolute error of an entry of Q; tables 2 and 3 print the latter over 0.30.
    """
    table = printed(cell.shape)
    if cell.n_classes != 2 or cell.variant != UNIFORM or list(cell.percents) != table.get("levels"):
        return None
    row = table.get(paper_name(cell.task[0]).casefold(), {})
    column, scale = {"absolute": ("approx_error", RELATIVE_TO / 100)}.get(metric, (metric, 1 / 100))
    pair = row.get(column, {}).get(base_name(method))
    return None if pair is None else PublishedValue(scale * pair[0], scale * pair[1])


def has_published(cell: Cell) -> bool:
    """Whether the paper printed the row of this cell."""
    return published(cell, "continuous", "test_error") is not None


def _has_the_papers_constants(cell: Cell) -> bool:
    table, named = printed(cell.shape), cell.any_run.constants
    if not table or not named:
        return False
    return all(math.isclose(table["constants"].get(name, math.inf), value) for name, value in named.items())
