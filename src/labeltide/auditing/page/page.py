"""From the results of an audit to one HTML page that needs nothing else."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from labeltide._files import write_atomically
from labeltide.auditing.page import format as forms
from labeltide.auditing.page import payload as tables
from labeltide.auditing.page import verdict as words
from labeltide.auditing.page.draw import (
    NARROW,
    PANELS,
    WIDE,
    Curve,
    Drawer,
    Frame,
    Panel,
    alt_text,
    draw_shifts,
    draw_svg,
    top_of,
)
from labeltide.auditing.page.format import Clock, View, clock_views, display_name, number, numbers, p_value, percent
from labeltide.auditing.page.payload import Results, build_payload, embed
from labeltide.auditing.results import PAGE
from labeltide.tables.files import check_new_file

SCRIPTS = ("audit_base.js", "audit_issues.js", "audit_timeline.js", "audit_view.js", "audit_curves.js")


def write_page(folder: Path, results: Results | None = None) -> Path:
    """Write `report.html` into the folder of an audit, whole or not at all, and give back its path.

    `results` is what `audit.json`, `labels.parquet` and `issues.parquet` in the folder hold, where it is in memory.
    """
    folder = Path(folder)
    results = results or Results.in_folder(folder)
    text = render(results.audit, build_payload(results))
    write_atomically(folder / PAGE, text.encode("utf-8", "replace"))
    return folder / PAGE


def render(audit: Mapping[str, Any], payload: Mapping[str, Any]) -> str:
    """The page's text; what came from the table is escaped by the template or written as JSON that nothing can end."""
    folder = files("labeltide.auditing.page") / "templates"
    parts = [(folder / name).read_text(encoding="utf-8") for name in SCRIPTS]
    script = "(() => {\n" + "\n".join(["'use strict';", *parts]) + "\n})();\n"
    drawer = Drawer(audit)
    people = [curve for curve in drawer.curves if curve.get("annotator") is not None]
    # The policy in the page's head allows exactly this script.
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment().get_template("audit.html")
    return template.render(
        audit=audit,
        payload=payload,
        data=Markup(embed(payload)),
        script=Markup(script),
        digest=digest,
        verdict=words.write_verdict(audit),
        clocks=[_over_clock(view) for view in clock_views(audit)],
        annotators=drawer.annotators() if drawer.can_draw else [],
        amounts={str(curve["annotator"]): curve["labels"] for curve in people},
        kappa_drawing=drawer.agreement() if drawer.can_draw else None,
        draw_shifts=draw_shifts,
        compare=comparison_view(audit.get("compare")),
    )


def _over_clock(view: View) -> dict[str, Any]:
    """What is shown over one clock."""
    drawer, about = Drawer(view.audit), {"clock": view.clock, "anchor": view.anchor, "others": view.others}
    if not drawer.can_draw:
        return about | {"overall": [], "multiples": []}
    return about | {
        "overall": drawer.overall(),
        "by_class": drawer.by_class(),
        "classes_left": max(0, len(drawer.classes) - PANELS),
        "class_changes": view.audit["temporality"].get("per_class") or [],
        "moments": tables.as_numbers(drawer),
        "multiples": drawer.multiples(),
    }


# The comparison of two audits as a section of a page, and as a page of its own.

THEN = 9  # colour of the earlier curve


def comparison_view(compare: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the template shows of a comparison; None where there is none."""
    if not compare:
        return None
    overall, panels = list[Panel](), list[Panel]()
    if compare["clock"]:
        clock = Clock.read(compare["clock"])
        sizes = (("wide", WIDE), ("narrow", NARROW))
        overall = [Panel(name, _draw(compare, compare["curves"][0], clock, size)) for name, size in sizes]
        p_values = {entry["class"]: entry["p_corrected"] for entry in compare["classes"]}
        drawn = [curve for curve in compare["curves"] if curve["class"] in p_values]
        if len(drawn) > PANELS:  # the classes that differ most surely
            drawn = sorted(drawn, key=lambda curve: p_values[curve["class"]])[:PANELS]
        top = max((_top(curve) for curve in drawn), default=1.0)
        for curve in drawn:
            name = curve["class"]
            panels.append(Panel(str(name), _draw(compare, curve, clock, NARROW, top), p_value(p_values[name])))
    return {**compare, "overall": overall, "panels": panels}


def write_consensus(path: Path, summary: Mapping[str, Any]) -> None:
    """Write the comparison of annotators as one page that needs nothing else."""
    clock, points, people = Clock.read(summary["clock"]), numbers(summary["parts"]), summary["annotators"]
    ends = clock.range(points.tolist())
    curves = [numbers(each["over_clock"]) for each in people[:PANELS]]
    top, panels = top_of(*(curve[part] for curve in curves for part in (0, 2))), []
    for each, (values, lower, upper) in zip(people, curves, strict=False):
        alt = f"Annotator {display_name(each['annotator'])} differs: {alt_text(values, points, clock)}."
        drawing = draw_svg([Curve(values, [(lower, upper)])], points, Frame(clock, ends, top, NARROW), alt)
        panels.append(Panel(each["annotator"], drawing, percent(number(each["differs"]))))
    drawer = Drawer({**summary, "clock": summary["agreement_clock"], "noise": {"clock": points}, "table": summary})
    template = environment().get_template("consensus.html")
    cards, kappa = words.consensus_cards(summary), drawer.agreement()
    text = template.render(found=summary, clock=clock, cards=cards, panels=panels, kappa_drawing=kappa)
    write_atomically(path, text.encode("utf-8", "replace"))


def write_comparison(compare: Mapping[str, Any], path: Path) -> Path:
    """Write the comparison as one page that needs nothing else."""
    check_new_file(path, ".html")
    text = environment().get_template("compare.html").render(compare=comparison_view(compare))
    write_atomically(path, text.encode("utf-8", "replace"))
    return path


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
        Curve(curve["value"], [(curve["lower"], curve["upper"])], THEN if side == "then" else -1, dashed=side == "then")
        for side, curve in sides.items()
    ]
    frame = Frame(clock, clock.range(points.tolist()), top or _top(drawn), size)
    return draw_svg(lines, points, frame, f"Share of wrong labels among {what}. {'; '.join(words)}.")


def _top(drawn: Mapping[str, Any]) -> float:
    return top_of(*(numbers(drawn[side][end]) for side in ("then", "now") for end in ("value", "upper")))


# The templates of the pages, in which everything is escaped.


def environment() -> Environment:
    """The templates of the pages; what came from a table is escaped."""
    found = Environment(
        loader=PackageLoader("labeltide.auditing.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(name=forms.name_markup, text=forms.text_markup)
    found.filters.update({each.__name__: each for each in (display_name, number, percent, p_value)})
    found.tests["known"] = lambda value: forms.is_known(number(value))
    folder = files("labeltide.auditing.page") / "templates"
    style = "".join((folder / name).read_text(encoding="utf-8") for name in ("page.css", "audit.css"))
    found.globals.update(forms=forms, tables=tables, words=words, style=Markup(style))
    return found
