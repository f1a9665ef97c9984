"""A comparison of two audits in words: for a terminal, and for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labeltide.auditing.page.clock_words import Clock
from labeltide.auditing.page.names import display_name, in_quotes, terminal_text
from labeltide.auditing.page.numbers import (
    SIGN,
    count,
    interval,
    is_known,
    join_words,
    number,
    p_value,
    percent,
    points,
)
from labeltide.inference.conclusion import SURE

HEAD = 11  # letters before each line's words


def comparison_text(compare: Mapping[str, Any]) -> str:
    """The comparison in a few lines, for a terminal."""
    title = f"{_title(compare['old'])}, then {_title(compare['new'])}."
    return f"{title}\n{_lines(compare, 'Wrong')}"


def baseline_text(compare: Mapping[str, Any]) -> str:
    """What changed since the baseline, as further lines below the summary of an audit."""
    return _lines(compare, "Baseline")


def _lines(compare: Mapping[str, Any], first: str) -> str:
    lines = {
        first: rate_sentence(compare["rate"]),
        "Issues": issues_sentence(compare),
        "Classes": classes_sentence(compare),
        "Careful": " ".join(compare["said"]),
    }
    return "\n".join(f"{head:<{HEAD}}{terminal_text(text)}" for head, text in lines.items() if text)


def rate_sentence(rate: Mapping[str, Any]) -> str:
    """Then 19 %, now 10 %: 9.0 percentage points lower (8.1 to 10), p < 0.001."""
    then, now = number(rate["then"]["value"]), number(rate["now"]["value"])
    if not is_known(then, now):
        return "The share of wrong labels is not known in both audits."
    p, difference = number(rate["p_value"]), number(rate["difference"])
    said = f"{percent(then)} then, {percent(now)} now"
    if not is_known(p):
        return f"{said}. The difference cannot be tested: an interval is missing."
    low, high = number(rate["lower"]), number(rate["upper"])
    if p < SURE:
        ends = (low, high) if difference > 0 else (-high, -low)
        more = "higher" if difference > 0 else "lower"
        moved = f"{points(abs(difference))} {more} (95 % interval {points_range(*ends)})"
        return f"{said}: {moved}, {p_value(p)}; {_method(rate)}."
    return f"{said}. No difference is shown (95 % interval {points_range(low, high)}, {p_value(p)}); {_method(rate)}."


def issues_sentence(compare: Mapping[str, Any]) -> str:
    """12 new, 40 resolved (38 relabelled), 900 persisting; 4,958 labels matched by sequence and time."""
    found, matched = compare["issues"], compare["matched"]
    if found is None:
        return "New, resolved and persisting labels cannot be told: no label could be matched."
    parts = [f"{found[kind]['count']:,} {kind}{_why(found[kind], kind)}" for kind in ("new", "resolved", "persisting")]
    alone = [f"{matched[f'only_{which}']:,} in the {which} audit alone" for which in ("old", "new")]
    told = [words for words, which in zip(alone, ("old", "new"), strict=True) if matched[f"only_{which}"]]
    rest = f" ({join_words(told)})" if told else ""
    return f"{join_words(parts)}. {count(matched['labels'], 'label')} matched by {matched['by']}{rest}."


def classes_sentence(compare: Mapping[str, Any]) -> str:
    """The true classes whose error rate over the clock differs."""
    if not compare["classes"]:
        return ""
    clock = Clock.read(compare["clock"])
    sure = [entry for entry in compare["classes"] if entry["p_corrected"] < SURE]
    if not sure:
        return "No true class has an error rate over the clock that is shown to differ."
    parts = [
        f"{in_quotes(entry['class'])} ({percent(entry['then'])} then, {percent(entry['now'])} now "
        f"{clock.moment(entry['at'])}, {p_value(entry['p_corrected'])})"
        for entry in sorted(sure, key=lambda entry: entry["p_corrected"])
    ]
    return f"The error rate over the clock differs for true {join_words(parts)}."


def _why(found: Mapping[str, Any], kind: str) -> str:
    reasons = {"relabelled": "relabelled", "not_in_the_other": "gone" if kind == "resolved" else "not there before"}
    told = [f"{found[key]:,} {words}" for key, words in reasons.items() if found.get(key) and kind != "persisting"]
    return f" ({', '.join(told)})" if told else ""


def _method(rate: Mapping[str, Any]) -> str:
    if rate["method"] != "people":
        return "z-test of two independent estimates"
    paired = f", {rate['n_paired']} of them in both audits and paired" if rate["n_paired"] else ""
    return f"t-test with sequences as the unit{paired}"


def points_range(low: float, high: float) -> str:
    """The two ends of an interval of percentage points."""
    return interval(low, high).removesuffix(SIGN)


def _title(side: Mapping[str, Any]) -> str:
    made = f" of {str(side['created'])[:10]}" if side.get("created") else ""
    size = f"{count(side['labels'], 'label')}, {count(side['issues'] or 0, 'issue')}"
    return f"{display_name(side['name'], 60)}{made} ({size})"
