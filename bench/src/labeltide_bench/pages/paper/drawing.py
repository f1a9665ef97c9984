"""The drawings of the page as small SVG: panels of curves, and bars."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from labeltide_bench.pages.cells import Cell
from labeltide_bench.pages.cost import method_in
from labeltide_bench.pages.figures import thinned, wrong
from labeltide_bench.pages.paper.sources import ACCURACY, SHAPES, MatchedFigure, Point, shown_name
from labeltide_bench.pages.style import fence

LOW = 0.05  # share of the paper's values below 60 % from which an axis begins at 50 %
TRUTH = "truth"


@dataclass(frozen=True)
class DrawnPanel:
    """The markup of a panel and what lies outside its axes."""

    svg: str
    beyond: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DrawnFigure:
    """A figure of the page."""

    number: str
    subject: str
    slug: str
    caption: str
    panels: list[DrawnPanel]


def key_of(method: str) -> str:
    """The class that colours a method: letters only, `ignore` for every name of no correction."""
    return "".join(c if c.isalnum() else "-" for c in shown_name(method)).strip("-")


def draw_matched(matched: MatchedFigure, caption: str) -> DrawnFigure:
    """Six panels, one for each shape, all with the same axes."""
    figure = matched.figure
    y_range, y_ticks = _accuracy_axis(matched) if figure.measure == ACCURACY else _error_axis(matched)
    names = ", ".join(map(shown_name, matched.methods))
    panels = []
    for shape in SHAPES:
        curves = [curve for method in matched.methods for curve in _curves(matched, shape, method)]
        alt = f"{figure.number}, {shape} noise: {figure.measure} of {names} against wrong labels."
        panel = Panel(shape, curves, y_range=y_range, y_ticks=y_ticks, alt=alt)
        panels.append(DrawnPanel(panel.svg(), panel.beyond))
    subject = figure.subject + (" (substitute data)" if matched.is_substitute else "")
    return DrawnFigure(figure.number, subject, figure.slug, caption, panels)


def panels_left(matched: MatchedFigure) -> list[str]:
    """The panels of the error of Q that ignore, which has no say in their axis, leaves at the top."""
    _, top = _error_axis(matched)[0]
    return [shape for shape in SHAPES if _highest(matched.points("ignore", shape)) > top]


def _highest(points: Sequence[Point]) -> float:
    values = [p.ours.mean for p in points if p.ours] + [p.paper.value for p in points if p.paper]
    return max(values, default=0.0)


def _curves(matched: MatchedFigure, shape: str, method: str) -> list[Curve]:
    points = matched.points(method, shape)
    key, leaves = key_of(method), method == "ignore" and matched.figure.measure != ACCURACY
    dodge = matched.methods.index(method) - (len(matched.methods) - 1) / 2
    found = []
    paper = [point.paper for point in points if point.paper]
    if paper:
        x, y = [value.wrong_percent for value in paper], [value.value for value in paper]
        band = [value.lower for value in paper], [value.upper for value in paper]
        found.append(Curve(key, shown_name(method), x, y, *band, is_paper=True, leaves=leaves))
    ours = [(point.wrong_percent, point.ours) for point in points if point.ours]
    if ours:
        x, y = [percent for percent, _ in ours], [interval.mean for _, interval in ours]
        bars = [interval.lower for _, interval in ours], [interval.upper for _, interval in ours]
        found.append(Curve(key, shown_name(method), x, y, *bars, marker=key, dodge=dodge, leaves=leaves))
    code = [(point.wrong_percent, point.code.mean) for point in points if point.code and not leaves]
    if code:
        x, y = [percent for percent, _ in code], [mean for _, mean in code]
        found.append(Curve(key, shown_name(method), x, y, is_code=True, dodge=dodge))
    return found


def _accuracy_axis(matched: MatchedFigure) -> tuple[tuple[float, float], tuple[float, ...]]:
    """From 60 to 100 % as in the paper; from 50 % where many of its own values lie below 60."""
    values = [point.paper.value for point in matched.points() if point.paper]
    bottom = 50 if np.mean(np.array(values) < 60) > LOW else 60
    return (bottom, 100), tuple(range(bottom, 101, 10))


def _error_axis(matched: MatchedFigure) -> tuple[tuple[float, float], tuple[float, ...]]:
    """From 0 to the largest error of Q that is no outlier; `ignore`, whose error is the rate itself, has no say."""
    methods = [method for method in matched.methods if method != "ignore"]
    points = [point for method in methods for point in matched.points(method)]
    ours, paper = [p.ours.mean for p in points if p.ours], [p.paper.value for p in points if p.paper]
    ticks = nice_ticks(max([fence(ours) if ours else 0, *paper]))
    return (0, ticks[-1]), ticks


def draw_noise_functions(cells: Sequence[Cell]) -> list[DrawnPanel]:
    """Figure 4: the share of wrong labels of both classes over the clock, the level nearest to 30 % drawn strong."""
    panels = []
    for shape in SHAPES:
        kept = [cell for cell in cells if cell.shape == shape and cell.true_noise is not None and cell.n_classes == 2]
        if not kept:
            continue
        strong = min(kept, key=lambda cell: abs(cell.rate - 0.3))
        curves = []
        for cell in [cell for cell in kept if cell is not strong] + [strong]:
            for code in range(2 if shape == "mixed" else 1):
                key = f"{TRUTH}-{'strong' if cell is strong else 'faint'}{code}"
                curves.append(_over_clock(cell, key, wrong(_known(cell.true_noise), code)))
        panel = Panel(shape, curves, (0, 1), (0, 50), (0, 0.5, 1), (0, 10, 20, 30, 40, 50), "clock", f"{shape} noise")
        panels.append(DrawnPanel(panel.svg()))
    return panels


def draw_depictions(cells: Sequence[Cell]) -> dict[str, str]:
    """Table 1: the curve of each shape alone, at the level nearest to 30 %."""
    drawn = {}
    for shape in SHAPES:
        kept = [cell for cell in cells if cell.shape == shape and cell.true_noise is not None and cell.n_classes == 2]
        if kept:
            cell = min(kept, key=lambda cell: abs(cell.rate - 0.3))
            curve = _over_clock(cell, f"{TRUTH}-strong0", wrong(_known(cell.true_noise), 0))
            drawn[shape] = Panel("", [curve], (0, 1), (0, 50), (), (0, 50), "", f"{shape} noise").svg()
    return drawn


def draw_estimates(cells: Sequence[Cell], methods: Sequence[str], classes: Sequence[int] = (0, 1)) -> list[DrawnPanel]:
    """Figure 2: the true share of wrong labels over the clock and each method's estimate, mean over draws."""
    panels = []
    for cell in cells:
        for code in classes:
            curves = []
            for method in methods:
                stack = cell.stack(method_in(cell, method), "noise")
                if stack is not None and stack.shape[1:] == _known(cell.true_noise).shape:
                    curves.append(_over_clock(cell, key_of(method), wrong(np.nanmean(stack, axis=0), code), method))
            curves.append(_over_clock(cell, f"{TRUTH}-dashed", wrong(_known(cell.true_noise), code)))
            top = nice_ticks(max(50.0, *(float(np.nanmax(curve.y)) for curve in curves)))
            clock = _known(cell.any_run.clock)
            ends = (float(clock[0]), float(clock[-1]))
            who = f"{cell.name.split(' (')[0]}, {cell.annotator}" if cell.annotator else f"{cell.shape} noise"
            title = f"{who}: {cell.class_names[code]}"
            ticks = [tick for tick in nice_ticks(ends[1]) if ends[0] <= tick <= ends[1]]
            panel = Panel(title, curves, ends, (0, top[-1]), ticks, top, cell.info.clock or "clock", title)
            panels.append(DrawnPanel(panel.svg()))
    return panels


def _over_clock(cell: Cell, key: str, values: np.ndarray, name: str = "") -> Curve:
    clock = _known(cell.any_run.clock)
    steps = thinned(len(clock))
    return Curve(key, name, clock[steps].tolist(), values[steps].tolist())


def _known(array: np.ndarray | None) -> np.ndarray:
    if array is None:
        raise ValueError("This figure needs records with curves over the clock. Do not pack them with --no-arrays.")
    return array


IN_STRESS = ("ignore", "volmin", "discontinuous", "continuous", "tide")


def draw_people_curves(cells: Sequence[Cell]) -> list[DrawnPanel]:
    """Counted and estimated noise of the annotator whose noise changes most, for each data set."""
    panels = []
    kept = [cell for cell in cells if cell.true_noise is not None and cell.any_run.clock is not None]
    for name in dict.fromkeys(cell.name for cell in kept):
        most = max((cell for cell in kept if cell.name == name), key=lambda cell: cell.any_run.observed_change)
        panels += draw_estimates([most], IN_STRESS, range(most.n_classes))
    return panels


DOT_WIDTH, DOT_ROW, DOT_LEFT, DOT_RIGHT, DOT_TOP = 380, 22, 88, 112, 34
SQUARE = "m-3-3h6v6h-6z"  # of the public code, drawn hollow


def draw_dots(title: str, points: Sequence[tuple[str, Point]]) -> str:
    """One method a row: the print as a mark with a band, the public code as a hollow square, ours as a disc.

    The numbers stand on the right, so that the drawing is the table too.
    """
    sources = [each for _, point in points for each in (point.ours, point.code) if each is not None and each.draws > 0]
    highest = [each.upper for each in sources] + [point.paper.upper for _, point in points if point.paper]
    ticks = nice_ticks(max([*highest, 1.0]))
    foot, right = DOT_TOP + DOT_ROW * len(points), DOT_WIDTH - DOT_RIGHT

    def x_of(value: float) -> float:
        return DOT_LEFT + min(max(value / ticks[-1], 0), 1) * (right - DOT_LEFT)

    parts = [f'<text x="0" y="12" class="t">{escape(title)}</text>']
    columns = [right + 36 * (number + 1) for number in range(3)]
    parts += [
        f'<text x="{x}" y="{DOT_TOP - 6}" class="y">{name}</text>'
        for x, name in zip(columns, ("print", "code", "ours"), strict=True)
    ]
    parts.append(f'<path class="g" d="{"".join(f"M{x_of(tick):.1f} {DOT_TOP}V{foot}" for tick in ticks)}"/>')
    parts += [f'<text x="{x_of(tick):.1f}" y="{foot + 13}" class="x">{tick:g}</text>' for tick in ticks]
    for row, (name, point) in enumerate(points):
        parts.append(_dot_row(name, point, DOT_TOP + DOT_ROW * row, columns, x_of))
    alt = f"{title}: " + "; ".join(f"{name} {', '.join(_dot_texts(point))}" for name, point in points)
    return f'<svg role="img" aria-label="{escape(alt)}" viewBox="0 0 {DOT_WIDTH} {foot + 20}">{"".join(parts)}</svg>'


def _dot_row(name: str, point: Point, top: float, columns: Sequence[float], x_of: Callable[[float], float]) -> str:
    middle, drawn = top + DOT_ROW / 2, []
    if point.paper:
        low, high = x_of(point.paper.lower), x_of(point.paper.upper)
        drawn.append(
            f'<g class="p"><rect class="b" x="{low:.1f}" y="{top + 3:g}" width="{max(high - low, 1):.1f}" '
            f'height="{DOT_ROW - 6}"/>'
            f'<path class="d" d="M{x_of(point.paper.value):.1f} {top + 2:g}v{DOT_ROW - 4}"/></g>'
        )
    if point.code:
        bar = f"M{x_of(point.code.lower):.1f} {middle + 3:g}H{x_of(point.code.upper):.1f}"
        drawn.append(f'<g class="q"><path class="e" d="{bar}"/>')
        drawn.append(f'<path class="s" d="M{x_of(point.code.mean):.1f} {middle + 3:g}{SQUARE}"/></g>')
    if point.ours:
        bar = f"M{x_of(point.ours.lower):.1f} {middle - 3:g}H{x_of(point.ours.upper):.1f}"
        drawn.append(f'<g class="o"><path class="e" d="{bar}"/>')
        drawn.append(f'<circle class="f" cx="{x_of(point.ours.mean):.1f}" cy="{middle - 3:g}" r="3.6"/></g>')
    texts = [
        f'<text x="{x}" y="{middle + 4:g}" class="y{" strong" if number == 2 else ""}">{text}</text>'
        for number, (x, text) in enumerate(zip(columns, _dot_texts(point), strict=True))
    ]
    label = f'<text x="{DOT_LEFT - 6}" y="{middle + 4:g}" class="y">{escape(name)}</text>'
    return f'{label}<g class="c-{key_of(name)}">{"".join(drawn)}</g>{"".join(texts)}'


def _dot_texts(point: Point) -> list[str]:
    values = [point.paper.value if point.paper else None, *(each and each.mean for each in (point.code, point.ours))]
    return ["\N{EN DASH}" if value is None else f"{value:.1f}" for value in values]


STRIP_ROW = 34


def draw_strips(title: str, groups: Sequence[tuple[str, Sequence[float], str]], reach: float) -> DrawnPanel:
    """Differences of cells by method: a dot for each cell, and the mean with one standard deviation to each side."""
    foot, right = DOT_TOP + STRIP_ROW * len(groups), DOT_WIDTH - DOT_RIGHT + 30
    beyond = []

    def x_of(value: float) -> float:
        return DOT_LEFT + (min(max(value, -reach), reach) / reach + 1) / 2 * (right - DOT_LEFT)

    ticks = np.linspace(-reach, reach, 5)
    parts = [f'<text x="0" y="12" class="t">{escape(title)}</text>']
    parts.append(f'<path class="g" d="{"".join(f"M{x_of(tick):.1f} {DOT_TOP}V{foot}" for tick in ticks)}"/>')
    parts.append(f'<path class="zero" d="M{x_of(0):.1f} {DOT_TOP - 4}V{foot}"/>')
    parts += [
        f'<text x="{x_of(tick):.1f}" y="{foot + 13}" class="x">{f"{tick:+g}" if tick else "0"}</text>'.replace(
            ">-", ">\N{MINUS SIGN}"
        )
        for tick in ticks
    ]
    for row, (name, values, text) in enumerate(groups):
        middle = DOT_TOP + STRIP_ROW * (row + 0.5)
        outside = [value for value in values if abs(value) > reach]
        if outside:
            low, high = min(outside), max(outside)
            words = (
                f"{len(outside)} cells from {low:+.0f} to {high:+.0f}"
                if len(outside) > 1
                else f"one cell at {low:+.0f}"
            )
            beyond.append(f"{name} {words}".replace("-", "\N{MINUS SIGN}"))
        stacked: dict[int, int] = {}
        dots = []
        for value in sorted((value for value in values if abs(value) <= reach), key=abs):
            column = round(x_of(value) / 3.2)
            level = stacked[column] = stacked.get(column, 0) + 1
            dots.append(f'<circle cx="{x_of(value):.1f}" cy="{middle + 11 - 2.6 * level:.1f}" r="1.5"/>')
        mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        bar = f"M{x_of(mean - spread):.1f} {middle + 13:g}H{x_of(mean + spread):.1f}"
        parts.append(f'<text x="{DOT_LEFT - 6}" y="{middle + 4:g}" class="y">{escape(name)}</text>')
        parts.append(
            f'<g class="c-{key_of(name)}"><g class="o"><g class="dots">{"".join(dots)}</g>'
            f'<path class="spread" d="{bar}"/>'
            f'<path class="k" d="M{x_of(mean):.1f} {middle + 13:g}m-3 0l3-4 3 4-3 4z"/></g></g>'
        )
        parts.append(f'<text x="{DOT_WIDTH}" y="{middle + 4:g}" class="y strong">{text}</text>')
    alt = f"{title}: " + "; ".join(f"{name} {text}" for name, _, text in groups)
    markup = f'<svg role="img" aria-label="{escape(alt)}" viewBox="0 0 {DOT_WIDTH} {foot + 20}">{"".join(parts)}</svg>'
    return DrawnPanel(markup, beyond)


WIDTH, HEIGHT = 330, 226
LEFT, RIGHT, TOP, BOTTOM = 33, 8, 20, 34  # around the drawing area
DODGE = 0.9  # units by which methods stand beside each other, so that bars do not hide each other

Numbers = Sequence[float]


@dataclass(frozen=True)
class Curve:
    """A line over x; with `lower` and `upper` as bars for ours, as a band for the paper's."""

    key: str  # class of its colour
    name: str
    x: Numbers
    y: Numbers
    lower: Numbers = ()
    upper: Numbers = ()
    is_paper: bool = False
    is_code: bool = False  # of the paper's public code: hollow squares and no line
    marker: str = ""
    dodge: float = 0
    leaves: bool = False  # may leave the panel without a mark


@dataclass(frozen=True)
class Panel:
    """Axes and curves."""

    title: str
    curves: Sequence[Curve]
    x_range: tuple[float, float] = (0, 42)
    y_range: tuple[float, float] = (60, 100)
    x_ticks: Numbers = (0, 10, 20, 30, 40)
    y_ticks: Numbers = (60, 70, 80, 90, 100)
    x_label: str = "wrong labels (%)"
    alt: str = ""
    beyond: list[str] = field(default_factory=list)  # filled by drawing: what lies outside, in words

    def svg(self) -> str:
        """The drawing; `beyond` then lists the values that were put at the edge."""
        self.beyond.clear()
        parts = [self._axes(), *(self._paper(curve) for curve in self.curves if curve.is_paper)]
        parts += [self._ours(curve) for curve in self.curves if not (curve.is_paper or curve.is_code)]
        parts += [self._code(curve) for curve in self.curves if curve.is_code]
        return (
            f'<svg role="img" aria-label="{escape(self.alt or self.title)}" viewBox="0 0 {WIDTH} {HEIGHT}">'
            f"{''.join(parts)}</svg>"
        )

    def _point(self, x: float, y: float, dodge: float = 0) -> tuple[float, float]:
        """Units of the drawing; what lies outside is put on the edge."""
        (low, high), (bottom, top) = self.x_range, self.y_range
        across = LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT) + DODGE * dodge
        share = min(max((y - bottom) / (top - bottom), 0), 1)
        return across, TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    def _axes(self) -> str:
        right, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
        lines = "".join(f"M{LEFT} {_u(self._point(self.x_range[0], y)[1])}H{right}" for y in self.y_ticks)
        lines += "".join(f"M{_u(self._point(x, self.y_range[0])[0])} {TOP}V{foot}" for x in self.x_ticks)
        texts = [f'<text x="{LEFT}" y="13" class="t">{escape(self.title)}</text>']
        texts += [
            f'<text x="{LEFT - 4}" y="{_u(self._point(0, y)[1] + 3.5)}" class="y">{y:g}</text>' for y in self.y_ticks
        ]
        texts += [f'<text x="{_u(self._point(x, 0)[0])}" y="{foot + 13}" class="x">{x:g}</text>' for x in self.x_ticks]
        texts.append(f'<text x="{(LEFT + right) / 2:g}" y="{HEIGHT - 6}" class="x">{escape(self.x_label)}</text>')
        return f'<path class="g" d="{lines}"/>{"".join(texts)}'

    def _line(self, curve: Curve, y: Numbers) -> str:
        """The path of a curve; a gap where a number is missing."""
        points = list(zip(curve.x, y, strict=True))
        parts: list[list[tuple[float, float]]] = [[]]
        for across, value in self._inside(points) if curve.leaves else points:
            if math.isfinite(value):
                parts[-1].append(self._point(across, value, curve.dodge))
            else:
                parts.append([])
        return "".join(_path(part) for part in parts if part)

    def _inside(self, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """The part of a curve up to where it leaves the panel at the top."""
        top = self.y_range[1]
        kept: list[tuple[float, float]] = []
        for x, y in points:
            if y > top:
                if kept:
                    left, low = kept[-1]
                    kept.append((left + (top - low) / (y - low) * (x - left), top))
                break
            kept.append((x, y))
        return kept

    def _paper(self, curve: Curve) -> str:
        band = ""
        if len(curve.lower) and not curve.leaves:
            up = list(zip(curve.x, curve.upper, strict=True))
            down = list(zip(curve.x, curve.lower, strict=True))[::-1]
            edge = [self._point(x, y, curve.dodge) for x, y in up + down]
            band = f'<path class="b" d="{_path(edge, per_unit=1)}z"/>'
        self._note(curve)
        return f'<g class="p c-{curve.key}">{band}<path class="d" d="{self._line(curve, curve.y)}"/></g>'

    def _ours(self, curve: Curve) -> str:
        bars = [(x, low, high) for x, low, high in zip(curve.x, curve.lower, curve.upper, strict=False)]
        marks = [self._mark(curve, x, y) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(y)]
        self._note(curve)
        drawn = f'<path class="e" d="{"".join(self._bar(curve, *bar) for bar in bars)}"/>' if bars else ""
        drawn += f'<path class="l" d="{self._line(curve, curve.y)}"/>'
        drawn += f'<path class="k" d="{"".join(marks)}"/>' if any(marks) else ""
        return f'<g class="o c-{curve.key}">{drawn}</g>'

    def _code(self, curve: Curve) -> str:
        self._note(curve)
        points = [self._point(x, y, curve.dodge) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(y)]
        marks = "".join(f"M{_u(left)} {_u(height)}{SQUARE}" for left, height in points)
        return f'<g class="q c-{curve.key}"><path class="s" d="{marks}"/></g>'

    def _bar(self, curve: Curve, x: float, low: float, high: float) -> str:
        (left, bottom), (_, top) = self._point(x, low, curve.dodge), self._point(x, high, curve.dodge)
        return f"M{_u(left)} {_u(bottom)}v{_u(top - bottom)}" if bottom - top > 0.5 else ""

    def _mark(self, curve: Curve, x: float, y: float) -> str:
        """The marker of a point; an arrowhead at the edge where the value lies outside."""
        left, height = self._point(x, y, curve.dodge)
        if self._is_outside(y):
            if curve.leaves:
                return ""
            turn = 1 if y < self.y_range[0] else -1
            return f"M{_u(left - 4)} {_u(height - 7 * turn)}h8l-4 {7 * turn}z"
        return f"M{_u(left)} {_u(height)}{MARKERS.get(curve.marker, MARKERS['ignore'])}" if curve.marker else ""

    def _is_outside(self, y: float) -> bool:
        return y < self.y_range[0] - 1e-9 or y > self.y_range[1] + 1e-9

    def _note(self, curve: Curve) -> None:
        if curve.leaves:
            return
        outside = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(y) and self._is_outside(y)]
        if outside:
            values = ", ".join(f"{y:.1f} at {x:g}" for x, y in outside)
            self.beyond.append(
                f"{curve.name}{' (paper)' if curve.is_paper else ' (public code)' if curve.is_code else ''} {values}"
            )


# Relative paths that start at the middle of the point; short, for a page holds some 6,000 of them.
MARKERS = {
    "ignore": "m-3-1h6v2h-6z",
    "anchor": "m-2-2h4v4h-4z",
    "volmin": "m-3 2h6l-3-5z",
    "plugin": "m-3 0l3-3 3 3-3 3z",
    "discontinuous": "m-3-2h6l-3 5z",
    "continuous": "m-1-3h2l2 2v2l-2 2h-2l-2-2v-2z",
    "forward--temporal-Q": "m-1-3h2l2 2v2l-2 2h-2l-2-2v-2z",
    "forward--static-Q": "m-2-2h4v4h-4z",
    "backward--temporal-Q": "m-3 2h6l-3-5z",
    "backward--static-Q": "m-3 0l3-3 3 3-3 3z",
    "tide": "m0-4l1 3 3 1-3 1-1 3-1-3-3-1 3-1z",
}


def nice_ticks(top: float) -> tuple[float, ...]:
    """Ticks from zero to just above a largest value."""
    step = next(
        step for power in range(-3, 4) for step in (10.0**power, 2 * 10.0**power, 5 * 10.0**power) if top <= 5 * step
    )
    return tuple(round(step * index, 6) for index in range(math.ceil(top / step - 1e-9) + 1))


def _path(points: Sequence[tuple[float, float]], per_unit: int = 10) -> str:
    """A line through points: the first in full, the others as steps from the one before, which are shorter."""
    whole = [(round(per_unit * x), round(per_unit * y)) for x, y in points]
    steps = [(x - before[0], y - before[1]) for before, (x, y) in itertools.pairwise(whole)]
    drawn = "l" + " ".join(f"{_u(x / per_unit)} {_u(y / per_unit)}" for x, y in steps) if steps else ""
    return f"M{_u(whole[0][0] / per_unit)} {_u(whole[0][1] / per_unit)}{drawn}".replace(" -", "-")


def _u(value: float) -> str:
    """A coordinate with one decimal, without what can be left out."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
