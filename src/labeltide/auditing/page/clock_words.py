"""The clocks of an audit, in words and on an axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from labeltide.auditing.page.names import END, ISOLATE, display_name

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
        """What a change is over: over the hours of the day."""
        known = {
            "hour_of_day": "over the hours of the day",
            "day_of_week": "over the days of the week",
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
            return _place(value)
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
        """Places on the axis at which a person expects a number."""
        if self.kind == "hour_of_day" and high - low >= 6:
            step = next(
                step for step in (1.0, 2.0, 3.0, 4.0, 6.0, 12.0, 24.0) if (high - low) / step <= most or step == 24.0
            )
        elif self.kind == "day_of_week" and high - low > 1:
            step = 1.0 if most >= 7 else 2.0
        else:
            step = nice_step((high - low) / most)
        first = math.ceil(low / step - 1e-9)
        places = [round(place * step, 10) for place in range(first, math.floor(high / step + 1e-9) + 1)]
        # The last midnight is the first day again: "Mon" twice would mislead.
        return [value for value in places if not (self.kind == "day_of_week" and value == 7)]


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


def _place(value: float) -> str:
    if value <= 0.02:
        return "at the start of a sequence"
    if value >= 0.98:
        return "at the end of a sequence"
    return f"about {100 * value:.0f} % of the way through a sequence"


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
