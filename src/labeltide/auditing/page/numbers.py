"""Numbers formatted for readers: percentages, intervals, counts, p values, durations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

UNKNOWN = "unknown"
SIGN = "\N{NO-BREAK SPACE}%"


def number(value: Any) -> float:
    """A number, or NaN where there is none."""
    return math.nan if value is None or isinstance(value, str) else float(value)


def numbers(values: Any) -> np.ndarray:
    """An array of any shape in which null is NaN."""
    return np.array(values if values is not None else [], dtype=float)


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
    return f"{low} to {high}{SIGN}"


def count(amount: float, noun: str, nouns: str = "") -> str:
    """A count with its noun: 1 label, 2,000 labels."""
    return f"{amount:,.0f} {noun if amount == 1 else nouns or noun + 's'}"


def p_value(p: float) -> str:
    if not math.isfinite(p):
        return "p unknown"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


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
