"""The audit in a few lines: for a terminal, and for a notebook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from labeltide import __version__
from labeltide._files import to_json
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
    number,
    p_value,
    percent,
    read_interval,
    terminal_text,
)
from labeltide.auditing.page.page import environment
from labeltide.auditing.page.verdict import (
    HEAD,
    again_words,
    baseline_text,
    check_title,
    condition,
    following,
    is_noisy,
    is_temporal,
    issues_sentence,
    listed_runs,
    misaligned,
    rate_sentence,
    shape_words,
    size,
    timing_words,
    units,
    untold,
    write_verdict,
)
from labeltide.inference.conclusion import CANNOT_BE_TOLD, SURE


def summary_text(audit: Mapping[str, Any]) -> str:
    """What a person can read in ten seconds; names cannot reach the terminal's controls."""
    views, plan = clock_views(audit), audit.get("plan") or []
    changes = [f"{view.clock.over}: {_change_line(view)}" if view.others else _change_line(view) for view in views]
    when = next((shape_words(view) for view in views if is_temporal(view.audit)), "")
    answer, n_issues = write_verdict(audit).cards[-1].answer, audit["issues"].get("count") or 0
    then = f", then annotate {again_words(plan)}" if plan and is_noisy(audit) and n_issues else ""
    warnings = [check_title(each["name"]) for each in audit.get("diagnostics") or [] if each.get("is_warning")]
    careful = f"{count(len(warnings), 'warning')}: {join_words([display_name(name) for name in warnings])}"
    order = "in runs: labels or signals are at fault" if listed_runs(audit) else "most likely errors first"
    fast = "a fast audit: fewer epochs and windows than usual, so intervals are wider and tests weaker"
    lines = {
        "Wrong": _wrong_line(audit),
        "Timing": timing_words(audit) + misaligned(audit),
        "To check": f"{count(n_issues, 'label')}, {order}" if n_issues else "no label is listed",
        "When": when or ("" if untold(audit) else "no moment stands out"),
        "Over time": "cannot be tested" if untold(audit) else "; ".join(changes),
        "Next": answer[0].lower() + answer[1:] + then,
        "Careful": careful if warnings else "",
        "Fast": fast if (audit.get("settings") or {}).get("fast") else "",
    }
    written = [f"{head:<{HEAD}}{terminal_text(text)}" for head, text in lines.items() if text]
    return "\n".join([f"{display_name(audit['table']['name'], 60)}: {size(audit)}.", *written])


def _wrong_line(audit: Mapping[str, Any]) -> str:
    _, lower, upper = read_interval(audit["noise"], "rate")
    if untold(audit):
        return f"cannot be estimated. {untold(audit)}"
    range_ = f" (95 % interval {interval(lower, upper)})" if interval(lower, upper) else ""
    answer = write_verdict(audit).cards[0].answer
    rest = f" of the labels{range_}{condition(audit)}" if is_noisy(audit) else f"{range_}; {following(audit)}"
    return f"{'apart from the timing, ' if timing_words(audit) else ''}{answer[0].lower()}{answer[1:]}{rest}"


def _change_line(view: View) -> str:
    test = view.audit["temporality"]
    p, change = number(test.get("p_value")), change_words(test)
    if not is_known(p) and test.get("method") == "none":
        return f"cannot be tested with {units(test)}"
    if not is_temporal(view.audit):
        return "no change shown, because no wrong labels are shown" if p < SURE else f"no change shown ({p_value(p)})"
    return f"changes{f' by {change}' if change else ''}, {p_value(p)}"


def summary_html(audit: Mapping[str, Any], folder: Path | None = None) -> str:
    """A small piece of HTML for notebooks; `folder` is where the page is."""
    drawers = [Drawer(view.audit) for view in clock_views(audit)]
    drawings = [drawer.overall()[0].drawing for drawer in drawers if drawer.can_draw]
    page = folder / "report.html" if folder else None
    return environment().get_template("audit_summary.html").render(audit=audit, drawings=drawings, page=page)


# Results for terminals and pipelines: text, JSON, GitHub workflow commands, and a limit on wrong labels.

ABOVE, UNKNOWN = 4, 3  # exit codes where the share of wrong labels is above the limit, or its interval is not known
ANNOTATIONS = 10  # GitHub shows no more of one kind for each step of a workflow
SHARE = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*(%?)\s*")


@dataclass(frozen=True)
class LimitCheck:
    """Whether the share of wrong labels is surely above a limit."""

    limit: float
    lower: float | None  # end of the 95 % interval
    is_above: bool | None  # None where that cannot be estimated
    sentence: str

    @property
    def exit_code(self) -> int:
        return UNKNOWN if self.is_above is None else ABOVE if self.is_above else 0


def read_share(text: str) -> float:
    """A share below one as people write it: 5%, 5 % or 0.05."""
    match = SHARE.fullmatch(text)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= share < 1:
        raise ValueError(f"--fail-above must be a share from 0 % to below 100 %, such as 5% or 0.05. Got {text!r}.")
    return share


def check_limit(audit: Mapping[str, Any], limit: float) -> LimitCheck:
    """Compare the lower end of the interval of the share of wrong labels with a limit."""
    rate, lower, upper = read_interval(audit["noise"], "rate")
    found = (audit.get("conclusion") or {}).get("noise") or {}
    untold = found.get("answer") == CANNOT_BE_TOLD
    if untold or not is_known(rate, lower):
        reason = str(found.get("reason")) if untold else "The interval is not known."
        sentence = f"Whether more than {percent(limit)} of the labels are wrong cannot be estimated. {reason}"
        return LimitCheck(limit, None, None, sentence)
    is_above = lower > limit
    about = f"about {percent(rate)} of the labels are wrong (95 % interval {interval(lower, upper)})"
    rule = "the lower end is above" if is_above else "the lower end is not above"
    return LimitCheck(
        limit, lower, is_above, f"{'Failed' if is_above else 'Passed'}: {about}, {rule} {percent(limit)}."
    )


def audit_text(audit: Mapping[str, Any], page: Path | None, check: LimitCheck | None) -> str:
    """An audit for a person at a terminal."""
    parts = [summary_text(audit)]
    parts += [f"Decisions  {terminal_text(audit['decisions']['sentence'])}"] if audit.get("decisions") else []
    parts += [baseline_text(audit["compare"])] if audit.get("compare") else []
    parts += [f"Limit      {terminal_text(check.sentence)}"] if check is not None else []
    return "\n".join([*parts, f"Page       {page}"])


def audit_document(audit: Mapping[str, Any], folder: Path | None, check: LimitCheck | None) -> str:
    """An audit as one JSON document; all numbers are in audit.json in the folder."""
    noise, test, issues = audit["noise"], audit["temporality"], audit["issues"]
    compare = audit.get("compare")
    if compare is not None:  # without its curves and its lists of labels
        counts = {
            kind: {name: amount for name, amount in found.items() if name != "first"}
            for kind, found in (compare["issues"] or {}).items()
        }
        kept = {name: compare[name] for name in ("old", "new", "matched", "rate", "classes", "messages")}
        compare = kept | {"issues": counts or None}
    return _document(
        {
            "labeltide": __version__,
            "command": "audit",
            "table": audit["table"]["name"],
            **{name: audit["table"][name] for name in ("rows", "labels", "sequences")},
            **{name: noise.get(name) for name in ("rate", "rate_lower", "rate_upper")},
            "issues": issues["count"],
            "expected_false_alarms": issues["expected_false_alarms"],
            "change": {name: test.get(name) for name in ("change", "change_lower", "change_upper", "p_value")},
            "verdict": terminal_text(write_verdict(audit).headline),
            "warnings": [each["name"] for each in audit.get("diagnostics") or [] if each.get("is_warning")],
            "decisions": audit.get("decisions"),
            "compare": compare,
            "fail_above": None if check is None else asdict(check),
            "exit_code": 0 if check is None else check.exit_code,
            "folder": None if folder is None else str(folder),
            "page": None if folder is None else str(folder / "report.html"),
        }
    )


def comparison_document(compare: Mapping[str, Any], page: Path | None) -> str:
    """A comparison of two audits as one JSON document."""
    more = {"exit_code": 0, "page": None if page is None else str(page)}
    return _document({"labeltide": __version__, "command": "compare", **compare, **more})


def github_audit(audit: Mapping[str, Any], issues: pa.Table, table: Path, check: LimitCheck | None) -> Iterator[str]:
    """Workflow commands: a warning for each of the surest issues, for each check that warns, and the verdict."""
    shown = issues.slice(0, ANNOTATIONS - 1).to_pylist()
    for issue in shown:
        recorded, suggested = display_name(issue["recorded"]), display_name(issue["suggested"])
        likelier = "" if recorded == suggested else f", more likely {suggested}"
        reason = (issue["reason"] or f"recorded {recorded}{likelier}").rstrip(".")
        words = f"{_where(issue)}: {reason}. "
        words += f"The label is right with probability {percent(issue['probability_right'])}."
        yield _command("warning", words, {**_location(table, issue["row"]), "title": "Label to check"})
    if len(issues) > len(shown):
        yield _command("notice", f"{len(issues) - len(shown):,} more labels to check are in issues.csv.", {})
    names = [check_title(each["name"]) for each in audit.get("diagnostics") or [] if each.get("is_warning")]
    if names:
        warning = f"Interpret the numbers with caution: {', '.join(names)}."
        yield _command("notice", warning, {"title": "Checks that warn"})
    yield _command("notice", write_verdict(audit).headline, {"file": table.as_posix(), "title": "Label audit"})
    if audit.get("compare"):
        yield from _compared(audit["compare"])
    if check is not None:
        yield _command("error" if check.exit_code else "notice", check.sentence, {"title": "Limit on wrong labels"})


def github_comparison(compare: Mapping[str, Any]) -> Iterator[str]:
    """Workflow commands: a warning for each of the surest new issues, and what changed."""
    found = (compare["issues"] or {}).get("new") or {"first": [], "count": 0}
    shown = found["first"][:ANNOTATIONS]
    for issue in shown:
        words = f"{_where(issue)}: recorded {display_name(issue['recorded_now'])}, which was not an issue before. "
        words += f"It is right with probability {percent(number(issue['probability_right_now']))}."
        location = _location(Path(compare["new"]["name"]), issue["row_now"])
        yield _command("warning", words, {**location, "title": "New label to check"})
    if found["count"] > len(shown):
        yield _command("notice", f"{found['count'] - len(shown):,} more labels to check are new.", {})
    yield from _compared(compare)


def _compared(compare: Mapping[str, Any]) -> Iterator[str]:
    words = [rate_sentence(compare["rate"]), issues_sentence(compare), *compare["messages"]]
    yield _command("notice", " ".join(words), {"title": "Then and now"})


def _command(kind: str, message: str, properties: Mapping[str, Any]) -> str:
    """A workflow command; nothing in it can start another one."""
    written = ",".join(f"{name}={_escaped(value, '%:,')}" for name, value in properties.items())
    return f"::{kind}{' ' if written else ''}{written}::{_escaped(terminal_text(message), '%')}"


def _escaped(value: Any, letters: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in f"{letters}\r\n" else letter for letter in str(value))


def _location(table: Path, row: int) -> dict[str, Any]:
    """The file, and the line in it where the file is text: after one line of names, counted from 1."""
    is_plain = table.name.lower().endswith((".csv", ".tsv"))
    return {"file": table.as_posix(), **({"line": row + 2} if is_plain else {})}


def _where(issue: Mapping[str, Any]) -> str:
    who = f", {display_name(issue['annotator'])}" if issue["annotator"] else ""
    row = issue.get("row_now", issue.get("row"))
    return f"Row {row} (sequence {display_name(issue['sequence'])}, {display_name(issue['time'])}{who})"


def _document(content: Mapping[str, Any]) -> str:
    return json.dumps(to_json(content), ensure_ascii=False, allow_nan=False, indent=1)
