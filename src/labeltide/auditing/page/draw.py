"""The drawings of the page: the error rate over the clock, Q as small multiples, annotators side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from labeltide.auditing.page.format import Clock, display_name, nice_step, numbers, percent, read_numbers
from labeltide.auditing.page.verdict import change_sentence, is_noisy, is_temporal

PANELS = 12  # classes or annotators drawn; the other files of the audit have all
GRID = 6  # classes up to which all of Q is drawn
ENDS = ("", "_lower", "_upper", "_simultaneous_lower", "_simultaneous_upper")
PAIRS = 18  # entries of a larger Q that are drawn, the largest first


@dataclass(frozen=True)
class Panel:
    """A drawing with its name; `detail` is a number in words."""

    name: str
    drawing: Markup
    detail: str = ""
    colour: int = -1
    sentence: str = ""


class Drawer:
    """Draws from one audit."""

    def __init__(self, audit: Mapping[str, Any]) -> None:
        self.audit = audit
        self.clock = Clock.read(audit["clock"])
        self.points = numbers(audit["noise"].get("clock"))
        self.curves: list[Mapping[str, Any]] = [curve for curve in audit["noise"].get("curves") or []]
        self.classes: list[str] = [str(name) for name in audit["table"]["classes"]]
        self.ends = self.clock.range(self.points.tolist())

    @property
    def can_draw(self) -> bool:
        return bool(len(self.points) and self.curves)

    def overall(self) -> list[Panel]:
        """The error rate of all labels, once for wide and once for narrow screens."""
        values, *band = self.line(self.curves[0])
        sentence = change_sentence(self.audit["temporality"], self.clock, self.ends) if is_noisy(self.audit) else ""
        panels = []
        for name, size in (("wide", WIDE), ("narrow", NARROW)):
            curve = Curve(values, [band], marks=self._marks(size))
            drawing = self._draw(curve, "Share of wrong labels over the clock", top_of(values, band[1]), size)
            panels.append(Panel(name, drawing, sentence=sentence))
        return panels

    def by_class(self) -> list[Panel]:
        """How often each true class is recorded as another, all on one scale."""
        rates, *limits = self.class_rates()
        top = top_of(rates, limits[1], limits[3])
        order = list(range(len(rates)))
        if len(rates) > PANELS:  # the worst first where not all can be drawn
            means = np.array([np.nanmean(rate) if np.isfinite(rate).any() else -1.0 for rate in rates])
            order = np.argsort(-means, kind="stable")[:PANELS].tolist()
        panels = []
        for index in order:
            lower, upper, far_lower, far_upper = (each[index] for each in limits)
            curve = Curve(rates[index], [(far_lower, far_upper), (lower, upper)], index)
            what = f"True {display_name(self.classes[index])} recorded as another class"
            panels.append(Panel(self.classes[index], self._draw(curve, what, top), _mean(rates[index]), index))
        return panels

    def annotators(self) -> list[Panel]:
        """The error rate of each annotator, all on one scale."""
        curves = [curve for curve in self.curves if curve.get("annotator") is not None][:PANELS]
        lines = [self.line(curve) for curve in curves]
        top = top_of(*(part for values, _, upper in lines for part in (values, upper))) if lines else 1.0
        tests = {str(each["annotator"]): each for each in self.audit["temporality"].get("per_annotator") or []}
        panels = []
        for curve, (values, *band) in zip(curves, lines, strict=True):
            name = str(curve["annotator"])
            drawing = self._draw(Curve(values, [band]), f"Wrong labels of annotator {display_name(name)}", top)
            known = name in tests and is_noisy(self.audit)
            sentence = change_sentence(tests[name], self.clock, self.ends) if known else ""
            panels.append(Panel(name, drawing, _mean(values), sentence=sentence))
        return panels

    def _draw(self, curve: Curve, what: str, top: float, size: tuple[int, int] | None = None) -> Markup:
        """A curve over the clock; `what` it is begins its description for those who do not see it."""
        alt = f"{what}: {alt_text(curve.values, self.points, self.clock)}."
        return draw_svg([curve], self.points, Frame(self.clock, self.ends, top, size or NARROW), alt)

    def agreement(self) -> Markup | None:
        """Fleiss' kappa over the clock."""
        agreement = self.audit.get("agreement") or {}
        points, values = numbers(agreement.get("clock")), numbers(agreement.get("fleiss_over_clock"))
        if not len(points) or len(points) != len(values) or not np.isfinite(values).any():
            return None
        high, low = int(np.nanargmax(values)), int(np.nanargmin(values))
        at = [self.clock.moment(float(points[index])) for index in (high, low)]
        alt = f"Fleiss' kappa over the clock: highest {values[high]:.2f} {at[0]}, lowest {values[low]:.2f} {at[1]}."
        frame = Frame(self.clock, self.ends, 1.0, NARROW, is_share=False)
        return draw_svg([Curve(np.clip(values, 0, 1))], points, frame, alt)

    def multiples(self) -> list[dict[str, Any]]:
        """Q of all together, then of each annotator: a grid of true and recorded classes, or the largest mistakes."""
        return [self._multiples(curve) for curve in self.curves[: 1 + PANELS // 2]]

    def _multiples(self, curve: Mapping[str, Any]) -> dict[str, Any]:
        count = len(self.classes)
        shape = len(self.points), count, count
        mean, lower, upper = (_of_shape(curve.get(name), shape) for name in ("mean", "lower", "upper"))
        off = ~np.eye(count, dtype=bool)
        top = top_of(mean[:, off], upper[:, off]) if count > 1 else 1.0

        def panel(true: int, recorded: int) -> Panel:
            values, band = mean[:, true, recorded], (lower[:, true, recorded], upper[:, true, recorded])
            what = f"True {display_name(self.classes[true])} recorded as {display_name(self.classes[recorded])}"
            drawing = self._draw(Curve(values, [band], true), what, 1.0 if true == recorded else top, SMALL)
            return Panel("", drawing, _mean(values))

        found = {"annotator": curve.get("annotator"), "names": self.classes, "top": percent(top)}
        found |= {"grid": [], "pairs": []}
        if count <= GRID:
            return found | {"grid": [[panel(true, recorded) for recorded in range(count)] for true in range(count)]}
        size = np.where(off, np.nan_to_num(mean, nan=0.0).max(axis=0), -1)
        order = np.argsort(-size, axis=None, kind="stable")[:PAIRS]
        cells = [divmod(int(index), count) for index in order]
        pairs = [(self.classes[true], self.classes[recorded], panel(true, recorded)) for true, recorded in cells]
        return found | {"pairs": pairs}

    def line(self, curve: Mapping[str, Any]) -> list[np.ndarray]:
        """The error rate over the clock and the ends of its band."""
        return [_of_shape(curve.get(f"rate{end}"), self.points.shape) for end in ENDS[:3]]

    def class_rates(self) -> list[np.ndarray]:
        """The error rates of the true classes, and the ends of their two bands: (classes, moments) each."""
        shape = len(self.classes), len(self.points)
        return [_of_shape(self.curves[0].get(f"class_rate{end}"), shape) for end in ENDS]

    def _marks(self, size: tuple[int, int]) -> list[tuple[float, float, str]]:
        """The worst and the best moment, where the change is sure."""
        test, marks = self.audit["temporality"], list[tuple[float, float, str]]()
        for word in ("worst", "best") if is_temporal(self.audit) else ():
            moment, share = read_numbers(test, f"{word}_at", f"{word}_rate")
            if np.isfinite([moment, share]).all() and self.ends[0] <= moment <= self.ends[1]:
                at = self.clock.short(moment)
                marks.append((moment, share, f"{word}: {percent(share)} at {at}" if size == WIDE else f"{word} {at}"))
        return marks


def _of_shape(content: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers, or all unknown where they are missing."""
    values = numbers(content)
    return values if values.shape == shape else np.full(shape, np.nan)


def _mean(values: np.ndarray) -> str:
    return percent(float(np.nanmean(values))) if np.isfinite(values).any() else "no estimate"


# Curves over the clock as small SVG drawings in the page's own colours; they need no script and print as they are.

POINTS = 200  # on a line of the widest drawing
WIDE, NARROW, SMALL = (900, 270), (350, 220), (200, 116)


@dataclass(frozen=True)
class Curve:
    """A line over the clock with its bands, widest first."""

    values: np.ndarray
    bands: Sequence[Sequence[np.ndarray]] = ()  # lower and upper ends, at most two
    colour: int = -1  # number of the class, -1 for the page's accent
    marks: Sequence[tuple[float, float, str]] = field(default=())  # moment, height, words
    dashed: bool = False


@dataclass(frozen=True)
class Frame:
    """The axes: where a moment of the clock and a share lie in the drawing."""

    clock: Clock
    ends: tuple[float, float]
    top: float
    size: tuple[int, int]
    is_share: bool = True  # in percent; else plain numbers

    @property
    def margins(self) -> tuple[int, int, int, int]:  # left, right, top, bottom
        return (36, 8, 6, 18) if self.size == SMALL else (44, 18, 10, 40)

    def x(self, value: np.ndarray | float) -> np.ndarray:
        left, right, _, _ = self.margins
        low, high = self.ends
        return left + (np.asarray(value, float) - low) / (high - low) * (self.size[0] - left - right)

    def y(self, share: np.ndarray | float) -> np.ndarray:
        _, _, top, bottom = self.margins
        return self.size[1] - bottom - np.asarray(share, float) / self.top * (self.size[1] - top - bottom)


def top_of(*curves: np.ndarray) -> float:
    """The end of a shared axis of shares, at least 5 % and at most 100 %."""
    finite = [float(np.nanmax(curve)) for curve in curves if np.isfinite(curve).any()]
    highest = max([0.05, *finite])
    step = nice_step(highest / 5)
    return min(1.0, step * np.ceil(highest / step - 1e-9))


def draw_svg(curves: Sequence[Curve], points: np.ndarray, frame: Frame, alt: str) -> Markup:
    """One drawing: axes with their unit, bands, lines, marks."""
    keep = thinned(len(points), POINTS if frame.size == WIDE else POINTS // 2)
    body = [_small_axes(frame) if frame.size == SMALL else _axes(frame)]
    for curve in curves:
        looks = ("far", "near")[2 - len(curve.bands) :]
        parts = [_area(frame, points, band, keep, look) for band, look in zip(curve.bands, looks, strict=True)]
        look = "line dashed" if curve.dashed else "line"
        parts.append(f'<path class="{look}" d="{line_path(frame.x(points[keep]), frame.y(curve.values[keep]))}"/>')
        parts += [_mark(frame, *mark) for mark in curve.marks]
        body.append(f'<g class="curve c{curve.colour % 10 if curve.colour >= 0 else "x"}">{"".join(parts)}</g>')
    (width, height), about = frame.size, ""
    if frame.size != SMALL:  # for the page's script to read a curve back: the box, and the values at its ends
        left, right, top, bottom = frame.margins
        axes = (left, width - right, top, height - bottom, *frame.ends, frame.top)
        ends = " ".join(f"{float(end):.10g}" for end in axes)
        kind = frame.clock.kind if frame.clock.kind in ("hour_of_day", "day_of_week", "position") else "number"
        share = ' data-share="1"' if frame.is_share else ""
        about = f' data-axes="{ends}" data-kind="{kind}"{share}'
    head = Markup('<svg role="img" viewBox="0 0 {} {}" aria-label="{}"{}>').format(width, height, alt, Markup(about))
    return head + Markup("".join(body)) + Markup("</svg>")


def draw_shifts(shifts: Mapping[str, Any]) -> Markup | None:
    """How well labels fit the signals at each shift, with the best one marked."""
    curve = shifts.get("curve") or {}
    points, values = numbers(curve.get("shift")), numbers(curve.get("fit"))
    if len(points) < 2 or len(points) != len(values) or not np.isfinite(values).any():
        return None
    best = int(np.nanargmax(values))
    clock = Clock("column", "shift of the labels, positive: late", "steps", None)
    frame = Frame(clock, (float(points[0]), float(points[-1])), top_of(values), WIDE)
    mark = (float(points[best]), float(values[best]), f"best at {points[best]:+.0f}")
    alt = f"Share of the signals' variance that labels explain at each shift: largest at {points[best]:.0f} steps."
    return draw_svg([Curve(values, marks=[mark])], points, frame, alt)


def thinned(n: int, most: int) -> np.ndarray:
    """At most so many of the indices below n, the first and the last among them: int of shape (kept,)."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def line_path(x: np.ndarray, y: np.ndarray) -> str:
    """Lines between known points as an SVG path; a gap lifts the pen."""
    known = np.isfinite(x) & np.isfinite(y)
    pens = np.where(np.append(False, known)[:-1], "L", "M")
    lines = zip(pens[known], x[known], y[known], strict=True)
    return "".join(f"{pen}{across:.1f} {down:.1f}" for pen, across, down in lines)


def alt_text(values: np.ndarray, points: np.ndarray, clock: Clock) -> str:
    """What a curve says, for those who do not see it."""
    if not np.isfinite(values).any():
        return "no estimate"
    high, low = int(np.nanargmax(values)), int(np.nanargmin(values))
    ends = [f"{percent(float(values[index]))} {clock.moment(float(points[index]))}" for index in (high, low)]
    return f"{percent(float(np.nanmean(values)))} on average, highest {ends[0]}, lowest {ends[1]}"


def _area(frame: Frame, points: np.ndarray, band: Sequence[np.ndarray], keep: np.ndarray, look: str) -> str:
    lower, upper = (np.clip(end[keep], 0, frame.top) for end in band)
    known = np.isfinite(lower) & np.isfinite(upper)
    paths = []
    for run in np.split(np.arange(len(keep)), np.flatnonzero(np.diff(known)) + 1):
        if len(run) and known[run[0]]:
            x = frame.x(points[keep[run]])
            there = line_path(x, frame.y(upper[run]))
            back = line_path(x[::-1], frame.y(lower[run])[::-1])
            paths.append(f"{there}L{back[1:]}Z")
    return f'<path class="band {look}" d="{"".join(paths)}"/>' if paths else ""


def _axes(frame: Frame) -> str:
    width, height = frame.size
    left, right, _, bottom = frame.margins
    floor, parts = height - bottom, []
    step = nice_step(frame.top / (5 if height > 180 else 3))
    for number in range(round(frame.top / step) + 1):
        y = float(frame.y(number * step))
        label = f"{100 * number * step:.4g} %" if frame.is_share else f"{number * step:.2g}"
        parts.append(f'<path class="grid" d="M{left} {y:.1f}H{width - right}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for value in frame.clock.ticks(*frame.ends, 12 if width > 500 else 4):
        x = float(frame.x(value))
        parts.append(f'<path class="tick" d="M{x:.1f} {floor}v4"/>')
        parts.append(f'<text x="{x:.1f}" y="{floor + 17}" text-anchor="middle">{frame.clock.short(value)}</text>')
    parts.append(f'<path class="axis" d="M{left} {floor}H{width - right}"/>')
    title = Markup('<text class="title" x="{}" y="{}" text-anchor="end">{}</text>')
    parts.append(str(title.format(width - right, height - 6, frame.clock.title)))
    return "".join(parts)


def _small_axes(frame: Frame) -> str:
    """The ends of both axes only."""
    width, height = frame.size
    left, right, top, bottom = frame.margins
    floor, half = height - bottom, float(frame.y(frame.top / 2))
    text = '<text class="small" x="{}" y="{}" text-anchor="{}">{}</text>'
    ends = [frame.clock.short(end) for end in frame.ends]
    labels = [
        text.format(left - 4, top + 8, "end", f"{100 * frame.top:.3g} %"),
        text.format(left - 4, floor, "end", "0 %"),
        text.format(left, height - 5, "start", ends[0]),
        text.format(width - right, height - 5, "end", ends[1]),
    ]
    box = f"M{left} {top}H{width - right}V{floor}H{left}ZM{left} {half:.1f}H{width - right}"
    return f'<path class="grid" d="{box}"/>{"".join(labels)}'


def _mark(frame: Frame, moment: float, share: float, words: str) -> str:
    """A point with its words: above a peak, below a dip where there is room, and within the drawing."""
    width, height = frame.size
    left, right, top, bottom = frame.margins
    x, y = float(frame.x(moment)), float(frame.y(share))
    is_dip = share < frame.top / 2
    down = (26 if height - bottom - y > 34 else -22) if is_dip else (-16 if y - top > 24 else 28)
    half = 3.6 * len(words)
    across = min(max(x, left + half), width - right - half)
    text = Markup('<text class="mark" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>')
    return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4"/>{text.format(across, y + down, words)}'
