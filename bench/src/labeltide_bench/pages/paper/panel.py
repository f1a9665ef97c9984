"""One panel of a figure as a small SVG: our curves with intervals over the paper's with their bands.

The page lays panels out, so that a phone shows them below each other. Colours come from the classes of the page's
style sheet, `c-METHOD`, which also hides methods. Markers are parts of one path, for size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

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
        parts += [self._ours(curve) for curve in self.curves if not curve.is_paper]
        return (
            f'<svg role="img" aria-label="{escape(self.alt or self.title)}" viewBox="0 0 {WIDTH} {HEIGHT}">'
            f"{''.join(parts)}</svg>"
        )

    def _place(self, x: float, y: float, dodge: float = 0) -> tuple[float, float]:
        """Units of the drawing; what lies outside is put on the edge."""
        (low, high), (bottom, top) = self.x_range, self.y_range
        across = LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT) + DODGE * dodge
        share = min(max((y - bottom) / (top - bottom), 0), 1)
        return across, TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    def _axes(self) -> str:
        right, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
        lines = "".join(f"M{LEFT} {_u(self._place(self.x_range[0], y)[1])}H{right}" for y in self.y_ticks)
        lines += "".join(f"M{_u(self._place(x, self.y_range[0])[0])} {TOP}V{foot}" for x in self.x_ticks)
        texts = [f'<text x="{LEFT}" y="13" class="t">{escape(self.title)}</text>']
        texts += [
            f'<text x="{LEFT - 4}" y="{_u(self._place(0, y)[1] + 3.5)}" class="y">{y:g}</text>' for y in self.y_ticks
        ]
        texts += [f'<text x="{_u(self._place(x, 0)[0])}" y="{foot + 13}" class="x">{x:g}</text>' for x in self.x_ticks]
        texts.append(f'<text x="{(LEFT + right) / 2:g}" y="{HEIGHT - 6}" class="x">{escape(self.x_label)}</text>')
        return f'<path class="g" d="{lines}"/>{"".join(texts)}'

    def _line(self, curve: Curve, y: Numbers) -> str:
        """The path of a curve; a gap where a number is missing."""
        points = list(zip(curve.x, y, strict=True))
        parts: list[list[tuple[float, float]]] = [[]]
        for across, value in self._inside(points) if curve.leaves else points:
            if math.isfinite(value):
                parts[-1].append(self._place(across, value, curve.dodge))
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
            band = f'<path class="b" d="{_path([self._place(x, y, curve.dodge) for x, y in up + down])}z"/>'
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

    def _bar(self, curve: Curve, x: float, low: float, high: float) -> str:
        (left, bottom), (_, top) = self._place(x, low, curve.dodge), self._place(x, high, curve.dodge)
        return f"M{_u(left)} {_u(bottom)}v{_u(top - bottom)}" if bottom - top > 0.5 else ""

    def _mark(self, curve: Curve, x: float, y: float) -> str:
        """The marker of a point; an arrowhead at the edge where the value lies outside."""
        left, height = self._place(x, y, curve.dodge)
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
            self.beyond.append(f"{curve.name}{' (paper)' if curve.is_paper else ''} {values}")


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
    return tuple(round(step * place, 6) for place in range(math.ceil(top / step - 1e-9) + 1))


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A line through points: the first in full, the others as steps from the one before, which are shorter."""
    tenths = [(round(10 * x), round(10 * y)) for x, y in points]
    steps = [(x - before[0], y - before[1]) for before, (x, y) in itertools.pairwise(tenths)]
    drawn = "l" + " ".join(f"{_u(x / 10)} {_u(y / 10)}" for x, y in steps) if steps else ""
    return f"M{_u(tenths[0][0] / 10)} {_u(tenths[0][1] / 10)}{drawn}".replace(" -", "-")


def _u(value: float) -> str:
    """A coordinate with one decimal, without what can be left out."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
