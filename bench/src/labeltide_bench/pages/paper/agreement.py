"""Agreement of three sources: what the paper published, what its public code gives, and what we give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from labeltide._files import csv_text
from labeltide_bench.pages.cells import UNIFORM, Cell, methods_of, summarise_draws
from labeltide_bench.pages.method_order import base_name
from labeltide_bench.pages.paper.sources import (
    ACCURACY,
    CODE,
    FIGURES,
    MAE,
    SIX,
    STATIC_STUDY,
    TEXT,
    UNCORRECTED,
    FigureValue,
    Interval,
    MatchedFigure,
    Point,
    cell_point,
    code_summary,
    interval,
    match_figure,
    shown_name,
)
from labeltide_bench.pages.published import RELATIVE_TO, published
from labeltide_bench.pages.result_tables import PlainTable

# Measures of the rows; tables 2 and 3 print the error of Q over 0.30, and so do their rows here.
MEASURES = {"accuracy": "accuracy", "mae": "error of Q", "test_error": "test error", "absolute": "error of Q / 0.30"}
ORIGIN = {True: "the paper's", False: "substitute", None: ""}
# Two sources, and how their near means are counted.
PAIRS = (("Ours, print", "in band"), ("Ours, public code", "within 2 s.e."), ("Public code, print", "in band"))
VARIANCE_1 = ", variance 1"  # in the name of synthetic data
BY_TEXT = ("continuous", "discontinuous")  # whose objective in the text is not that of the code
EXACTLY = ", as in the "  # in the name of a row: ours trained exactly as in the paper's code or text
MINUS = "\N{MINUS SIGN}"
DASH = "\N{EN DASH}"


class Comparison(NamedTuple):
    """Two sources over the cells and methods that both have, in points."""

    points: int
    size: float  # mean absolute difference
    signed: float  # mean difference
    near: int  # within the paper's band, or within two standard errors of the difference


class Agreement(NamedTuple):
    """One figure or table."""

    name: str
    data: str
    origin: str  # whether the data are the paper's own
    measure: str
    distances: dict[str, float]  # method → mean absolute difference of ours from the paper's
    printed: Comparison  # ours less the paper's
    overlaps: int  # of our 95 % intervals and the paper's bands
    code: Comparison  # ours less the public code's
    between: Comparison  # the public code's less the paper's


def agreement_of(name: str, data: str, origin: str, measure: str, curves: dict[str, list[Point]]) -> Agreement:
    """Compare the points that two sources have, by method."""
    both = {method: [point for point in points if math.isfinite(point.difference)] for method, points in curves.items()}
    every = [point for points in both.values() for point in points]
    with_code = [point for points in curves.values() for point in points if math.isfinite(point.from_code)]
    published_too = [point for point in with_code if point.paper]
    gaps = [point.code_metric - point.paper.value for point in published_too if point.paper]
    in_band = [p.paper.lower - 0.005 <= p.code_metric <= p.paper.upper + 0.005 for p in published_too if p.paper]
    return Agreement(
        name,
        data,
        origin,
        measure,
        {method: _mean(abs(point.difference) for point in points) for method, points in both.items() if points},
        _compare([point.difference for point in every], [point.is_in_band for point in every]),
        sum(point.overlaps for point in every),
        _compare([point.from_code for point in with_code], [point.is_near_code for point in with_code]),
        _compare(gaps, in_band),
    )


def _compare(differences: Sequence[float], near: Sequence[bool]) -> Comparison:
    return Comparison(len(differences), _mean(map(abs, differences)), _mean(differences), sum(near))


def figure_agreement(matched: MatchedFigure) -> Agreement:
    """Agreement of one figure; the Q of a method that estimates none is left out."""
    figure = matched.figure
    curves = {method: matched.points(method) for method in matched.estimating}
    return agreement_of(figure.number, figure.dataset, _origin(matched.cells), MEASURES[figure.measure], curves)


def exact_agreements(source: str, cells: Sequence[Cell]) -> list[Agreement]:
    """Agreement of the figures, ours trained exactly as in the code or in the text.

    The paper's code draws synthetic data with variance 1, so those data stand for its figures, and not our own.
    """
    kept = [
        cell
        for cell in cells
        if source != CODE or VARIANCE_1 in cell.task[0] or not cell.task[0].startswith("synthetic")
    ]
    plain = [
        replace(
            cell,
            task=(cell.task[0].replace(VARIANCE_1, ""), *cell.task[1:]),
            runs={base_name(name): runs for name, runs in cell.runs.items()},
        )
        for cell in kept
    ]
    matched = [match_figure(figure, plain) for figure in FIGURES if figure.file != STATIC_STUDY]
    rows = [figure_agreement(each) for each in matched if each.cells]
    return [row._replace(name=f"{row.name}{EXACTLY}{source}") for row in rows if row.printed.points]


def table_agreements(name: str, cells: Sequence[Cell]) -> list[Agreement]:
    """Agreement of table 2 or 3, by measure, on the paper's own data and on substitutes.

    Bands are one printed standard deviation to each side. Methods of ours that are trained exactly as in the code or in
    the text have rows of their own.
    """
    groups = [[cell for cell in cells if (cell.info.faithful is False) is kind] for kind in (False, True)]
    rows = []
    for source in ("", CODE, TEXT):
        for metric in ("test_error", "absolute"):
            for group in groups:
                labels = [label for label in methods_of(group) if (source in label if source else label in SIX)]
                curves = {base_name(label): [table_point(cell, label, metric) for cell in group] for label in labels}
                curves = {label: [point for point in points if point.paper] for label, points in curves.items()}
                data = ", ".join(dict.fromkeys(cell.name for cell in group))
                title = f"{name}{EXACTLY}{source}" if source else name
                rows.append(agreement_of(title, data, _origin(group), MEASURES[metric], curves))
    return [row for row in rows if row.printed.points]


def table_point(cell: Cell, method: str, metric: str) -> Point:
    """A method in a cell of table 2 or 3, from all three sources, in percent as the table prints it."""
    scale = 1 / RELATIVE_TO if metric == "absolute" else 1.0
    printed, value = published(cell, method, metric), None
    if printed:
        mean, spread = 100 * scale * printed.mean, 100 * scale * printed.spread
        band = (mean, mean - spread, mean + spread)
        value = FigureValue("", cell.name, cell.n_classes, cell.shape, method, metric, 100 * cell.rate, *band)
    point = cell_point(cell, method, metric, value, accuracy=False)
    ours, code = (each and each.times(scale) for each in (point.ours, point.code))
    return point._replace(ours=ours, code=code, code_metric=scale * point.code_metric)


def agreement_table(rows: Sequence[Agreement], more: str = "") -> PlainTable:
    """All figures and tables in one table: the three sources two by two."""
    heads = ["Figure", "Measure and data"]
    for pair, near in PAIRS:
        heads += [f"{pair}: {what}" for what in ("difference", "bias", near)]
    body = [
        [
            row.name,
            f"{row.measure}: {row.data}{'*' if row.origin == ORIGIN[False] else ''}",
            *_texts(row.printed),
            *_texts(row.code),
            *_texts(row.between),
        ]
        for row in rows
    ]
    caption = (
        "Mean absolute difference between the means of two sources, in percentage points, over the cells and methods "
        "that both have. Ours, print: our means and those that the paper published. Ours, public code: the authors' "
        "published code, run by us on the same windows (ten cells of each of six data sets). Public code, print: where "
        "this differs, the paper's numbers are not those of its code. Bias: mean of the first less the second. In "
        "band: how many means lie within the paper's band; for tables one printed standard deviation to each side. "
        "Within 2 s.e.: how many pairs differ by at most two standard errors of their difference. Error of Q: mean "
        "absolute error of an entry of Q(t); tables 2 and 3 divide it by 0.30. Accuracies of the public code are "
        "compared with ours by the arg max of probabilities, with the print by the arg max of rounded ones, as the "
        "code has it. As in the paper's code, or text: ours trained exactly as published. * Substitute data, "
        "not the paper's recordings: print and other columns do not compare."
    )
    return PlainTable(f"Agreement of the three sources{more}", caption, heads, body, words=1)


def _texts(found: Comparison) -> list[str]:
    return [points_text(found.size), signed_text(found.signed), share_text(found.near, found.points)]


def method_table(rows: Sequence[Agreement], more: str = "") -> PlainTable:
    """The mean absolute differences of ours from the paper's for each method."""
    body = [
        [
            row.name,
            f"{row.measure}: {row.data}{'*' if row.origin == ORIGIN[False] else ''}",
            *(points_text(_distance(row, method)) for method in SIX),
        ]
        for row in rows
    ]
    caption = "Mean absolute difference between our mean and the paper's, in points. * Substitute data."
    return PlainTable(f"Ours and print, by method{more}", caption, ["Figure", "Measure and data", *SIX], body, words=1)


def _distance(row: Agreement, method: str) -> float:
    """Of a method, under either of its names."""
    names = (method, UNCORRECTED) if method == "ignore" else (method,)
    return next((row.distances[name] for name in names if name in row.distances), math.nan)


class Differences(NamedTuple):
    """Ours less the public code's in one measure, one number for each cell, in points."""

    values: list[float]
    chance: float  # standard deviation of the differences that the few draws alone would give
    near: int  # cells in which both means differ by at most two standard errors
    expected: float  # how many would, if both were the same program

    @property
    def error(self) -> float:
        """Standard error of the mean over cells."""
        return self.chance / math.sqrt(len(self.values)) if self.values else math.nan


class CodeDifferences(NamedTuple):
    """Ours less the public code's for one method."""

    method: str
    errors: Differences
    finite: Differences  # test errors of the fits whose Q is finite
    q: Differences  # errors of Q; empty for ignore, which estimates none
    failed: tuple[int, int, int]  # fits of the public code whose Q is not finite; those of ours, and all of ours
    by_dataset: dict[str, float]  # mean difference of the test errors

    @property
    def comparable(self) -> Differences:
        """Test errors of fits that both can have: those whose Q is finite."""
        return self.finite if any(self.failed[:2]) else self.errors


def code_differences(cells: Sequence[Cell]) -> list[CodeDifferences]:
    """Ours less the public code's, by method, over all cells of a study in which the public code was run."""
    rows = []
    kept = [cell for cell in cells if cell.variant == UNIFORM]
    for method in methods_of(kept):
        both = [cell for cell in kept if method in cell.runs and code_summary(cell, method, "test_error").n]
        errors, q = (
            [cell_point(cell, method, metric, None, accuracy=False) for cell in both]
            for metric in ("test_error", "absolute")
        )
        by_dataset: dict[str, list[float]] = {}
        for cell, point in zip(both, errors, strict=True):
            by_dataset.setdefault(cell.task[0], []).append(point.from_code)
        runs = [run for cell in both for run in cell.runs[method]]
        not_finite = sum(not math.isfinite(run.metrics.get("absolute", math.nan)) for run in runs)
        failed = sum(code_summary(cell, method, "absolute").failed for cell in both)
        rows.append(
            CodeDifferences(
                method.replace(" (", EXACTLY).removesuffix(")"),
                _differences(errors),
                _differences([_finite_point(cell, method) for cell in both]),
                _differences([] if base_name(method) == "ignore" else q),
                (failed, not_finite, len(runs)),
                {name: _mean(values) for name, values in by_dataset.items()},
            )
        )
    return [row for row in rows if row.errors.values]


def _differences(points: Sequence[Point]) -> Differences:
    kept = [point for point in points if math.isfinite(point.from_code)]
    pairs = [(point.ours, point.code) for point in kept if point.ours and point.code]
    squares = [ours.error**2 + code.error**2 for ours, code in pairs]
    chance = math.sqrt(_mean(square for square in squares if math.isfinite(square)))
    near = [point.is_near_code for point in kept]
    return Differences([point.from_code for point in kept], chance, sum(near), sum(_expected(*pair) for pair in pairs))


def _expected(ours: Interval, code: Interval) -> float:
    """How probable it is that two means of the same program differ by at most two standard errors (Welch's t)."""
    square, theirs = ours.error**2, code.error**2
    if not (math.isfinite(square + theirs) and square + theirs):
        return float(square + theirs == 0)  # the same number in every draw; NaN where one has a single draw
    freedom = (square + theirs) ** 2 / (square**2 / (ours.draws - 1) + theirs**2 / (code.draws - 1))
    return float(1 - 2 * student.sf(2, freedom))


def _finite_point(cell: Cell, method: str) -> Point:
    """The test error over the fits whose Q is finite, ours and the public code's."""
    runs = [run for run in cell.runs[method] if math.isfinite(run.metrics.get("absolute", math.nan))]
    ours = summarise_draws(run.metrics["test_error"] for run in runs)
    code = code_summary(cell, method, "finite_error")
    both = (interval(each, is_accuracy=False) if each.n else None for each in (ours, code))
    return Point(100 * cell.rate, next(both), None, next(both))


def code_table(rows: Sequence[CodeDifferences]) -> PlainTable:
    """Ours less the public code's, the mean over cells with its standard error."""
    heads = ["Method", "Cells"]
    for name in ("Test error", "Test error, finite fits", "Error of Q"):
        heads += [f"{name}: difference", f"{name}: within 2 s.e."]
    heads.append("Q not finite: public code, ours")
    body = [
        [
            row.method,
            str(len(row.errors.values)),
            *_difference_texts(row.errors),
            *(_difference_texts(row.finite) if any(row.failed[:2]) else [DASH] * 2),
            *_difference_texts(row.q),
            f"{row.failed[0]}, {row.failed[1]} of {row.failed[2]}" if any(row.failed[:2]) else DASH,
        ]
        for row in rows
    ]
    caption = (
        "Ours less the public code's in percentage points: mean over cells (a data set with a noise shape and a level) "
        "± its standard error, from the spread over draws of both; § more than two standard errors from zero. Within "
        "2 s.e.: cells in which both means differ by at most two standard errors, and in brackets how many would if "
        "both were the same program (Welch's t). The public code: 1,368 fits on the windows of our study, three draws "
        "of noise in a cell, five of mixed and periodic noise. Ours: ten draws by default; the rows as in the paper's "
        "code or text are ours, trained exactly as published. By default continuous and discontinuous follow the text, "
        "so a difference there is also one of method. Fits of the public code whose Q is not finite predict the first "
        "class, and their test error counts; those of ours as in the code do the same. Finite fits: without them, on "
        "both sides."
    )
    return PlainTable("Ours less the public code", caption, heads, body)


def _difference_texts(found: Differences) -> list[str]:
    if not found.values:
        return [DASH] * 2
    mean, size = _mean(found.values), len(found.values)
    mark = "§" if abs(mean) > 2 * found.error else ""
    near = f"{share_text(found.near, size)} ({found.expected:.0f})"
    return [f"{signed_text(mean, 2)} ± {found.error:.2f}{mark}", near]


def code_dataset_table(rows: Sequence[CodeDifferences]) -> PlainTable:
    """Ours less the public code's test error, mean over the cells of each data set."""
    datasets = list(dict.fromkeys(name for row in rows for name in row.by_dataset))
    body = [[row.method, *(signed_text(row.by_dataset.get(name, math.nan)) for name in datasets)] for row in rows]
    caption = "Test error, ours less the public code's in points, mean over the cells of each data set."
    return PlainTable("Ours less the public code, by data set", caption, ["Method", *datasets], body)


def mean_text(values: Sequence[float]) -> str:
    """Mean ± standard deviation of differences."""
    if len(values) < 2:
        return DASH
    return f"{signed_text(_mean(values))} ± {np.std(values, ddof=1):.1f}"


def difference_table(matched: MatchedFigure) -> PlainTable:
    """Ours minus the paper's for each shape and method, then ours minus the public code's over all shapes."""
    methods = [name for name in matched.estimating if any(math.isfinite(p.difference) for p in matched.points(name))]
    shapes = dict.fromkeys(shape for shape, _ in matched.curves)
    rows = [[shape, *(_difference(matched.points(method, shape)) for method in methods)] for shape in shapes]
    rows.append(["all", *(_difference(matched.points(method)) for method in methods)])
    has_code = any(math.isfinite(point.from_code) for point in matched.points())
    if has_code:
        rows.append(["all, less the public code", *(_code_difference(matched.points(method)) for method in methods)])
    caption = (
        "Ours minus the paper's in points, mean over levels; in brackets the mean absolute difference and how many of "
        "our means lie in the paper's band."
    )
    if has_code:
        caption += " Last line: ours minus the public code's, and how many lie within two standard errors."
    return PlainTable(f"{matched.figure.number}: difference", caption, ["Noise", *map(shown_name, methods)], rows)


def _difference(points: Sequence[Point]) -> str:
    kept = [point for point in points if math.isfinite(point.difference)]
    if not kept:
        return DASH
    mean, size = _mean(p.difference for p in kept), _mean(abs(p.difference) for p in kept)
    return f"{signed_text(mean)} ({points_text(size)}; {share_text(sum(p.is_in_band for p in kept), len(kept))})"


def _code_difference(points: Sequence[Point]) -> str:
    kept = [point for point in points if math.isfinite(point.from_code)]
    if not kept:
        return DASH
    mean, size = _mean(p.from_code for p in kept), _mean(abs(p.from_code) for p in kept)
    return f"{signed_text(mean)} ({points_text(size)}; {share_text(sum(p.is_near_code for p in kept), len(kept))})"


def as_csv(rows: Sequence[Agreement]) -> str:
    """The table with one line for each figure, numbers unrounded enough to compute with."""
    names = list(dict.fromkeys([*SIX, *(method for row in rows for method in row.distances)]))
    titles = ["figure", "data", "data_are", "measure", "mean_absolute_difference", "mean_difference"]
    titles += [f"mean_absolute_difference of {name}" for name in names]
    titles += ["cells_and_methods", "in_band", "overlapping"]
    for pair in ("ours_less_public_code", "public_code_less_print"):
        titles += [f"{pair}: {what}" for what in ("cells_and_methods", "mean_absolute", "mean", "near")]
    lines: list[list[Any]] = [titles]
    for row in rows:
        distances = [_number(row.distances.get(name, math.nan)) for name in names]
        head = [row.name, row.data, row.origin, row.measure, _number(row.printed.size), _number(row.printed.signed)]
        others = [
            text
            for found in (row.code, row.between)
            for text in (found.points, _number(found.size), _number(found.signed), found.near)
        ]
        lines.append([*head, *distances, row.printed.points, row.printed.near, row.overlaps, *others])
    return csv_text(lines)


def print_and_code(cells: Sequence[Cell]) -> str:
    """How many printed numbers the public code and ours give, and whether both miss the same."""
    points = [table_point(cell, method, m) for cell in cells for method in SIX for m in ("test_error", "absolute")]
    points = [point for point in points if point.paper and point.code and point.ours]
    if not points:
        return ""
    off = [point for point in points if _is_far(point, point.code_metric)]
    ours = sum(bool(point.ours and not _is_far(point, point.ours.mean)) for point in points)
    given = len(points) - len(off)
    names, near = " and ".join(dict.fromkeys(cell.name for cell in cells)), sum(point.is_near_code for point in off)
    return (
        f"Of {len(points)} numbers that tables 2 and 3 print for {names}, the public code gives {given} "
        f"within two printed standard deviations, ours by default {ours}. In {near} of the {len(off)} that the public "
        "code misses, ours agrees with the public code within two standard errors."
    )


def _is_far(point: Point, value: float) -> bool:
    """Whether a number lies more than two printed standard deviations from the print."""
    return bool(point.paper and abs(value - point.paper.value) > 2 * (point.paper.upper - point.paper.value) + 1e-9)


def agreement_words(rows: Sequence[Agreement]) -> list[str]:
    """How far our figures lie from the paper's: a sentence on its own data, then one on substitutes."""
    kinds = (("On the paper's own data", False), ("On substitute data, not the paper's recordings", True))
    sentences = []
    for words, kind in kinds:
        kept = [row for row in rows if (row.origin == ORIGIN[False]) is kind and row.printed.points]
        figures = [row for row in kept if row.measure in (MEASURES[ACCURACY], MEASURES[MAE])]
        parts = []
        for measure, what in ((ACCURACY, "our accuracies"), (MAE, "our errors of Q")):
            found = [row.printed for row in figures if row.measure == MEASURES[measure]]
            points = sum(each.points for each in found)
            if points:
                mean = sum(each.size * each.points for each in found) / points
                bands = f"{sum(each.near for each in found):,} of {points:,} means in its bands"
                parts.append(f"{what} lie {mean:.1f} points from the published figures on average ({bands})")
        if parts:
            names = sorted({row.data.split(",")[0] for row in figures})
            sentences.append(f"{words} ({', '.join(names)}) {', '.join(parts)}.")
    return sentences


def code_words(rows: Sequence[CodeDifferences]) -> str:
    """The agreement with the public code by default: the methods that are level with it, then each other one."""
    if not rows:
        return ""
    level = [row for row in rows if abs(_mean(row.errors.values)) <= 2 * row.errors.error]
    parts = []
    if level:
        most = max(abs(_mean(row.errors.values)) for row in level)
        parts.append(
            f"By default the test errors of {', '.join(row.method for row in level)} differ from the public code's by "
            f"at most {most:.1f} points on average over {len(rows[0].errors.values)} cells."
        )
    for row in [row for row in rows if row not in level]:
        of_text = ", which minimises the objective of the text," if row.method in BY_TEXT else ""
        text = f"{row.method.capitalize()}{of_text} is {_better(row.errors)}"
        if row.failed[0] and row.finite.values:
            text += (
                f", and {_better(row.finite)} without the {row.failed[0]} fits of the public code whose Q is not finite"
            )
        parts.append(f"{text}.")
    return " ".join(parts)


def _better(found: Differences) -> str:
    mean = _mean(found.values)
    return f"{abs(mean):.1f} ± {found.error:.1f} points {'better' if mean < 0 else 'worse'}"


def exact_words(rows: Sequence[CodeDifferences]) -> str:
    """The agreement with the public code of ours trained exactly as in the code, in one sentence."""
    every = [found for row in rows for found in (row.comparable, row.q)]
    cells, near = sum(len(found.values) for found in every), sum(found.near for found in every)
    if not cells:
        return ""
    expected = sum(found.expected for found in every)
    return (
        f"Trained exactly as in the paper's code: of {cells} means, of test errors and errors of Q, {near} of ours lie "
        f"within two standard errors of the public code's; {expected:.0f} would if both were the same program."
    )


def points_text(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else DASH


def signed_text(value: float, digits: int = 1) -> str:
    if not math.isfinite(value):
        return DASH
    text = f"{value:+.{digits}f}"
    return text.replace("-", MINUS) if float(text) else text[1:]


def share_text(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else DASH


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else ""


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return float(np.mean(kept)) if kept else math.nan


def _origin(cells: Sequence[Cell]) -> str:
    kinds = {ORIGIN.get(cell.info.faithful, "") for cell in cells}
    return " and ".join(sorted(kinds - {""}, reverse=True))
