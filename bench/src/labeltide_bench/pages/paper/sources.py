"""The sources of the page: the published values, the records of our studies, and the levels at which they meet.

`figure_values.parquet` holds 5,361 values read off the vector graphics that the authors published with their code:
clean test accuracy in percent, and the mean absolute error of an entry of Q as a fraction, each with the lower and
upper edge of the drawn band. They are measurements of published pictures, exact to the width of a line.

The captions call the bands standard deviations. In the 24 cells that table 2 prints, the band is as wide as 1.96 of the
printed standard deviations over the root of ten (median of the ratios 1.00, nine in ten below 1.1): a 95 % interval of
the mean.

`public_code.csv` holds what the authors' published code gives on the windows of our studies, one line for each cell and
method (`bench/benchmarks/public_code.py` says how it was made).
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student

from labeltide_bench.pages.cells import UNIFORM, Cell, DrawSummary, make_cells, methods_of
from labeltide_bench.pages.method_order import Q_ERRORS, base_name, in_order
from labeltide_bench.pages.published import RELATIVE_TO, dataset_sizes, has_published, paper_name, printed
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
        PaperFigure(f"Repository figure {2 * index + half}", f"all_{kind}_{name}_2none", data, 2, measure)
        for index, (data, name) in enumerate(_REPOSITORY.items())
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


CODE_COLUMNS = {
    "test_error": "error",
    "rounded": "error_rounded",
    "absolute": "mae",
    "frobenius": "frobenius",
    "finite_error": "error_finite",
}


@cache
def public_code() -> dict[tuple[str, str, float], dict[str, dict[str, DrawSummary]]]:
    """What the public code gives: data set, shape and level in percent → method → metric → summary over its draws.

    `rounded` is the test error by the code's own metric, the arg max of rounded probabilities, which the paper prints;
    `finite_error` is that of the draws whose Q is finite.
    """
    text = files("labeltide_bench.pages.paper").joinpath("public_code.csv").read_text(encoding="utf-8")
    found: dict[tuple[str, str, float], dict[str, dict[str, DrawSummary]]] = {}
    for row in csv.DictReader(text.splitlines()):
        numbers = {}
        for metric, column in CODE_COLUMNS.items():
            n = int(row["n_q" if metric in (*Q_ERRORS, "finite_error") else "n"])
            mean, spread = float(row[column]) / 100, float(row[f"{column}_sd"]) / 100
            numbers[metric] = DrawSummary(mean, spread, n, int(row["n"]) - n)
        found.setdefault((row["data"], row["shape"], float(row["level"])), {})[row["method"]] = numbers
    return found


def code_summary(cell: Cell, method: str, metric: str) -> DrawSummary:
    """The public code in a cell of ours, over the draws of all its levels together; n = 0 where it was not run."""
    cells = [public_code().get((cell.task[0], cell.shape, percent), {}) for percent in cell.percents]
    name = base_name(method)
    if not cells or cell.variant != UNIFORM or not all(name in each for each in cells):
        return DrawSummary(math.nan, math.nan, 0, 0)
    return pool([each[name][metric] for each in cells])


def pool(parts: Sequence[DrawSummary]) -> DrawSummary:
    """Mean and standard deviation of several groups of draws taken together."""
    kept = [part for part in parts if part.n]
    n, failed = sum(part.n for part in kept), sum(part.failed for part in parts)
    if not n:
        return DrawSummary(math.nan, math.nan, 0, failed)
    mean = sum(part.n * part.mean for part in kept) / n
    squares = sum(part.n * (part.mean - mean) ** 2 for part in kept)
    squares += sum((part.n - 1) * part.spread**2 for part in kept if part.n > 1)
    return DrawSummary(mean, math.sqrt(squares / (n - 1)) if n > 1 else math.nan, n, failed)


TABLES = {"Table 2": "mixed", "Table 3": "periodic"}


def table_cells(shape: str, *studies: Sequence[Cell]) -> list[Cell]:
    """For each data set of table 2 or 3 one cell with the runs of all levels over which the table averages.

    A method is taken from the first study that has it at every level, with the draws that every level has.
    """
    levels = [float(level) for level in printed(shape)["levels"]]
    datasets: dict[str, list[dict[float, Cell]]] = {}
    for study, cells in enumerate(studies):
        for cell in cells:
            if cell.shape == shape and cell.variant == UNIFORM and cell.percents[:1] and cell.percents[0] in levels:
                datasets.setdefault(cell.task[0], [{} for _ in studies])[study][cell.percents[0]] = cell
    merged = []
    for parts in datasets.values():
        runs: dict[str, list[Run]] = {}
        whole = [part for part in parts if sorted(part) == levels]
        for part in whole:
            for method in set.intersection(*(set(cell.runs) for cell in part.values())) - set(runs):
                of_level = {level: {run.draw: run for run in part[level].runs[method]} for level in levels}
                draws = set.intersection(*map(set, of_level.values()))
                runs[method] = [
                    replace(of_level[level][draw], draw=100 * draw + round(level))
                    for level in levels
                    for draw in sorted(draws)
                ]
        if runs:
            cell = whole[0][levels[0]]
            level_text = json.dumps({"rates": [level / 100 for level in levels]})
            merged.append(replace(cell, level=level_text, runs={name: runs[name] for name in in_order(runs)}))
    return [cell for cell in merged if has_published(cell)]


CODE, TEXT = "paper's code", "paper's text"  # in the label of a method of ours that is trained exactly as they have it
ROLES = {
    "figures": "the six methods at all levels (paper-figures)",
    "tables": "tables 2 and 3 (paper-tables)",
    "static": "static against temporal correction (paper-static)",
    "people": "labels of real annotators (annotators)",
    "code": "our methods exactly as in the code, at all levels (paper-code)",
    "text": "our methods exactly as in the text, at all levels (paper-text)",
    "published": "the cells of the public code exactly as published (paper-published)",
}


@dataclass(frozen=True)
class Studies:
    """The cells of the studies of the page; an empty list where a study was not given."""

    figures: list[Cell] = field(default_factory=list)
    tables: list[Cell] = field(default_factory=list)
    static: list[Cell] = field(default_factory=list)
    people: list[Cell] = field(default_factory=list)
    code: list[Cell] = field(default_factory=list)
    text: list[Cell] = field(default_factory=list)
    published: list[Cell] = field(default_factory=list)

    def printed(self, shape: str) -> list[Cell]:
        """The cells of table 2 or 3: from its own study, and else from those of the figures."""
        return table_cells(shape, self.tables, self.figures, self.published, self.code, self.text)

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
    sources = {source for source in (CODE, TEXT) for method in methods_of(cells) if source in method}
    if all(CODE in method or TEXT in method for method in methods_of(cells)):
        has_six = f"ignore ({CODE})" in methods_of(cells)
        return "published" if len(sources) == 2 or has_six else "code" if CODE in sources else "text"
    is_printed = all(set(cell.percents) <= set(printed(cell.shape).get("levels", ())) for cell in cells)
    return "tables" if is_printed else "figures"


@cache
def published_studies() -> Studies:
    """Figures, static study and tables as the paper published them, one draw each: its mean."""
    static, figures = _figure_cells(is_static=True), _figure_cells(is_static=False)
    return Studies(figures=figures, tables=_printed_cells(), static=static)


@cache
def public_code_studies() -> Studies:
    """The cells of the public code, one draw each: its mean."""
    runs = []
    for (dataset, shape, percent), methods in public_code().items():
        classes = next(figure.classes for figure in FIGURES if figure.dataset == dataset)
        for method, numbers in methods.items():
            metrics = {metric: numbers[metric].mean for metric in ("test_error", "absolute")}
            runs.append(_run(dataset, classes, shape, percent, method, metrics))
    return Studies(figures=make_cells(runs))


def _figure_cells(*, is_static: bool) -> list[Cell]:
    runs: dict[tuple[str, int, str, float, str], dict[str, float]] = {}
    for figure in FIGURES:
        for value in figure_values()[figure.file] if (figure.file == STATIC_STUDY) is is_static else ():
            key = (figure.dataset, figure.classes, value.shape, value.wrong_percent, value.method)
            number = 1 - value.value / 100 if figure.measure == ACCURACY else value.value / 100
            runs.setdefault(key, {})[figure.metric] = number
    return make_cells([_run(*key, metrics) for key, metrics in runs.items()])


def _printed_cells() -> list[Cell]:
    """Tables 2 and 3 as cells: every level of a table has its printed mean."""
    runs = []
    for shape in TABLES.values():
        for dataset in dataset_sizes():
            row = printed(shape)[dataset]
            for method in SIX:
                metrics = {"test_error": row["test_error"][method][0] / 100}
                if method in row["approx_error"]:
                    metrics["absolute"] = RELATIVE_TO * row["approx_error"][method][0] / 100
                runs += [_run(dataset, 2, shape, level, method, metrics) for level in printed(shape)["levels"]]
    return make_cells(runs)


def _run(dataset: str, classes: int, shape: str, percent: float, method: str, metrics: dict[str, float]) -> Run:
    info = DatasetInfo(classes=tuple(f"class {code}" for code in range(classes)))
    rate = round(percent / 100, 4)
    return Run(dataset, info, shape, json.dumps({"rate": rate}), rate, UNIFORM, method, 0, metrics)


NEAR = 1.0  # points of the rate by which a level of the paper may differ from ours; its figures round to whole percents
LEVEL = 0.95  # of our intervals
MOSTLY = 0.5  # share of the levels of a panel from which a method of ours alone is shown


class Interval(NamedTuple):
    """A mean over draws and its 95 % interval (Student's t), in percent."""

    mean: float
    lower: float
    upper: float
    draws: int
    error: float = math.nan  # standard error of the mean

    def times(self, scale: float) -> Interval:
        return Interval(scale * self.mean, scale * self.lower, scale * self.upper, self.draws, scale * self.error)


class Point(NamedTuple):
    """One method in one cell: ours, the paper's and that of its public code, where there is one."""

    wrong_percent: float
    ours: Interval | None
    paper: FigureValue | None
    code: Interval | None = None
    code_metric: float = math.nan  # the public code by its own metric, which is what the paper shows

    @property
    def difference(self) -> float:
        """Ours minus the paper's; NaN where one is missing."""
        return self.ours.mean - self.paper.value if self.ours and self.paper else math.nan

    @property
    def is_in_band(self) -> bool:
        """Whether our mean lies in the paper's band, which was read to two decimals."""
        return bool(self.ours and self.paper and self.paper.lower - 0.005 <= self.ours.mean <= self.paper.upper + 0.005)

    @property
    def from_code(self) -> float:
        """Ours minus the public code's; NaN where one is missing."""
        return self.ours.mean - self.code.mean if self.ours and self.code else math.nan

    @property
    def is_near_code(self) -> bool:
        """Whether ours and the public code's differ by at most two standard errors of the difference."""
        if not (self.ours and self.code):
            return False
        return abs(self.from_code) <= 2 * math.hypot(self.ours.error, self.code.error)

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

    Data in the paper's own form take the place of substitutes. A method that the figure does not have is shown in the
    panels in which it has at least half of the levels.
    """
    found = [cell for cell in cells if cell.n_classes == figure.classes and cell.variant == UNIFORM]
    kept = [cell for cell in found if cell.task[0] == figure.dataset]
    kept = [cell for cell in found if paper_name(cell.task[0]) == figure.dataset != cell.task[0]] or kept
    values = figure_values()[figure.file]
    known = {*PAPER_NAMES, *(value.method for value in values)}
    curves: dict[tuple[str, str], list[Point]] = {}
    for shape in SHAPES:
        of_shape = [cell for cell in kept if cell.shape == shape]
        shares = {name: np.mean([name in cell.runs for cell in of_shape]) for name in methods_of(of_shape)}
        ours = [name for name, share in shares.items() if name in known or share >= MOSTLY]
        pairs = match_levels(of_shape, sorted({value.wrong_percent for value in values if value.shape == shape}))
        drawn = {(value.method, value.wrong_percent): value for value in values if value.shape == shape}
        for method in dict.fromkeys([*ours, *(value.method for value in values)]):
            points = [
                cell_point(cell, method, figure.metric, drawn.get((method, percent)))._replace(wrong_percent=percent)
                if cell
                else Point(percent, None, drawn.get((method, percent)))
                for cell, percent in pairs
            ]
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


def cell_point(cell: Cell, method: str, metric: str, value: FigureValue | None, *, accuracy: bool = True) -> Point:
    """A method in a cell from all three sources; test errors become accuracies unless told otherwise."""
    is_accuracy = accuracy and metric == "test_error"
    ours, code = cell.over_draws(method, metric), code_summary(cell, method, metric)
    rounded = code_summary(cell, method, "rounded" if metric == "test_error" else metric).mean
    return Point(
        100 * cell.rate,
        interval(ours, is_accuracy=is_accuracy) if ours.n else None,
        value,
        interval(code, is_accuracy=is_accuracy) if code.n else None,
        100 * (1 - rounded if is_accuracy else rounded),
    )


def interval(summary: DrawSummary, *, is_accuracy: bool) -> Interval:
    """Mean and interval in percent; a test error becomes an accuracy."""
    mean = 100 * (1 - summary.mean if is_accuracy else summary.mean)
    if summary.n < 2:
        return Interval(mean, mean, mean, summary.n)
    error = 100 * summary.spread / math.sqrt(summary.n)
    half = error * float(student.ppf((1 + LEVEL) / 2, summary.n - 1))
    return Interval(mean, mean - half, mean + half, summary.n, error)
