"""Words for a test of change over the clock: what stands behind it, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labeltide.auditing.page.numbers import count, number, p_value


def units(test: Mapping[str, Any]) -> str:
    """What stands behind a test: 5 people or recordings."""
    return count(number(test.get("n_units")), "person or recording", "people or recordings")


def too_few(test: Mapping[str, Any]) -> str:
    """Why a test cannot tell: too few people stand behind it."""
    few = f"These labels come from only {units(test)}."
    return f"{few} A cause that lasts for many of their windows would look the same as a change over the clock."


def units_behind(test: Mapping[str, Any]) -> str:
    """How a test was made, by its method."""
    method, windows = test.get("method"), count(number(test.get("n_units")), "window")
    said = {
        "people": f" Each of {units(test)} was judged as a whole.",
        "rotations": f" The windows of {units(test)} were rotated against the clock.",
        "permutations": f" The moments of {windows} were swapped, as if windows were independent.",
    }
    return said.get(str(method), "")


def sureness(p: float) -> str:
    """An answer as sure as the p-value."""
    return "Yes, very surely" if p < 0.001 else "Yes, surely" if p < 0.01 else "Probably"


def by_chance(p: float, others: int) -> str:
    """The p-value as how often chance alone would do the same."""
    many = 1000 if p < 0.0195 else 100
    times = max(1, round(many * p))
    often = "less than once" if p < 0.001 else "about once" if times == 1 else f"about {times} times"
    constant = "it did not follow this clock" if others else "it were constant"
    return f"If {constant}, a change this large would appear {often} in {many:,} such studies ({p_value(p)})."
