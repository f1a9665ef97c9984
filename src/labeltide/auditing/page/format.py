"""Numbers formatted for readers: percentages, intervals, counts, p values, durations."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape

UNKNOWN = "unknown"
SIGN = "\N{NO-BREAK SPACE}%"


def number(value: Any) -> float:
    """A number, or NaN where there is none."""
    return math.nan if value is None or isinstance(value, str) else float(value)


def numbers(values: Any) -> np.ndarray:
    """An array of any shape in which null is NaN."""
    return np.array(values if values is not None else [], dtype=float)


def read_numbers(entry: Mapping[str, Any], *names: str) -> list[float]:
    """Some numbers of an entry, NaN where there is none."""
    return [number(entry.get(name)) for name in names]


def read_interval(entry: Mapping[str, Any], name: str) -> list[float]:
    """An estimate and the ends of its interval."""
    return read_numbers(entry, name, f"{name}_lower", f"{name}_upper")


def is_known(*values: float) -> bool:
    return all(math.isfinite(value) for value in values)


def percent(fraction: float) -> str:
    """31 %, 4.2 %, 0.3 %: two figures are what such estimates bear."""
    if not math.isfinite(fraction):
        return UNKNOWN
    return f"{_figures(100 * fraction)}{SIGN}"


def points(difference: float) -> str:
    """A difference of two percentages."""
    text = _figures(100 * difference)
    return f"{text} percentage point" + ("" if text == "1.0" else "s")


def interval(lower: float, upper: float) -> str:
    """29 to 33 %, or nothing where an end is unknown."""
    if not is_known(lower, upper):
        return ""
    low, high = (_figures(100 * end) for end in (lower, upper))
    if ("." in low) != ("." in high):
        low, high = (f"{100 * end:.1f}" if abs(upper) < 0.2 else f"{100 * end:.0f}" for end in (lower, upper))
    return f"{low} to {high}{SIGN}".replace("-", "\N{MINUS SIGN}")


def points_range(low: float, high: float) -> str:
    """The two ends of an interval of percentage points."""
    return interval(low, high).removesuffix(SIGN)


def change_words(entry: Mapping[str, Any], before: str = "", of: str = "change") -> str:
    """The size of a change: 16 percentage points (10 to 20); empty where it is not known."""
    change, low, high = read_interval(entry, of)
    range_ = f" ({before}{points_range(low, high)})" if is_known(low, high) else ""
    return f"{points(change)}{range_}" if is_known(change) else ""


def count(amount: float, noun: str, nouns: str = "") -> str:
    """A count with its noun: 1 label, 2,000 labels."""
    return f"{amount:,.0f} {noun if amount == 1 else nouns or noun + 's'}"


def p_value(p: float) -> str:
    if not math.isfinite(p):
        return "p unknown"
    text = "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def join_words(names: Sequence[str], most: int = 3) -> str:
    """a, b and c; with more than a few: a, b, c and 4 more."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def seconds(amount: float) -> str:
    if amount < 100:
        return f"{amount:.1f} s"
    return f"{amount / 60:.1f} min" if amount < 6000 else f"{amount / 3600:.1f} h"


def _figures(value: float) -> str:
    text = f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
    return text.replace("-0.0", "0.0").replace("-", "\N{MINUS SIGN}")


# Names from the user's table, sanitised for display: one short line without control characters.

ISOLATE, END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
SHORT, LONG = 40, 200  # letters in a cell; letters kept in the page's data
TEXT = 1200  # letters of a sentence that may hold names

# Controls, half characters, and the marks that change the direction of whatever follows them.
_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]"
)


def clean(value: Any) -> str:
    """One line of visible text; what no page or terminal should meet becomes a blank."""
    return " ".join(_UNSEEN.sub(" ", str(value)).split())


def sound(value: Any) -> str:
    """The text as it is, less the half characters that no file can hold."""
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shorten(text: str, limit: int = SHORT) -> str:
    """A long text with its middle left out: ids differ at their ends as often as at their beginnings."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return text[: limit - tail - 1] + ELLIPSIS + text[len(text) - tail :]


def display_name(value: Any, limit: int = SHORT) -> str:
    """A name for a heading, a cell or a drawing."""
    return shorten(clean(value), limit) or "unnamed"


def in_quotes(value: Any, limit: int = SHORT) -> str:
    """A name inside a sentence, kept apart from the direction of the words around it."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{ISOLATE}{display_name(value, limit)}{END}\N{RIGHT DOUBLE QUOTATION MARK}"


def terminal_text(text: str) -> str:
    """A sentence for a terminal: without the invisible marks, with straight quotation marks."""
    return clean(text.replace(ISOLATE, "").replace(END, "")).translate({0x201C: '"', 0x201D: '"'})


def name_markup(value: Any, limit: int = SHORT) -> Markup:
    """A name for the page; where it was shortened, more of it shows on pointing."""
    short, whole = display_name(value, limit), display_name(value, LONG)
    title = Markup(' title="{}"').format(whole) if whole != short else ""
    return Markup("<bdi{}>{}</bdi>").format(title, short)


def text_markup(value: Any) -> Markup:
    """A sentence that may hold names."""
    return escape(shorten(clean(value), TEXT))


# The clocks of an audit, in words and on an axis.

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")  # 0 is Monday, as in datetime


@dataclass(frozen=True)
class Clock:
    """What Q depends on: its kind, its name, its unit, and the length after which it begins anew."""

    kind: str
    name: str
    unit: str
    period: float | None

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> Clock:
        kind, period, unit = str(described.get("kind") or "column"), described.get("period"), described.get("unit")
        if unit == "h" and period == 24:  # a column of times of day
            kind = "hour_of_day"
        return cls(kind, display_name(described.get("name") or "clock"), display_name(unit) if unit else "", period)

    @property
    def title(self) -> str:
        """The axis label, with the unit."""
        if self.kind == "hour_of_day":
            return "hour of day" if self.name in ("hour of day", "hour_of_day") else f"{self.name} (hour of day)"
        if self.kind == "day_of_week":
            return "day of week"
        if self.kind == "position":
            return "position in the sequence (start 0 %, end 100 %)"
        unit = self.unit or ("days" if self.kind == "days" else "")
        return f"{self.name} ({unit})" if unit and unit != self.name else self.name

    @property
    def over(self) -> str:
        """What a change is over: over the day."""
        known = {
            "hour_of_day": "over the day",
            "day_of_week": "over the week",
            "days": "over the days",
            "position": "from the start to the end of a sequence",
        }
        return known.get(self.kind, f"over {ISOLATE}{self.name}{END}")

    def moment(self, value: float) -> str:
        """A moment inside a sentence: near 21:30."""
        if self.kind == "hour_of_day":
            return f"near {_hour(value)}"
        if self.kind == "day_of_week":
            day, rest = DAYS[int(value // 1) % 7], value % 1
            return f"on {day}s near {_hour(24 * rest)}"
        if self.kind == "position":
            if value <= 0.02 or value >= 0.98:
                return f"at the {'start' if value <= 0.02 else 'end'} of a sequence"
            return f"about {100 * value:.0f} % of the way through a sequence"
        if self.kind == "days":
            return f"about {value:,.1f} days after the start"
        unit = f" {self.unit}" if self.unit else ""
        return f"where {ISOLATE}{self.name}{END} is near {_number(value)}{unit}"

    def short(self, value: float) -> str:
        """A moment in a table or on an axis."""
        if self.kind == "hour_of_day":
            return "24:00" if value == 24 else _hour(value)
        if self.kind == "day_of_week":
            name = DAYS[int(value // 1) % 7][:3]
            return name if value % 1 == 0 else f"{name} {_hour(24 * (value % 1))}"
        if self.kind == "position":
            return f"{100 * value:.0f} %"
        return _number(value)

    def range(self, points: Sequence[float]) -> tuple[float, float]:
        """The two ends of the axis: the whole period or sequence where the points lie in it."""
        low, high = min(points, default=0.0), max(points, default=1.0)
        whole = 1.0 if self.kind == "position" else self.period
        if whole and low >= 0 and high <= whole:
            return 0.0, float(whole)
        return (low, high) if high > low else (low - 0.5, low + 0.5)

    def ticks(self, low: float, high: float, most: int) -> list[float]:
        """Values on the axis at which a person expects a number."""
        if self.kind == "hour_of_day" and high - low >= 6:
            step = next((step for step in (1.0, 2.0, 3.0, 4.0, 6.0, 12.0) if (high - low) / step <= most), 24.0)
        elif self.kind == "day_of_week" and high - low > 1:
            step = 1.0 if most >= 7 else 2.0
        else:
            step = nice_step((high - low) / most)
        first = math.ceil(low / step - 1e-9)
        values = [round(number * step, 10) for number in range(first, math.floor(high / step + 1e-9) + 1)]
        # The last midnight is the first day again: "Mon" twice would mislead.
        return [value for value in values if not (self.kind == "day_of_week" and value == 7)]


class View(NamedTuple):
    """An audit as seen over one of its clocks, whose `noise` and `temporality` stand in it."""

    audit: Mapping[str, Any]
    clock: Clock
    anchor: str  # on the page
    others: int  # clocks besides this one, whose effects add up with its own


def clock_views(audit: Mapping[str, Any]) -> list[View]:
    """One view for each clock, in the order in which they were named."""
    others = audit.get("other_clocks") or []
    seen = [audit, *({**audit, **other} for other in others)]
    anchors = ["clock", *(f"clock-{number}" for number in range(2, 2 + len(others)))]
    return [View(part, Clock.read(part["clock"]), at, len(others)) for part, at in zip(seen, anchors, strict=True)]


def nice_step(rough: float) -> float:
    """The next of 1, 2, 2.5 or 5 times a power of ten."""
    if not (math.isfinite(rough) and rough > 0):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1.0, 2.0, 2.5, 5.0) if m * power >= rough * (1 - 1e-9)), 10 * power)


def _hour(value: float) -> str:
    minutes = round(60 * value) % (24 * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
