"""How much work an audit does: the usual amount, or less where a quick answer is wanted."""

from __future__ import annotations

from typing import NamedTuple

from labeltide.auditing.page.numbers import percent


class Pace(NamedTuple):
    """Shares of the usual limits of an audit (`fitting.py`)."""

    epochs: float = 1.0  # of each network
    training: float = 1.0  # of the steps to learn from, and of those that a network sees over all epochs
    inference: float = 1.0  # of the steps from which bands, checks and tests are computed
    is_fast: bool = False


USUAL = Pace()
FAST = Pace(epochs=1 / 4, training=1 / 4, inference=1 / 4, is_fast=True)


def say_pace(pace: Pace, train_on: float | None = None) -> list[str]:
    """What a fast audit leaves out, as a sentence; nothing for a usual one. `train_on` labels were asked for."""
    if not pace.is_fast:
        return []
    fewer = f" and from at most {percent(pace.training)} of the usual windows" if train_on is None else ""
    return [
        f"This is a fast audit: networks are trained for {percent(pace.epochs)} of the usual epochs{fewer}; bands, "
        f"checks and tests rest on at most {percent(pace.inference)} of the usual windows. Intervals are wider and "
        "tests weaker than in a full audit, and fewer labels may be named."
    ]
