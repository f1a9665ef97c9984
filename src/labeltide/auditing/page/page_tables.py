"""The tables of the page: numbers chosen, ordered and put in words, for the template to lay out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from labeltide.auditing.page.clock_words import clock_views
from labeltide.auditing.page.curves import Drawer
from labeltide.auditing.page.names import display_name
from labeltide.auditing.page.numbers import (
    SIGN,
    count,
    interval,
    is_known,
    number,
    numbers,
    p_value,
    percent,
    points,
    seconds,
)

PLAN, PAIRS, SEQUENCES = 50, 30, 15  # rows shown
MOMENTS = 13  # rows of the curve as numbers


class ChangeRow(NamedTuple):
    """One row: how much an error rate moves over the clock."""

    name: str
    labels: str
    rate: str
    change: str
    sure: str


class Pair(NamedTuple):
    """How far two annotators agree."""

    a: str
    b: str
    kappa: str
    word: str
    steps: str


def changes(
    entries: Sequence[Mapping[str, Any]], key: str, rates: Mapping[str, str], labels: Mapping[str, int]
) -> list[ChangeRow]:
    """Change over the clock with its interval and test, per class or annotator."""
    rows = []
    for entry in entries:
        name = str(entry[key])
        moved = number(entry.get("change"))
        range_ = interval(number(entry.get("change_lower")), number(entry.get("change_upper"))).removesuffix(SIGN)
        change = f"{points(moved)}{f' ({range_})' if range_ else ''}" if is_known(moved) else "unknown"
        amount = f"{labels[name]:,}" if name in labels else ""
        p = "cannot be told" if entry.get("method") == "none" else p_value(number(entry.get("p_value")))
        rows.append(ChangeRow(name, amount, rates.get(name, ""), change, p))
    return rows


def as_numbers(drawer: Drawer) -> tuple[list[str], list[list[str]]]:
    """The curves at a few moments: headings, then rows of texts."""
    curve = drawer.curves[0]
    moments = np.unique(np.linspace(0, len(drawer.points) - 1, min(MOMENTS, len(drawer.points))).round().astype(int))
    names = drawer.classes[:8]
    columns = [("rate", ())] + [("class_rate", (place,)) for place in range(len(names))]
    rows = []
    for at in moments:
        row = [drawer.clock.short(float(drawer.points[at]))]
        for name, place in columns:
            value, low, high = (_pick(curve.get(f"{name}{end}"), (*place, int(at))) for end in ("", "_lower", "_upper"))
            range_ = interval(low, high)
            row.append(f"{percent(value)}{f' ({range_})' if range_ else ''}")
        rows.append(row)
    return names, rows


def _pick(content: Any, place: tuple[int, ...]) -> float:
    values = numbers(content)
    inside = values.ndim == len(place) and all(at < size for at, size in zip(place, values.shape, strict=True))
    return float(values[place]) if inside else float("nan")


class ContestedRow(NamedTuple):
    """One row: how many labels of a class, or of a part of the clock, are contested."""

    name: str
    labels: str
    contested: str


def contested_rows(
    entries: Sequence[Mapping[str, Any]], name: Callable[[Mapping[str, Any]], str]
) -> list[ContestedRow]:
    """Shares of contested labels, named by class or by moment."""
    return [
        ContestedRow(name(entry), f"{entry['labels']:,}", percent(number(entry.get("contested"))))
        for entry in entries
        if entry.get("labels")
    ]


def pairs(agreement: Mapping[str, Any]) -> list[Pair]:
    """The pairs that agree least, first."""
    ranked = sorted(agreement.get("cohen") or [], key=lambda entry: number(entry.get("kappa")))[:PAIRS]
    return [
        Pair(
            str(each["a"]),
            str(each["b"]),
            kappa(each.get("kappa")),
            kappa_word(each.get("kappa")),
            f"{each['steps']:,}",
        )
        for each in ranked
    ]


def kappa(value: Any) -> str:
    return f"{value:.2f}" if is_known(number(value)) else "unknown"


def kappa_word(value: Any) -> str:
    """Landis and Koch's words, which readers of kappa expect."""
    coefficient = number(value)
    if not is_known(coefficient):
        return ""
    steps = ((0.0, "none"), (0.2, "slight"), (0.4, "fair"), (0.6, "moderate"), (0.8, "substantial"))
    return next((word for limit, word in steps if coefficient <= limit), "almost perfect")


def facts(audit: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was read, how long it took, with what."""
    table, clocks = audit["table"], [view.clock.title for view in clock_views(audit)]
    columns = [f"{role} = {name}" for role, name in (table.get("columns") or {}).items() if name is not None]
    spent = audit.get("seconds") or {}
    times = [f"{stage} {seconds(number(amount))}" for stage, amount in spent.items() if is_known(number(amount))]
    rows = [
        ("Table", str(table["name"])),
        ("Size", ", ".join(count(table[f"{each}s"], each) for each in ("row", "label", "sequence"))),
        ("Columns", "; ".join(columns)),
        ("Classes", _name_list(table["classes"])),
        ("Features", _name_list(table.get("features") or [])),
        ("Annotators", _name_list(table.get("annotators") or [])),
        ("Clocks" if len(clocks) > 1 else "Clock", "; ".join(clocks)),
        ("Made", str(audit.get("created") or "")),
        ("Time", ", ".join(times)),
        ("Command", str(audit.get("command") or "")),
    ]
    return [(name, value) for name, value in rows if value]


def _name_list(names: Sequence[Any], most: int = 12) -> str:
    texts = [display_name(name) for name in names[:most]]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(texts) + more
