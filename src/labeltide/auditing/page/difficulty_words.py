"""Sentences about steps that are hard to tell, and how often their labels are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labeltide.auditing.page.numbers import is_known, number

FRACTIONS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth"}


def difficulty_words(levels: Sequence[Mapping[str, Any]], noisy: bool) -> list[tuple[str, str, str]]:
    """Question, answer and detail of a card; none where no wrong labels are shown, or noise has no levels."""
    rates = [number(level.get("wrong")) for level in levels]
    if len(rates) < 2 or not is_known(*rates) or not noisy:
        return []
    hardest, easiest = (f"{100 * rates[place]:.0f} %" for place in (0, -1))
    part = FRACTIONS.get(len(rates), "part")
    detail = (
        f"Of the {part} of steps at which the features tell the classes apart least, {hardest} of the labels are "
        f"wrong, of the clearest {part} {easiest}. Levels of difficulty predicted held-out labels clearly better than "
        "the clock alone."
    )
    return [("Are hard steps labelled worse?", f"{hardest} wrong against {easiest}", detail)]
