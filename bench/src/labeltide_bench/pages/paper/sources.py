"""The sources of the page: the published values, the records of our studies, and the levels at which they meet.

`figure_values.parquet` holds 5,361 values read off the vector graphics that the authors published with their code:
clean test accuracy in percent, and the mean absolute error of an entry of Q as a fraction, each with the lower and
upper edge of the drawn band. They are measurements of published pictures, exact to the width of a line.

The captions call the bands standard deviations. In the 24 cells that table 2 prints, the band is as wide as 1.96 of the
printed standard deviations over the root of ten (median of the ratios 1.00, nine in ten below 1.1): a 95 % interval of
the mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student

from labeltide_bench.pages.cells import UNIFORM, Cell, DrawSummary, make_cells, methods_of
from labeltide_bench.pages.published import dataset_sizes, printed
from labeltide_bench.pages.results import DatasetInfo, Run, read_results

ACCURACY, MAE = "accuracy", "mae"
STATIC_STUDY = "motivation_all"
SHAPES = ("static", "linear", "decay", "growth", "periodic", "mixed")  # panels of a figure, row by row

# Names of the methods: in the figures of the paper, in its text, and here.
PAPER_NAMES = {
    "ignore": ("Uncorrected", "Ignore"),
    "anchor": ("Anchor", "Anchor"),
    "volmin": ("VolMinNet", "VolMinNet"),
    "plugin": ("AnchorTime", "Plug-In"),
    "discontinuous": ("VolMinNetTime", "Discontinuous"),
    "continuous": ("TENOR", "Continuous"),
}
SIX = tuple(PAPER_NAMES)
CORRECTIONS = {  # in the study of static against temporal correction: the paper's name and ours
    "ignore": "no correction",
    "forward temporal": "forward, temporal Q",
    "forward static": "forward, static Q",
    "backward temporal": "backward, temporal Q",
    "backward static": "backward, static Q",
}
UNCORRECTED = "no correction"  # what the study of static against temporal correction calls ignore


def shown_name(method: str) -> str:
    """The one name of a method on the page."""
    return "ignore" if method == UNCORRECTED else method


class FigureValue(NamedTuple):
    """One point of a curve of the paper; accuracy in percent, errors of Q in percentage points."""

    figure: str
    data: str
    classes: int
    shape: str
    method: str  # our name of it
    measure: str
    wrong_percent: float
    value: float
    lower: float
    upper: float


class PaperFigure(NamedTuple):
    """A figure of six panels, one for each noise shape."""

    number: str  # its number in the paper, or the one given here to a figure of the authors' repository
    file: str  # the authors' name of the graphics file
    dataset: str  # our name of the data set
    classes: int
    measure: str

    @property
    def in_paper(self) -> bool:
        return self.number.startswith("Figure")

    @property
    def subject(self) -> str:
        """What it shows: measure and data."""
        what = "Accuracy" if self.measure == ACCURACY else "Error of Q"
        return f"{what}, {self.dataset}{', with the true Q' if self.file == STATIC_STUDY else ''}"

    @property
    def slug(self) -> str:
        return self.number.lower().replace(" ", "-")

    @property
    def metric(self) -> str:
        """The metric of our records that measures the same."""
        return {ACCURACY: "test_error", MAE: "absolute"}[self.measure]


_REPOSITORY = {
    "moving": "HAR",
    "senior": "HAR70",
    "blinking": "EEG_EYE",
    "sleeping": "EEG_SLEEP",
    "synthetic": "synthetic",
}
FIGURES = (
    PaperFigure("Figure 5", STATIC_STUDY, "synthetic", 2, ACCURACY),
    PaperFigure("Figure 6", "all_acc_synthetic_3none", "synthetic, 3 classes", 3, ACCURACY),
    PaperFigure("Figure 7", "all_recon_synthetic_3none", "synthetic, 3 classes", 3, MAE),
    PaperFigure("Figure 8", "all_acc_EEG_SLEEP_3none", "sleeping, 3 classes", 3, ACCURACY),
    PaperFigure("Figure 9", "all_recon_EEG_SLEEP_3none", "sleeping, 3 classes", 3, MAE),
    PaperFigure("Figure 10", "all_acc_HAR_4none", "moving, 4 classes", 4, ACCURACY),
    PaperFigure("Figure 11", "all_recon_HAR_4none", "moving, 4 classes", 4, MAE),
    *(
        PaperFigure(f"Repository figure {2 * place + half}", f"all_{kind}_{name}_2none", data, 2, measure)
        for place, (data, name) in enumerate(_REPOSITORY.items())
        for half, kind, measure in ((1, "acc", ACCURACY), (2, "recon", MAE))
    ),
)


@cache
def figure_values() -> dict[str, tuple[FigureValue, ...]]:
    """All values, by the name of the graphics file."""
    with as_file(files("labeltide_bench.pages.paper").joinpath("figure_values.parquet")) as path:
        rows = pq.read_table(path).to_pylist()
    grouped: dict[str, list[FigureValue]] = {}
    for row in rows:
        grouped.setdefault(row["figure"], []).append(_value(row))
    return {name: tuple(values) for name, values in grouped.items()}


def _value(row: dict[str, object]) -> FigureValue:
    value = FigureValue(**row)  # type: ignore[arg-type]
    scale = 100 if value.measure == MAE else 1
    numbers = {name: scale * getattr(value, name) for name in ("value", "lower", "upper")}
    method = CORRECTIONS[value.method] if value.figure == STATIC_STUDY else value.method
    return value._replace(method=method, **numbers)


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


@cache
def published_studies() -> Studies:
    """Figures, static study and tables as the paper published them, one draw each: its mean."""
    static, figures = _figure_cells(is_static=True), _figure_cells(is_static=False)
    return Studies(figures=figures, tables=_table_cells(), static=static)


def _figure_cells(*, is_static: bool) -> list[Cell]:
    runs: dict[tuple[str, int, str, float, str], dict[str, float]] = {}
    for figure in FIGURES:
        for value in figure_values()[figure.file] if (figure.file == STATIC_STUDY) is is_static else ():
            key = (figure.dataset, figure.classes, value.shape, value.wrong_percent, value.method)
            number = 1 - value.value / 100 if figure.measure == ACCURACY else value.value / 100
            runs.setdefault(key, {})[figure.metric] = number
    return make_cells([_run(*key, metrics) for key, metrics in runs.items()])


def _table_cells() -> list[Cell]:
    runs = []
    for shape, percent in (("mixed", 29.0), ("periodic", 30.0)):
        for dataset in dataset_sizes():
            row = printed(shape)[dataset]
            for method in SIX:
                metrics = {metric: pairs[method][0] / 100 for metric, pairs in row.items() if method in pairs}
                runs.append(_run(dataset, 2, shape, percent, method, metrics))
    return make_cells(runs)


def _run(dataset: str, classes: int, shape: str, percent: float, method: str, metrics: dict[str, float]) -> Run:
    info = DatasetInfo(classes=tuple(f"class {code}" for code in range(classes)))
    level = json.dumps({"rate": round(percent / 100, 4)})
    return Run(dataset, info, shape, level, percent / 100, "uniform", method, 0, metrics)


NEAR = 1.0  # points of the rate by which a level of the paper may differ from ours; its figures round to whole percents
LEVEL = 0.95  # of our intervals


class Interval(NamedTuple):
    """A mean over draws and its 95 % interval (Student's t), in percent."""

    mean: float
    lower: float
    upper: float
    draws: int


class Point(NamedTuple):
    """One method at one level: ours, the paper's, or both."""

    wrong_percent: float
    ours: Interval | None
    paper: FigureValue | None

    @property
    def difference(self) -> float:
        """Ours minus the paper's; NaN where one is missing."""
        return self.ours.mean - self.paper.value if self.ours and self.paper else math.nan

    @property
    def is_in_band(self) -> bool:
        """Whether our mean lies in the paper's band, which was read to two decimals."""
        return bool(self.ours and self.paper and self.paper.lower - 0.005 <= self.ours.mean <= self.paper.upper + 0.005)

    @property
    def overlaps(self) -> bool:
        """Whether our interval meets the paper's band."""
        return bool(
            self.ours and self.paper and self.ours.lower <= self.paper.upper and self.ours.upper >= self.paper.lower
        )


@dataclass(frozen=True, eq=False)
class MatchedFigure:
    """A figure of the paper with our cells of the same data set."""

    figure: PaperFigure
    cells: list[Cell]
    curves: dict[tuple[str, str], list[Point]]  # shape and method → points by level

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for _, method in self.curves))

    @property
    def is_substitute(self) -> bool:
        """Whether our data stand in for recordings of the paper that were not at hand."""
        return any(cell.info.faithful is False for cell in self.cells)

    @property
    def estimating(self) -> list[str]:
        """The methods whose numbers compare: of Q, those that estimate one."""
        return [name for name in self.methods if self.figure.measure == ACCURACY or name != "ignore"]

    def points(self, method: str = "", shape: str = "") -> list[Point]:
        """The points of a method, of a shape, or of all."""
        wanted = [key for key in self.curves if method in ("", key[1]) and shape in ("", key[0])]
        return [point for key in wanted for point in self.curves[key]]


def match_figure(figure: PaperFigure, cells: Sequence[Cell]) -> MatchedFigure:
    """Put our cells of the figure's data set beside its values.

    A method that the figure does not have is shown only where it has runs at every level.
    """
    kept = [cell for cell in cells if cell.task[:2] == (figure.dataset, figure.classes) and cell.variant == UNIFORM]
    values = figure_values()[figure.file]
    known = {*PAPER_NAMES, *(value.method for value in values)}
    ours = [name for name in methods_of(kept) if name in known or all(name in cell.runs for cell in kept)]
    methods = list(dict.fromkeys([*ours, *(value.method for value in values)]))
    curves: dict[tuple[str, str], list[Point]] = {}
    for shape in SHAPES:
        pairs = match_levels(
            [cell for cell in kept if cell.shape == shape],
            sorted({value.wrong_percent for value in values if value.shape == shape}),
        )
        of_shape = {(value.method, value.wrong_percent): value for value in values if value.shape == shape}
        for method in methods:
            points = [_point(figure, cell, percent, method, of_shape) for cell, percent in pairs]
            curves[shape, method] = [point for point in points if point.ours or point.paper]
    return MatchedFigure(figure, kept, curves)


def match_levels(cells: Sequence[Cell], percents: Sequence[float]) -> list[tuple[Cell | None, float]]:
    """Each cell with the paper's level of the nearest rate, one to one; what has no partner stays alone.

    Rates and not names are matched: with three classes the figures show the level called 29 % at its rate, 32 %.
    """
    rates = np.array([100 * cell.rate for cell in cells])
    gaps = np.abs(rates[:, None] - np.array(percents)[None, :])  # (cells, levels)
    rows, columns = linear_sum_assignment(np.where(gaps <= NEAR, gaps**2, 1e6))
    partner = {row: column for row, column in zip(rows, columns, strict=True) if gaps[row, column] <= NEAR}
    pairs: list[tuple[Cell | None, float]] = [
        (cell, percents[partner[row]] if row in partner else float(rates[row])) for row, cell in enumerate(cells)
    ]
    pairs += [(None, percent) for column, percent in enumerate(percents) if column not in partner.values()]
    return sorted(pairs, key=lambda pair: pair[1])


def draws_text(cells: Sequence[Cell], methods: Sequence[str], unit: str = "draws") -> str:
    """How many draws stand behind a mean of each method: one number where all have the same."""
    counts = {shown_name(name): {len(c.runs[name]) for c in cells if name in c.runs} for name in methods}
    ranges = {name: _range(found) for name, found in counts.items() if found}
    if not ranges:
        return ""
    usual = max(ranges.values(), key=list(ranges.values()).count)
    others = ", ".join(f"{name}: {text}" for name, text in ranges.items() if text != usual)
    return f"{usual} {unit}" + (f" ({others})." if others else ".")


def _range(counts: Collection[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _point(
    figure: PaperFigure,
    cell: Cell | None,
    percent: float,
    method: str,
    values: dict[tuple[str, float], FigureValue],
) -> Point:
    summary = cell.over_draws(method, figure.metric) if cell else None
    ours = interval(summary, is_accuracy=figure.measure == ACCURACY) if summary and summary.n else None
    return Point(percent, ours, values.get((method, percent)))


def interval(summary: DrawSummary, *, is_accuracy: bool) -> Interval:
    """Mean and interval in percent; a test error becomes an accuracy."""
    mean = 100 * (1 - summary.mean if is_accuracy else summary.mean)
    half = 0.0
    if summary.n > 1:
        half = 100 * summary.spread / math.sqrt(summary.n) * float(student.ppf((1 + LEVEL) / 2, summary.n - 1))
    return Interval(mean, mean - half, mean + half, summary.n)
