"""Two audits compared: new, resolved and persisting issues, and Q(t) then and now with a test of the difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide._files import to_json
from labeltide.auditing.label_matching import COLUMNS, KINDS, MatchedLabels, label_changes, match_labels, read_lines
from labeltide.auditing.page.compare_words import comparison_text
from labeltide.auditing.page.numbers import number, numbers
from labeltide.auditing.page.results import Results
from labeltide.auditing.rate_difference import (
    CurveDifference,
    Difference,
    Share,
    Z,
    curve_difference,
    holm,
    independent_difference,
    people_difference,
)
from labeltide.tables.wording import quoted

EXAMPLES = 20  # labels of each kind in the summary
POINTS = 100  # moments at which curves are compared
NEEDED = ("table.columns", "table.classes", "table.rows", "noise", "clock", "issues")  # of audit.json
FEWEST_PEOPLE = 8  # in each audit, for them to be the unit of the test
ENDS = ("", "_lower", "_upper")


@dataclass(frozen=True)
class AuditComparison:
    """What changed between two audits; shows itself as text.

    Attributes
    ----------
    summary : dict
        All numbers, as the part `compare` of audit.json holds them.
    issues : pyarrow.Table
        One line for each label that is an issue in either audit; `change` is new, resolved or persisting.
    """

    summary: dict[str, Any]
    issues: pa.Table = field(repr=False)

    def __str__(self) -> str:
        return comparison_text(self.summary)


def compare_audits(old: str | Path | Results, new: str | Path | Results) -> AuditComparison:
    """Compare two audits: which issues are new, resolved or persisting, and whether the noise differs.

    Labels are matched by sequence, time and annotator; where there is no time, by row number. The difference of the
    shares of wrong labels is tested with people as the unit, those in both audits paired, where each audit has at least
    eight; else as that of two independent estimates (`rate_difference.py`). The error rate of each true class over the
    clock is tested at its most striking moment.

    Parameters
    ----------
    old, new : folders that `labeltide audit` wrote

    Examples
    --------
    >>> import labeltide as lt
    >>> comparison = lt.compare_audits("audit-before", "audit")
    >>> sorted(comparison.summary["issues"])
    ['new', 'persisting', 'resolved']
    """
    old, new = (each if isinstance(each, Results) else open_results(Path(each)) for each in (old, new))
    sides = old.audit, new.audit
    lines = read_lines(old.labels), read_lines(new.labels)
    matched = match_labels(*lines, *sides)
    issues = label_changes(matched)
    curves, said = _compare_curves(*sides)
    summary = {
        "old": _describe(old.audit),
        "new": _describe(new.audit),
        "matched": _describe_match(matched),
        "issues": _describe_issues(issues) if matched.by else None,
        "rate": _compare_rates(sides, lines, _same_labels(matched)),
        **curves,
        "said": [*matched.said, *said],
    }
    return AuditComparison(to_json(summary), issues)


def open_results(folder: Path, *, in_memory: bool = False) -> Results:
    """The results in a folder, or a sentence that says why they cannot be compared.

    With in_memory they do not change if the folder does.
    """
    if not folder.is_dir():
        raise ValueError(f"An audit is a folder that `labeltide audit` wrote. There is no folder {str(folder)!r}.")
    try:
        results = Results.in_folder(folder, NEEDED)
        labels = parquet.read_schema(results.labels).empty_table().select(COLUMNS)
        return Results(results.audit, read_lines(results.labels), labels) if in_memory else results
    except (KeyError, TypeError, UnicodeDecodeError, JSONDecodeError, RecursionError, pa.ArrowException):
        raise ValueError(f"The files in {str(folder)!r} are not what this version writes. Audit again.") from None


def _describe(audit: Mapping[str, Any]) -> dict[str, Any]:
    table = audit["table"]
    known = {name: table.get(name) for name in ("name", "rows", "labels", "sequences")}
    return known | {"created": audit.get("created"), "issues": audit["issues"].get("count")}


def _same_labels(matched: MatchedLabels) -> float:
    """The share of labels that both audits have and that were recorded alike."""
    if not matched.by:
        return 0.0
    same = pc.sum(pc.equal(matched.both["recorded"], matched.both["recorded_now"])).as_py() or 0
    return float(same / (len(matched.both) + max(len(matched.old), len(matched.new))))


def _describe_match(matched: MatchedLabels) -> dict[str, Any]:
    both = matched.both
    differs = pc.sum(pc.not_equal(both["recorded"], both["recorded_now"])).as_py() if matched.by else 0
    counts = {"labels": len(both) if matched.by else 0, "relabelled": differs or 0}
    return {"by": matched.by or None, **counts, "only_old": len(matched.old), "only_new": len(matched.new)}


def _describe_issues(issues: pa.Table) -> dict[str, Any]:
    """Counts of each kind, why they are of it, and the surest examples."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        part = issues.filter(pc.equal(issues["change"], kind))
        then, now = pc.is_valid(part["recorded"]), pc.is_valid(part["recorded_now"])
        changed = pc.fill_null(pc.not_equal(part["recorded"], part["recorded_now"]), False)
        reasons = {"relabelled": changed, "same_label": pc.and_not(pc.and_(then, now), changed)}
        reasons["not_in_the_other"] = pc.invert(pc.and_(then, now))
        found[kind] = {"count": len(part), **{name: pc.sum(chosen).as_py() or 0 for name, chosen in reasons.items()}}
        by = "probability_right" if kind == "resolved" else "probability_right_now"
        found[kind]["first"] = part.sort_by([(by, "ascending")]).slice(0, EXAMPLES).drop_columns("change").to_pylist()
    return found


def _compare_rates(
    sides: tuple[Mapping[str, Any], Mapping[str, Any]], lines: tuple[pa.Table, pa.Table], same_labels: float
) -> dict[str, Any]:
    then, now = (Share(*(number(audit["noise"].get(f"rate{end}")) for end in ENDS)) for audit in sides)
    people = _people(lines[0]), _people(lines[1])
    of_people = min(map(len, people)) >= FEWEST_PEOPLE
    difference = people_difference(then, now, people, same_labels) if of_people else independent_difference(then, now)
    described = {"then": then._asdict(), "now": now._asdict(), **_describe_difference(difference)}
    n_paired = len(people[0].keys() & people[1].keys())
    return described | {"method": "people" if of_people else "independent", "n_paired": n_paired}


def _people(lines: pa.Table) -> dict[str, tuple[float, int]]:
    """Of each sequence the expected number of wrong labels and the number of labels."""
    right = pc.fill_null(lines["probability_right"], 1.0)
    sums = pa.table({"sequence": lines["sequence"], "wrong": pc.subtract(1.0, right)}).group_by("sequence")
    found = sums.aggregate([("wrong", "sum"), ("wrong", "count")]).to_pylist()
    return {each["sequence"]: (each["wrong_sum"], each["wrong_count"]) for each in found}


def _describe_difference(difference: Difference) -> dict[str, float]:
    limits = {"difference": difference.value, "lower": difference.lower, "upper": difference.upper}
    return limits | {"p_value": difference.p_value}


def _compare_curves(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The error rates of all labels and of each true class over the first clock, where both audits have them."""
    nothing: dict[str, Any] = {"clock": None, "curves": [], "classes": []}
    clocks, names = [audit["clock"] for audit in (old, new)], [audit["table"]["classes"] for audit in (old, new)]
    if any(clocks[0].get(key) != clocks[1].get(key) for key in ("kind", "name", "period")):
        titles = quoted([clocks[0].get("name"), clocks[1].get("name")])
        return nothing, [f"The clocks differ ({titles}), so Q is not compared over the clock."]
    points = _common_points(*(numbers(audit["noise"].get("clock")) for audit in (old, new)))
    if not len(points):
        return nothing, ["The clocks of the two audits have no moment in common, so Q is not compared over the clock."]
    shared, said = [name for name in names[0] if name in names[1]], []
    for which, alone in (("old", set(names[0]) - set(names[1])), ("new", set(names[1]) - set(names[0]))):
        said += [f"In the {which} audit alone: class {quoted(sorted(alone))}."] if alone else []
    pairs = {name: tuple(_class_curve(audit, name, points) for audit in (old, new)) for name in shared}
    curves = [_describe_curves(None, *(_rate_curve(audit, points) for audit in (old, new)))]
    curves += [_describe_curves(name, then[0], now[0]) for name, (then, now) in pairs.items()]
    tested = {
        name: curve_difference(points, then[0], now[0], (then[1] + now[1]) / 2) for name, (then, now) in pairs.items()
    }
    return {"clock": new["clock"] | {"points": points}, "curves": curves, "classes": _describe_tests(tested)}, said


def _describe_tests(tested: dict[str, CurveDifference | None]) -> list[dict[str, Any]]:
    found = {name: test for name, test in tested.items() if test is not None}
    corrected = holm([test.difference.p_value for test in found.values()])
    return [
        {
            "class": name,
            "at": test.at,
            "then": test.then,
            "now": test.now,
            **_describe_difference(test.difference),
            "p_corrected": p_corrected,
        }
        for (name, test), p_corrected in zip(found.items(), corrected, strict=True)
    ]


def _describe_curves(name: str | None, then: Share, now: Share) -> dict[str, Any]:
    return {"class": name, "then": then._asdict(), "now": now._asdict()}


def _common_points(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Moments that lie within both clocks."""
    if not (len(old) and len(new)):
        return np.array([])
    low, high = max(old.min(), new.min()), min(old.max(), new.max())
    return np.linspace(low, high, POINTS) if high > low else np.array([low] if high == low else [])


def _rate_curve(audit: Mapping[str, Any], points: np.ndarray) -> Share:
    curve = (audit["noise"].get("curves") or [{}])[0]
    return Share(*(_at(audit, curve.get(f"rate{end}"), points) for end in ENDS))


def _class_curve(audit: Mapping[str, Any], name: str, points: np.ndarray) -> tuple[Share, float]:
    """The error rate of a true class, and the half-width of its simultaneous band in standard errors."""
    curve, place = (audit["noise"].get("curves") or [{}])[0], audit["table"]["classes"].index(name)

    def row(key: str) -> np.ndarray:
        values = curve.get(key) or []
        return _at(audit, values[place] if place < len(values) else None, points)

    share = Share(*(row(f"class_rate{end}") for end in ENDS))
    wide = row("class_rate_simultaneous_upper") - row("class_rate_simultaneous_lower")
    near = np.asarray(share.upper) - np.asarray(share.lower)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (wide / near)[np.isfinite(wide / near) & (near > 0)]
    return share, float(Z * np.median(ratio)) if len(ratio) else Z


def _at(audit: Mapping[str, Any], values: Any, points: np.ndarray) -> np.ndarray:
    """A curve at other moments, by linear interpolation."""
    clock, curve = numbers(audit["noise"].get("clock")), numbers(values)
    return np.interp(points, clock, curve) if curve.shape == clock.shape else np.full(len(points), np.nan)
