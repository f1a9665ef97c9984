"""The studies behind the page: which of them a folder of records holds is seen from the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labeltide_bench.pages.cells import Cell, make_cells
from labeltide_bench.pages.paper.values import CORRECTIONS
from labeltide_bench.pages.results import read_results

ROLES = {
    "figures": "the six methods at all levels (paper-figures)",
    "tables": "tables 2 and 3 (paper-tables)",
    "static": "static against temporal correction (paper-static)",
    "people": "labels of real annotators (annotators)",
}


@dataclass(frozen=True)
class Studies:
    """The cells of the four studies of the page; an empty list where a study was not given."""

    figures: list[Cell] = field(default_factory=list)
    tables: list[Cell] = field(default_factory=list)
    static: list[Cell] = field(default_factory=list)
    people: list[Cell] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        return [words for role, words in ROLES.items() if not getattr(self, role)]


def read_studies(folders: Sequence[Path]) -> Studies:
    """The cells of every folder under the role that its records show."""
    found: dict[str, list[Cell]] = {}
    for folder in folders:
        cells = make_cells(read_results(Path(folder)).runs)
        role = role_of(cells)
        if role in found:
            raise ValueError(
                f"Each study must be given once. {folder} is a second folder with {ROLES[role]}. Leave one out."
            )
        found[role] = cells
    return Studies(**found)


def role_of(cells: Sequence[Cell]) -> str:
    """Which of the paper's studies the cells are of."""
    if any(cell.annotator for cell in cells):
        return "people"
    if any(name in cell.runs for cell in cells for name in CORRECTIONS.values()):
        return "static"
    levels: dict[tuple[object, ...], set[str]] = {}
    for cell in cells:
        levels.setdefault((cell.task, cell.shape), set()).add(cell.level)
    return "figures" if max(map(len, levels.values())) > 1 else "tables"
