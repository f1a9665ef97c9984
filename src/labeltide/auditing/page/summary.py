"""The audit in a few lines: for a terminal, and for a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from labeltide.auditing.page.draw import Drawer
from labeltide.auditing.page.format import (
    View,
    change_words,
    clock_views,
    count,
    display_name,
    interval,
    is_known,
    join_words,
    name_markup,
    number,
    p_value,
    percent,
    read_interval,
    read_numbers,
    terminal_text,
)
from labeltide.auditing.page.verdict import (
    again_words,
    check_title,
    is_noisy,
    is_temporal,
    misaligned,
    size,
    timing_words,
    units,
    untold,
    write_verdict,
)
from labeltide.inference.conclusion import SURE

HEAD = 11  # letters before each line's words


def summary_text(audit: Mapping[str, Any]) -> str:
    """What a person can read in ten seconds; names cannot reach the terminal's controls."""
    views, plan = clock_views(audit), audit.get("plan") or []
    changes = [f"{view.clock.over}: {_change_line(view)}" if view.others else _change_line(view) for view in views]
    answer = write_verdict(audit).cards[-1].answer
    has_list = is_noisy(audit) and audit["issues"].get("count")
    then = f", then annotate {again_words(plan)}" if plan and has_list else ""
    warnings = [check_title(each["name"]) for each in audit.get("diagnostics") or [] if each.get("is_warning")]
    careful = f"{count(len(warnings), 'warning')}: {join_words([display_name(name) for name in warnings])}"
    fast = "a fast audit: fewer epochs and windows than usual, so intervals are wider and tests weaker"
    lines = {
        "Wrong": _wrong_line(audit),
        "Timing": timing_words(audit) + misaligned(audit),
        "Worst": _worst(audit),
        "Over time": "cannot be tested" if untold(audit) else "; ".join(changes),
        "Next": answer[0].lower() + answer[1:] + then,
        "Careful": careful if warnings else "",
        "Fast": fast if (audit.get("settings") or {}).get("fast") else "",
    }
    told = [f"{head:<{HEAD}}{terminal_text(text)}" for head, text in lines.items() if text]
    return "\n".join([f"{display_name(audit['table']['name'], 60)}: {size(audit)}.", *told])


def _wrong_line(audit: Mapping[str, Any]) -> str:
    n_issues = audit["issues"].get("count") or 0
    _, lower, upper = read_interval(audit["noise"], "rate")
    if untold(audit):
        return f"cannot be estimated. {untold(audit)} No label is named or corrected"
    range_ = f" ({interval(lower, upper)})" if interval(lower, upper) else ""
    answer = write_verdict(audit).cards[0].answer
    much = f"{answer[0].lower()}{answer[1:]}{range_}{' of labels' * is_noisy(audit)}"
    named = f"{count(n_issues, 'label')} to check, most likely errors first" if n_issues else "no label is named"
    return f"apart from the timing, {much}; {named}" if timing_words(audit) else f"{much}; {named}"


def _worst(audit: Mapping[str, Any]) -> str:
    """Over the first clock along which a moment stands out."""
    moving = [view for view in clock_views(audit) if is_temporal(view.audit)]
    if not moving:
        return "" if untold(audit) else "no moment stands out"
    clock, test = moving[0].clock, moving[0].audit["temporality"]
    parts = []
    for word, before in (("worst", ""), ("best", "best ")):
        at, rate = read_numbers(test, f"{word}_at", f"{word}_rate")
        parts += [f"{before}{clock.moment(at)} ({percent(rate)})"] if is_known(at, rate) else []
    return "; ".join(parts) or "no moment stands out"


def _change_line(view: View) -> str:
    test = view.audit["temporality"]
    p, change = number(test.get("p_value")), change_words(test)
    if not is_known(p) and test.get("method") == "none":
        return f"cannot be tested with {units(test)}"
    if not is_temporal(view.audit):
        return "no change shown, as no wrong labels are" if p < SURE else f"no change shown ({p_value(p)})"
    return f"changes{f' by {change}' if change else ''}, {p_value(p)}"


def summary_html(audit: Mapping[str, Any], folder: Path | None = None) -> str:
    """A small piece of HTML for notebooks; `folder` is where the page is."""
    style = (files("labeltide.auditing.page") / "templates" / "audit_summary.css").read_text(encoding="utf-8")
    verdict, drawers = write_verdict(audit), [Drawer(view.audit) for view in clock_views(audit)]
    row = Markup("<dt>{}</dt><dd><strong>{}.</strong> {}</dd>")
    rows = [row.format(card.question, card.answer, card.detail) for card in verdict.cards]
    parts = [
        Markup("<style>{}</style>").format(Markup(style)),
        Markup("<p><strong>{}</strong>: {}</p>").format(name_markup(audit["table"]["name"], 80), size(audit)),
        Markup("<p><strong>{}</strong></p>").format(verdict.headline),
        *(drawer.overall()[0].drawing for drawer in drawers if drawer.can_draw),
        Markup("<dl>{}</dl>").format(Markup("").join(rows)),
        Markup("<p><strong>Careful.</strong> {}</p>").format(verdict.caution) if verdict.caution else Markup(""),
        Markup("<p>The whole page: {}</p>").format(display_name(folder / "report.html", 200)) if folder else Markup(""),
    ]
    return str(Markup('<div class="labeltide-audit">{}</div>').format(Markup("").join(parts)))
