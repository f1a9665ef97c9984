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
from labeltide.auditing.page import payload as page_tables
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
from labeltide.auditing.page.format import (
    Clock,
    View,
    clock_views,
    display_name,
    interval,
    is_known,
    name_markup,
    number,
    numbers,
    p_value,
    percent,
    points_range,
    read_numbers,
    text_markup,
)
from labeltide.auditing.page.payload import Results, build_payload, embed
from labeltide.auditing.page.verdict import (
    check_title,
    classes_sentence,
    consensus_cards,
    is_noisy,
    issues_sentence,
    meaning,
    prevalence_caveat,
    rate_sentence,
    reading_line,
    shift_words,
    size,
    timing,
    untold,
    write_verdict,
)
from labeltide.auditing.results import PAGE

SCRIPTS = ("audit_base.js", "audit_issues.js", "audit_timeline.js", "audit_view.js", "audit_curves.js")
CLASSES = 30  # rows of a table by class
FILES = {
    "issues.csv": "the labels to check, ranked, for spreadsheets",
    "issues.parquet": "the same, for programs",
    "labels.parquet": "every label: recorded, probability of being right and of being contested, suggested, corrected",
    "noise.csv": "Q over the clock with its bands",
    "audit.json": "all numbers, settings and versions",
    "model/model.safetensors": "the fitted model, for labeltide predict",
}


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
    drawer, test, agreement = Drawer(audit), audit["temporality"], audit.get("agreement") or {}
    annotators = drawer.annotators() if drawer.can_draw else []
    people = {panel.name: panel.detail for panel in annotators}
    amounts = {
        str(curve["annotator"]): curve["labels"] for curve in drawer.curves if curve.get("annotator") is not None
    }
    fleiss = agreement.get("fleiss")
    # The policy in the page's head allows exactly this script.
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        environment()
        .get_template("audit.html")
        .render(
            audit=audit,
            payload=payload,
            data=Markup(embed(payload)),
            script=Markup(script),
            digest=digest,
            files=FILES,
            size=size(audit),
            verdict=write_verdict(audit),
            noisy=is_noisy(audit),
            untold=untold(audit),
            meaning=meaning,
            check_title=check_title,
            clocks=[_over_clock(view) for view in clock_views(audit)],
            annotators=annotators,
            kappa_drawing=drawer.agreement() if drawer.can_draw else None,
            annotator_changes=page_tables.changes(test.get("per_annotator") or [], "annotator", people, amounts),
            pairs=page_tables.pairs(agreement),
            fleiss=(page_tables.kappa(fleiss), page_tables.kappa_word(fleiss)) if is_known(number(fleiss)) else None,
            overview=audit["table"].get("overview") or [],
            reading=reading_line(audit["table"]),
            kappa_caveat=prevalence_caveat(agreement),
            timing=timing(audit),
            shift_words=shift_words,
            timing_drawing=draw_shifts(timing(audit)),
            plan=(audit.get("plan") or [])[: page_tables.PLAN],
            sequences=(audit["issues"].get("by_sequence") or [])[: page_tables.SEQUENCES],
            facts=page_tables.facts(audit),
            settings=list((audit.get("settings") or {}).items()),
            versions=[("labeltide", audit["labeltide"]), *(audit.get("versions") or {}).items()],
            contested=None if untold(audit) else _contested(audit),
            compare=comparison_view(audit.get("compare")),
        )
    )


def _over_clock(view: View) -> dict[str, Any]:
    """What is shown over one clock."""
    drawer, about = Drawer(view.audit), {"clock": view.clock, "anchor": view.anchor, "others": view.others}
    if not drawer.can_draw:
        return about | {"overall": [], "multiples": []}
    by_class = drawer.by_class()
    averages = {panel.name: panel.detail for panel in by_class}
    return about | {
        "overall": drawer.overall(),
        "by_class": by_class,
        "classes_left": max(0, len(drawer.classes) - PANELS),
        "class_changes": page_tables.changes(view.audit["temporality"].get("per_class") or [], "class", averages, {}),
        "moments": page_tables.as_numbers(drawer),
        "multiples": drawer.multiples(),
    }


def _contested(audit: Mapping[str, Any]) -> dict[str, Any] | None:
    """Contested labels, of all, by class and over the first clock; None where an audit does not tell."""
    found = audit.get("contested") or {}
    differs = number(found.get("contested"))
    if not is_known(differs):
        return None
    clock = clock_views(audit)[0].clock

    def row(name: str, entry: Mapping[str, Any]) -> dict[str, str]:
        return {"name": name, "labels": f"{entry['labels']:,}", "contested": percent(number(entry.get("contested")))}

    by_class = [entry for entry in found.get("by_class") or [] if entry.get("labels")]
    over_clock = [entry for entry in found.get("over_clock") or [] if entry.get("labels")]
    return {
        "differs": percent(differs),
        "from_several": bool(found.get("from_several")),
        "by_class": [row(str(entry["recorded"]), entry) for entry in by_class[:CLASSES]],
        "over_clock": [row(clock.short(number(entry["clock"])), entry) for entry in over_clock],
        "clock": clock.title,
    }


# The comparison of two audits as a section of a page, and as a page of its own.

THEN = 9  # colour of the earlier curve


def comparison_view(compare: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the template shows of a comparison; None where there is none."""
    if not compare:
        return None
    clock, overall, panels, rows = None, list[Panel](), list[Panel](), []
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
        rows = [
            {
                "name": entry["class"],
                "at": clock.short(entry["at"]),
                "then": percent(entry["then"]),
                "now": percent(entry["now"]),
                "difference": points_range(*read_numbers(entry, "lower", "upper")),
                "p": p_value(number(entry["p_corrected"])),
            }
            for entry in compare["classes"]
        ]
    return {
        **compare,
        "words": [
            f"Wrong labels: {rate_sentence(compare['rate'])}",
            f"Labels to check: {issues_sentence(compare)}",
            classes_sentence(compare),
        ],
        "clock": clock,
        "overall": overall,
        "panels": panels,
        "rows": rows,
        "kinds": [(kind, found) for kind, found in (compare["issues"] or {}).items() if found["count"]],
    }


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
    agreement = summary["agreement"] or {}
    template = environment().get_template("consensus.html")
    text = template.render(
        found=summary,
        clock=clock,
        cards=consensus_cards(summary),
        panels=panels,
        kappa_drawing=drawer.agreement(),
        kappa_caveat=prevalence_caveat(agreement),
        pairs=page_tables.pairs(agreement),
        number=number,
        is_known=is_known,
        interval=interval,
        points_range=points_range,
        p_value=p_value,
    )
    write_atomically(path, text.encode("utf-8", "replace"))


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
    found.filters.update(name=name_markup, text=text_markup, percent=percent)
    return found
