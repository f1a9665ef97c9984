"""Titles and explanations of the diagnostics of an audit."""

from __future__ import annotations

from typing import NamedTuple


class CheckWords(NamedTuple):
    """What a check is called on the page, and what it means when it warns."""

    title: str
    meaning: str


_SPLIT = "If labels do not persist and nothing is clear-cut, noise and real ambiguity cannot be told apart."
_AGAIN = "The same data were fitted several times; where the fits disagree, so would a repeat of the audit."
_SPARSE = "Where a class has few labels, its curve rests on little and the band there is wide."
CHECKS = {  # by a part of the check's name
    "burst": CheckWords(
        "Bursts of mistakes", "Mistakes that come in runs look like true changes, so some may be missed."
    ),
    "identif": CheckWords("Identifiability", _SPLIT),
    "persist": CheckWords("Identifiability", _SPLIT),
    "confident": CheckWords("Identifiability", _SPLIT),
    "information": CheckWords(
        "Information", "If nothing foretells the labels, every share of wrong labels explains them equally well."
    ),
    "mostly_right": CheckWords(
        "Right more often than not", "If most labels of a class name another class, the two exchange their names."
    ),
    "confounding": CheckWords(
        "Clock and class", "If each class has its own moments, features and moments cannot be told apart."
    ),
    "copies": CheckWords("Copies", "Copies of a recording confirm each other, whether their labels are right or not."),
    "leak": CheckWords("Leaking column", "A column made from the labels agrees with their mistakes as well."),
    "drift": CheckWords(
        "Drift", "If people or sensors change with the clock, that may be taken for changing mistakes."
    ),
    "balance": CheckWords(
        "Class balance", "If classes are more common at some times, that may be taken for changing mistakes."
    ),
    "few": CheckWords("Labels per class", _SPARSE),
    "support": CheckWords("Labels per class", _SPARSE),
    "members": CheckWords("Repeatability", _AGAIN),
    "disagree": CheckWords("Repeatability", _AGAIN),
    "together": CheckWords(
        "Shared mistakes", "If annotators err together, the truth that is estimated is what they see in common."
    ),
}


def check_title(name: str) -> str:
    """The heading of a check; an unknown one keeps its own name."""
    check = _find(name)
    return check.title if check else str(name).replace("_", " ")


def meaning(name: str) -> str:
    """What a check looks for, where it is known."""
    check = _find(name)
    return check.meaning if check else ""


def _find(name: str) -> CheckWords | None:
    return next((check for key, check in CHECKS.items() if key in str(name).lower()), None)
