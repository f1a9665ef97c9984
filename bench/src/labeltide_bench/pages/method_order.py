"""Order and groups of the methods, as in the tables of the paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

REFERENCE = "Given the truth"
OTHERS = "Others"
GROUPS: dict[str, tuple[str, ...]] = {
    "": ("ignore",),
    "Static": ("anchor", "volmin"),
    "Temporal": ("plugin", "discontinuous", "continuous"),
    OTHERS: (),
    REFERENCE: ("known", "clean"),
}
Q_ERRORS = ("frobenius", "absolute")  # metrics of an estimated Q
ALIASES = {"volminnet": "volmin", "static": "volmin", "nocorrection": "ignore"}


class Group(NamedTuple):
    """Columns of a table that stand under one heading."""

    title: str
    methods: tuple[str, ...]


def base_name(label: str) -> str:
    """The method a label names: "continuous (paper's code)" and "Continuous" are both continuous.

    Whatever begins with "clean" is a reference trained on clean labels; studies let no other method be called so.
    """
    name = re.sub(r"[^a-z0-9]", "", re.split(r"[(,:]", label.casefold())[0])
    return "clean" if name.startswith("clean") else ALIASES.get(name, name)


def group_methods(labels: Iterable[str]) -> tuple[Group, ...]:
    """Labels under the headings of the paper's tables, in the paper's order, then as they came."""
    labels = list(dict.fromkeys(labels))
    homes = {base: title for title, bases in GROUPS.items() for base in bases}
    order = {base: index for index, base in enumerate(homes)}
    grouped: dict[str, list[str]] = {title: [] for title in GROUPS}
    for label in sorted(labels, key=lambda label: (order.get(base_name(label), len(order)), label != base_name(label))):
        grouped[homes.get(base_name(label), OTHERS)].append(label)
    return tuple(Group(title, tuple(members)) for title, members in grouped.items() if members)


def in_order(labels: Iterable[str]) -> list[str]:
    """All labels in the order of the columns."""
    return [label for group in group_methods(labels) for label in group.methods]


def contenders(labels: Sequence[str]) -> list[str]:
    """The methods that compete: those without access to the truth, unless fewer than two remain."""
    fair = [label for label in labels if base_name(label) not in GROUPS[REFERENCE]]
    return fair if len(fair) > 1 else list(labels)


def estimates_q(label: str) -> bool:
    """Whether a method estimates Q: not the one that ignores noise, nor those that are given the truth."""
    return base_name(label) not in ("ignore", *GROUPS[REFERENCE])
