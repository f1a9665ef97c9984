"""The drawings of the page: the error rate over the clock, Q as small multiples, annotators side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from labeltide.auditing.page.clock_words import Clock
from labeltide.auditing.page.drawing import NARROW, SMALL, WIDE, Curve, DrawnBand, Frame, alt_text, draw_svg, top_of
from labeltide.auditing.page.names import display_name
from labeltide.auditing.page.numbers import number, numbers, percent
from labeltide.auditing.page.verdict import change_sentence, is_noisy, is_temporal

PANELS = 12  # classes or annotators drawn; the files beside the page have all
GRID = 6  # classes up to which all of Q is drawn
PAIRS = 18  # entries of a larger Q that are drawn, the largest first


@dataclass(frozen=True)
class Panel:
    """A drawing with its name; `detail` is a number in words."""

    name: str
    drawing: Markup
    detail: str = ""
    colour: int = -1
    said: str = ""  # a sentence


@dataclass(frozen=True)
class Multiples:
    """Q over the clock: a full grid for a few classes, else the largest mistakes."""

    annotator: str | None
    names: list[str]
    grid: list[list[Panel]]  # [true][recorded]; empty where `pairs` holds the largest
    pairs: list[tuple[str, str, Panel]]
    top: str  # the height of every panel


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
        curve = self.curves[0]
        values, band = self._line(curve, "rate")
        alt = f"Share of wrong labels over the clock: {alt_text(values, self.points, self.clock)}."
        said = change_sentence(self.audit["temporality"], self.clock, self.ends) if is_noisy(self.audit) else ""
        top = top_of(values, band.upper)
        return [
            Panel(
                name,
                draw_svg(
                    [Curve(values, [band], marks=self._marks(size))],
                    self.points,
                    Frame(self.clock, self.ends, top, size),
                    alt,
                ),
                said=said,
            )
            for name, size in (("wide", WIDE), ("narrow", NARROW))
        ]

    def by_class(self) -> list[Panel]:
        """How often each true class is recorded as another, all on one scale."""
        curve = self.curves[0]
        rates = self._classes(curve, "class_rate")
        near = self._classes(curve, "class_rate_lower"), self._classes(curve, "class_rate_upper")
        far = [self._classes(curve, f"class_rate_simultaneous_{end}") for end in ("lower", "upper")]
        top = top_of(rates, near[1], far[1])
        panels = []
        for place in self._worst_first(rates)[:PANELS]:
            bands = [DrawnBand(far[0][place], far[1][place], "far"), DrawnBand(near[0][place], near[1][place], "near")]
            said = alt_text(rates[place], self.points, self.clock)
            alt = f"True {display_name(self.classes[place])} recorded as another class: {said}."
            frame = Frame(self.clock, self.ends, top, NARROW)
            drawing = draw_svg([Curve(rates[place], bands, place)], self.points, frame, alt)
            panels.append(Panel(self.classes[place], drawing, _mean(rates[place]), place))
        return panels

    def annotators(self) -> list[Panel]:
        """The error rate of each annotator, all on one scale."""
        curves = [curve for curve in self.curves if curve.get("annotator") is not None][:PANELS]
        lines = [self._line(curve, "rate") for curve in curves]
        top = top_of(*(part for values, band in lines for part in (values, band.upper))) if lines else 1.0
        tests = {str(each["annotator"]): each for each in self.audit["temporality"].get("per_annotator") or []}
        panels = []
        for curve, (values, band) in zip(curves, lines, strict=True):
            alt = f"Annotator {display_name(curve['annotator'])}: {alt_text(values, self.points, self.clock)} wrong."
            drawing = draw_svg([Curve(values, [band])], self.points, Frame(self.clock, self.ends, top, NARROW), alt)
            name = str(curve["annotator"])
            known = name in tests and is_noisy(self.audit)
            said = change_sentence(tests[name], self.clock, self.ends) if known else ""
            panels.append(Panel(name, drawing, _mean(values), said=said))
        return panels

    def agreement(self) -> Markup | None:
        """Fleiss' kappa over the clock."""
        agreement = self.audit.get("agreement") or {}
        points, values = numbers(agreement.get("clock")), numbers(agreement.get("fleiss_over_clock"))
        if not len(points) or len(points) != len(values) or not np.isfinite(values).any():
            return None
        high, low = int(np.nanargmax(values)), int(np.nanargmin(values))
        at = [self.clock.moment(float(points[place])) for place in (high, low)]
        alt = f"Fleiss' kappa over the clock: highest {values[high]:.2f} {at[0]}, lowest {values[low]:.2f} {at[1]}."
        frame = Frame(self.clock, self.ends, 1.0, NARROW, is_share=False)
        return draw_svg([Curve(np.clip(values, 0, 1))], points, frame, alt)

    def multiples(self) -> list[Multiples]:
        """Q of all together, then of each annotator."""
        return [self._multiples(curve) for curve in self.curves[: 1 + PANELS // 2]]

    def _multiples(self, curve: Mapping[str, Any]) -> Multiples:
        mean, lower, upper = (self._matrices(curve, name) for name in ("mean", "lower", "upper"))
        count = len(self.classes)
        off = ~np.eye(count, dtype=bool)
        top = top_of(mean[:, off], upper[:, off]) if count > 1 else 1.0

        def panel(true: int, recorded: int) -> Panel:
            values = mean[:, true, recorded]
            limit = 1.0 if true == recorded else top
            alt = f"True {display_name(self.classes[true])} recorded as {display_name(self.classes[recorded])}: "
            alt += f"{alt_text(values, self.points, self.clock)}."
            band = DrawnBand(lower[:, true, recorded], upper[:, true, recorded], "near")
            frame = Frame(self.clock, self.ends, limit, SMALL)
            return Panel("", draw_svg([Curve(values, [band], true)], self.points, frame, alt), _mean(values))

        who = curve.get("annotator")
        if count <= GRID:
            grid = [[panel(true, recorded) for recorded in range(count)] for true in range(count)]
            return Multiples(who, self.classes, grid, [], percent(top))
        size = np.where(off, np.nan_to_num(mean, nan=0.0).max(axis=0), -1)
        order = np.argsort(-size, axis=None, kind="stable")[:PAIRS]
        cells = [divmod(int(place), count) for place in order]
        pairs = [(self.classes[true], self.classes[recorded], panel(true, recorded)) for true, recorded in cells]
        return Multiples(who, self.classes, [], pairs, percent(top))

    def _line(self, curve: Mapping[str, Any], name: str) -> tuple[np.ndarray, DrawnBand]:
        values = self._row(curve.get(name))
        return values, DrawnBand(self._row(curve.get(f"{name}_lower")), self._row(curve.get(f"{name}_upper")), "near")

    def _row(self, values: Any) -> np.ndarray:
        return _of_shape(values, (len(self.points),))

    def _classes(self, curve: Mapping[str, Any], name: str) -> np.ndarray:
        return _of_shape(curve.get(name), (len(self.classes), len(self.points)))

    def _matrices(self, curve: Mapping[str, Any], name: str) -> np.ndarray:
        return _of_shape(curve.get(name), (len(self.points), len(self.classes), len(self.classes)))

    def _worst_first(self, rates: np.ndarray) -> Sequence[int]:
        """The table's own order for a few classes; the worst first where not all can be drawn."""
        if len(rates) <= PANELS:
            return range(len(rates))
        means = np.array([np.nanmean(rate) if np.isfinite(rate).any() else -1.0 for rate in rates])
        return [int(place) for place in np.argsort(-means, kind="stable")]

    def _marks(self, size: tuple[int, int]) -> list[tuple[float, float, str]]:
        """The worst and the best moment, where the change is sure."""
        test, marks = self.audit["temporality"], list[tuple[float, float, str]]()
        for word in ("worst", "best") if is_temporal(self.audit) else ():
            place, share = number(test.get(f"{word}_at")), number(test.get(f"{word}_rate"))
            if np.isfinite([place, share]).all() and self.ends[0] <= place <= self.ends[1]:
                at = self.clock.short(place)
                marks.append((place, share, f"{word}: {percent(share)} at {at}" if size == WIDE else f"{word} {at}"))
        return marks


def _of_shape(content: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers, or all unknown where they are missing."""
    values = numbers(content)
    return values if values.shape == shape else np.full(shape, np.nan)


def _mean(values: np.ndarray) -> str:
    return percent(float(np.nanmean(values))) if np.isfinite(values).any() else "no estimate"
