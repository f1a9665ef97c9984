"""The checks that an audit makes on itself: a heading that is neither praise nor blame, and what each looks for."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """What a check is called on the page, and what it means when it warns."""

    title: str
    meaning: str


_SPLIT = "If labels do not persist and nothing is clear-cut, noise and real ambiguity cannot be told apart."
_AGAIN = "The same data were fitted several times; where the fits disagree, so would a repeat of the audit."
_SPARSE = "Where a class has few labels, its curve rests on little and the band there is wide."
CHECKS = {  # by a part of the check's name
    "burst": Check("Bursts of mistakes", "Mistakes that come in runs look like true changes, so some may be missed."),
    "identif": Check("Identifiability", _SPLIT),
    "persist": Check("Identifiability", _SPLIT),
    "confident": Check("Identifiability", _SPLIT),
    "drift": Check("Drift", "If people or sensors change with the clock, that may be taken for changing mistakes."),
    "balance": Check(
        "Class balance", "If classes are more common at some times, that may be taken for changing mistakes."
    ),
    "few": Check("Labels per class", _SPARSE),
    "support": Check("Labels per class", _SPARSE),
    "members": Check("Repeatability", _AGAIN),
    "disagree": Check("Repeatability", _AGAIN),
    "together": Check(
        "Shared mistakes", "If annotators err together, the truth that is estimated is what they see in common."
    ),
}


def check_title(name: str) -> str:
    """The heading of a check; an unknown one keeps its own name."""
    found = _find(name)
    return found.title if found else str(name).replace("_", " ")


def meaning(name: str) -> str:
    """What a check looks for, where it is known."""
    found = _find(name)
    return found.meaning if found else ""


def _find(name: str) -> Check | None:
    return next((check for key, check in CHECKS.items() if key in str(name).lower()), None)
