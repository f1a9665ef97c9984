"""Sentences about steps that are hard to tell, and how often their labels are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labeltide.auditing.page.numbers import is_known, number


def difficulty_words(levels: Sequence[Mapping[str, Any]], noisy: bool) -> list[tuple[str, str, str]]:
    """Question, answer and detail of a card; none where no wrong labels are shown, or noise has no levels."""
    rates = [number(level.get("wrong")) for level in levels]
    if len(rates) < 2 or not is_known(*rates) or not noisy:
        return []
    hardest, easiest = (f"{100 * rates[place]:.0f} %" for place in (0, -1))
    detail = (
        f"Steps are cut into {len(rates)} equal levels, by how clearly the features tell the classes apart. At the "
        f"hardest level {hardest} of the labels are wrong, at the clearest {easiest}. Levels predicted held-out labels "
        "clearly better than the clock alone."
    )
    return [("Are hard steps labelled worse?", f"{hardest} wrong against {easiest}", detail)]
