"""The comparison of two audits as a section of a page, and as a page of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labeltide._files import write_atomically
from labeltide.auditing.page.clock_words import Clock
from labeltide.auditing.page.compare_words import classes_sentence, issues_sentence, points_range, rate_sentence
from labeltide.auditing.page.curves import PANELS, Panel
from labeltide.auditing.page.drawing import NARROW, WIDE, Curve, DrawnBand, Frame, alt_text, draw_svg, top_of
from labeltide.auditing.page.environment import environment
from labeltide.auditing.page.names import display_name
from labeltide.auditing.page.numbers import number, numbers, p_value, percent

THEN = 9  # colour of the earlier curve


def comparison_view(compare: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the template shows of a comparison; None where there is none."""
    if not compare:
        return None
    clock = Clock.read(compare["clock"]) if compare["clock"] else None
    return {
        **compare,
        "words": [
            f"Wrong labels: {rate_sentence(compare['rate'])}",
            f"Labels to check: {issues_sentence(compare)}",
            classes_sentence(compare),
        ],
        "clock": clock,
        "overall": _overall(compare, clock) if clock else [],
        "panels": _by_class(compare, clock) if clock else [],
        "rows": [_row(entry, clock) for entry in compare["classes"]] if clock else [],
        "kinds": [(kind, found) for kind, found in (compare["issues"] or {}).items() if found["count"]],
    }


def check_page_path(path: Path) -> None:
    """Refuse a page of another kind, or one that is there already."""
    if path.suffix.lower() != ".html":
        raise ValueError(f"The page of a comparison must end in .html. Got {str(path)!r}.")
    if path.exists():
        raise ValueError(f"The page must be new. {str(path)!r} is there already; remove it or name another with --out.")


def write_comparison(compare: Mapping[str, Any], path: Path) -> Path:
    """Write the comparison as one page that needs nothing else."""
    check_page_path(path)
    text = environment().get_template("compare.html").render(compare=comparison_view(compare))
    write_atomically(path, text.encode("utf-8", "replace"))
    return path


def _overall(compare: Mapping[str, Any], clock: Clock) -> list[Panel]:
    """All labels then and now, once for wide and once for narrow screens."""
    drawn = compare["curves"][0]
    return [Panel(name, _draw(compare, drawn, clock, size)) for name, size in (("wide", WIDE), ("narrow", NARROW))]


def _by_class(compare: Mapping[str, Any], clock: Clock) -> list[Panel]:
    """The classes that differ most surely first, where not all can be drawn."""
    p_values = {entry["class"]: entry["p_corrected"] for entry in compare["classes"]}
    drawn = [curve for curve in compare["curves"] if curve["class"] in p_values]
    if len(drawn) > PANELS:
        drawn = sorted(drawn, key=lambda curve: p_values[curve["class"]])[:PANELS]
    top = max((_top(curve) for curve in drawn), default=1.0)
    return [
        Panel(str(curve["class"]), _draw(compare, curve, clock, NARROW, top), p_value(p_values[curve["class"]]))
        for curve in drawn
    ]


def _draw(
    compare: Mapping[str, Any],
    drawn: Mapping[str, Any],
    clock: Clock,
    size: tuple[int, int],
    top: float | None = None,
) -> Any:
    points = numbers(compare["clock"]["points"])
    sides = {side: {end: numbers(values) for end, values in drawn[side].items()} for side in ("then", "now")}
    words = [f"{side}: {alt_text(curve['value'], points, clock)}" for side, curve in sides.items()]
    what = "all labels" if drawn["class"] is None else f"true {display_name(drawn['class'])}"
    lines = [
        Curve(
            curve["value"],
            [DrawnBand(curve["lower"], curve["upper"], "near")],
            THEN if side == "then" else -1,
            dashed=side == "then",
        )
        for side, curve in sides.items()
    ]
    frame = Frame(clock, clock.range(points.tolist()), top or _top(drawn), size)
    return draw_svg(lines, points, frame, f"Share of wrong labels among {what}. {'; '.join(words)}.")


def _top(drawn: Mapping[str, Any]) -> float:
    return top_of(*(numbers(drawn[side][end]) for side in ("then", "now") for end in ("value", "upper")))


def _row(entry: Mapping[str, Any], clock: Clock) -> dict[str, str]:
    return {
        "name": entry["class"],
        "at": clock.short(entry["at"]),
        "then": percent(entry["then"]),
        "now": percent(entry["now"]),
        "difference": points_range(number(entry["lower"]), number(entry["upper"])),
        "p": p_value(number(entry["p_corrected"])),
    }
