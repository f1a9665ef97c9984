"""From the results of an audit to one HTML page that needs nothing else."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from labeltide._files import write_atomically
from labeltide.auditing.folder import PAGE
from labeltide.auditing.page import page_tables
from labeltide.auditing.page.checks import check_title, meaning
from labeltide.auditing.page.clock_words import View, clock_views
from labeltide.auditing.page.compare_page import comparison_view
from labeltide.auditing.page.curves import PANELS, Drawer
from labeltide.auditing.page.environment import environment
from labeltide.auditing.page.numbers import is_known, number, percent
from labeltide.auditing.page.payload import build_payload, embed
from labeltide.auditing.page.prevalence import prevalence_caveat
from labeltide.auditing.page.reading_words import reading_line
from labeltide.auditing.page.results import Results
from labeltide.auditing.page.verdict import is_noisy, size, untold, write_verdict

SCRIPTS = ("audit_base.js", "audit_issues.js", "audit_timeline.js", "audit_view.js", "audit_curves.js")
CLASSES = 30  # rows of a table by class
FILES = {
    "issues.csv": "the labels to check, ranked, for a spreadsheet",
    "issues.parquet": "the same, for programs",
    "labels.parquet": "every label: recorded, probability of being right and of being contested, suggested, corrected",
    "noise.csv": "Q over the clock with its bands",
    "audit.json": "all numbers, settings and versions",
    "model/model.safetensors": "the fitted model, for labeltide predict",
}


def write_page(folder: Path, results: Results | None = None) -> Path:
    """Write `report.html` into the folder of an audit, whole or not at all, and give back its path.

    Parameters
    ----------
    folder : holds `audit.json`, `labels.parquet` and `issues.parquet`, as `labeltide audit` writes them
    results : what these files hold, where it is in memory
    """
    folder = Path(folder)
    results = results or Results.in_folder(folder)
    text = render(results.audit, build_payload(results))
    write_atomically(folder / PAGE, text.encode("utf-8", "replace"))
    return folder / PAGE


def render(audit: Mapping[str, Any], payload: Mapping[str, Any]) -> str:
    """The page's text; what came from the table is escaped by the template or written as JSON that nothing can end."""
    script = _script()
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
            **_drawn(audit),
            **_tabled(audit),
            contested=None if untold(audit) else _contested(audit),
            compare=comparison_view(audit.get("compare")),
        )
    )


def _script() -> str:
    """The page's own script, of which the policy in its head allows this text and no other."""
    folder = files("labeltide.auditing.page") / "templates"
    parts = [(folder / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return "(() => {\n" + "\n".join(["'use strict';", *parts]) + "\n})();\n"


def _drawn(audit: Mapping[str, Any]) -> dict[str, Any]:
    drawer = Drawer(audit)
    return {
        "clocks": [_over_clock(view) for view in clock_views(audit)],
        "annotators": drawer.annotators() if drawer.can_draw else [],
        "kappa_drawing": drawer.agreement() if drawer.can_draw else None,
    }


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
    rows = page_tables.contested_rows
    return {
        "differs": percent(differs),
        "from_several": bool(found.get("from_several")),
        "by_class": rows(found.get("by_class") or [], lambda entry: str(entry["recorded"]))[:CLASSES],
        "over_clock": rows(found.get("over_clock") or [], lambda entry: clock.short(number(entry["clock"]))),
        "clock": clock.title,
    }


def _tabled(audit: Mapping[str, Any]) -> dict[str, Any]:
    drawer, test, agreement = Drawer(audit), audit["temporality"], audit.get("agreement") or {}
    people = {panel.name: panel.detail for panel in drawer.annotators()} if drawer.can_draw else {}
    amounts = {
        str(curve["annotator"]): curve["labels"] for curve in drawer.curves if curve.get("annotator") is not None
    }
    return {
        "annotator_changes": page_tables.changes(test.get("per_annotator") or [], "annotator", people, amounts),
        "pairs": page_tables.pairs(agreement),
        "fleiss": (page_tables.kappa(agreement["fleiss"]), page_tables.kappa_word(agreement["fleiss"]))
        if is_known(number(agreement.get("fleiss")))
        else None,
        "overview": audit["table"].get("overview") or [],
        "reading": reading_line(audit["table"]),
        "kappa_caveat": prevalence_caveat(agreement),
        "plan": (audit.get("plan") or [])[: page_tables.PLAN],
        "sequences": (audit["issues"].get("by_sequence") or [])[: page_tables.SEQUENCES],
        "facts": page_tables.facts(audit),
        "settings": list((audit.get("settings") or {}).items()),
        "versions": [("labeltide", audit["labeltide"]), *(audit.get("versions") or {}).items()],
    }
