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

PAPER_RATE, RATE_TOLERANCE = 0.30, 0.05  # the paper's level, and how far a level may lie from it to be set beside it
FAR = 2  # of the paper's standard deviations


class Published(NamedTuple):
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


def headline(cells: Sequence[Cell]) -> Cell:
    """Of one data set and shape: the level of the paper's tables, or else the one nearest to 30 %."""

    def distance(cell: Cell) -> tuple[bool, float]:
        return not _has_the_papers_constants(cell), abs(cell.rate - PAPER_RATE) if math.isfinite(cell.rate) else 1.0

    return min(cells, key=distance)


def published(cell: Cell, method: str, metric: str) -> Published | None:
    """The paper's number for a method in a cell, where the paper has one."""
    if cell.n_classes != 2 or cell.variant != UNIFORM or not abs(cell.rate - PAPER_RATE) <= RATE_TOLERANCE:
        return None
    table = _tables().get(cell.shape.casefold(), {}) if cell.shape.casefold() != "source" else {}
    row = table.get(cell.task[0].casefold(), {})
    pair = row.get(metric, {}).get(base_name(method)) if isinstance(row, dict) else None
    return None if pair is None else Published(pair[0] / 100, pair[1] / 100)


def has_published(cell: Cell) -> bool:
    """Whether the paper printed the row of this cell."""
    return published(cell, "continuous", "test_error") is not None


def _has_the_papers_constants(cell: Cell) -> bool:
    table = _tables().get(cell.shape.casefold())
    named = cell.any_run.constants
    if not isinstance(table, dict) or not named:
        return False
    return all(math.isclose(table["constants"].get(name, math.inf), value) for name, value in named.items())
