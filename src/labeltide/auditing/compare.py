"""Two audits compared: new, resolved and persisting issues, and Q(t) then and now with a test of the difference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtri, stdtr, stdtrit

from labeltide._files import to_json
from labeltide.auditing.page.format import numbers, read_interval
from labeltide.auditing.page.payload import Results
from labeltide.auditing.page.verdict import comparison_text
from labeltide.auditing.results import read_labels
from labeltide.inference.review import holm
from labeltide.tables.words import quoted

EXAMPLES = 20  # labels of each kind in the summary
POINTS = 100  # moments at which curves are compared
NEEDED = ("table.columns", "table.classes", "table.rows", "noise", "clock", "issues")  # of audit.json
MIN_PEOPLE = 8  # in each audit, for them to be the unit of the test
RATE = ("rate", "rate_lower", "rate_upper")
CLASS_RATE = (*(f"class_{name}" for name in RATE), "class_rate_simultaneous_lower", "class_rate_simultaneous_upper")


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
    eight; otherwise as that of two independent estimates. The error rate of each true class over the
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
    lines = read_recorded_lines(old.labels), read_recorded_lines(new.labels)
    pairs, by, messages = match_labels(*lines, *sides)
    then, now = (pairs[name].is_valid().to_numpy() for name in ("row", "row_now"))
    n_both = int((then & now).sum())
    n_same = pc.sum(pc.equal(pairs["recorded"], pairs["recorded_now"])).as_py() or 0
    only = [int((then & ~now).sum()), int((now & ~then).sum())] if by else [len(each) for each in lines]
    issues = label_changes(pairs)
    curves, of_curves = _compare_curves(*sides)
    # Where a model corrected the labels, fewer wrong ones mean little.
    circular = [each["sentence"] for each in new.audit.get("diagnostics") or [] if each["name"] == "circular"]
    summary = {
        "old": _describe(old.audit),
        "new": _describe(new.audit),
        "matched": {
            "by": by or None,
            "labels": n_both,
            "relabelled": n_both - n_same,
            "only_old": only[0],
            "only_new": only[1],
        },
        "issues": _describe_issues(issues) if by else None,
        "rate": _compare_rates(sides, lines, n_same / (n_both + max(only)) if by else 0.0),
        **curves,
        "messages": [*messages, *of_curves, *circular],
    }
    return AuditComparison(to_json(summary), issues)


def open_results(folder: Path, *, in_memory: bool = False) -> Results:
    """The results in a folder, or a ValueError that says why they cannot be compared.

    With in_memory they do not change if the folder does.
    """
    if not folder.is_dir():
        raise ValueError(f"An audit is a folder that `labeltide audit` wrote. There is no folder {str(folder)!r}.")
    results = Results.in_folder(folder, NEEDED)
    if not in_memory:
        return results
    lines = read_recorded_lines(results.labels)
    return Results(results.audit, lines, lines.slice(0, 0))


def _describe(audit: Mapping[str, Any]) -> dict[str, Any]:
    table = audit["table"]
    known = {name: table.get(name) for name in ("name", "rows", "labels", "sequences")}
    return known | {"created": audit.get("created"), "issues": audit["issues"].get("count")}


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
    then, now = (Share(*read_interval(audit["noise"], "rate")) for audit in sides)
    people = _people(lines[0]), _people(lines[1])
    of_people = min(map(len, people)) >= MIN_PEOPLE
    difference = people_difference(then, now, people, same_labels) if of_people else independent_difference(then, now)
    return {
        "then": then._asdict(),
        "now": now._asdict(),
        **difference._asdict(),
        "method": "people" if of_people else "independent",
        "n_paired": len(people[0].keys() & people[1].keys()),
    }


def _people(lines: pa.Table) -> dict[str, tuple[float, int]]:
    """Of each sequence the expected number of wrong labels and the number of labels."""
    right = pc.fill_null(lines["probability_right"], 1.0)
    sums = pa.table({"sequence": lines["sequence"], "wrong": pc.subtract(1.0, right)}).group_by("sequence")
    found = sums.aggregate([("wrong", "sum"), ("wrong", "count")]).to_pylist()
    return {each["sequence"]: (each["wrong_sum"], each["wrong_count"]) for each in found}


def _compare_curves(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The error rates of all labels and of each true class over the first clock, where both audits have them."""
    nothing: dict[str, Any] = {"clock": None, "curves": [], "classes": []}
    clocks, names = [audit["clock"] for audit in (old, new)], [audit["table"]["classes"] for audit in (old, new)]
    if any(clocks[0].get(key) != clocks[1].get(key) for key in ("kind", "name", "period")):
        titles = quoted([clocks[0].get("name"), clocks[1].get("name")])
        return nothing, [f"The clocks differ ({titles}), so Q is not compared over the clock."]
    ends = [numbers(audit["noise"].get("clock")) for audit in (old, new)]
    low, high = 1.0, 0.0
    if all(map(len, ends)):
        low, high = max(each.min() for each in ends), min(each.max() for each in ends)
    if not low <= high:
        return nothing, ["The clocks of the two audits have no moment in common, so Q is not compared over the clock."]
    points = np.linspace(low, high, POINTS) if high > low else np.array([low])  # moments within both clocks
    messages = []
    for which, alone in (("old", set(names[0]) - set(names[1])), ("new", set(names[1]) - set(names[0]))):
        messages += [f"Only in the {which} audit: class {quoted(sorted(alone))}."] if alone else []
    rates = [Share(*_curves_at(audit, RATE, points)) for audit in (old, new)]
    curves = [{"class": None, "then": rates[0]._asdict(), "now": rates[1]._asdict()}]
    classes: list[dict[str, Any]] = []
    for name in [name for name in names[0] if name in names[1]]:
        (then, then_band), (now, now_band) = (_class_curve(audit, name, points) for audit in (old, new))
        curves.append({"class": name, "then": then._asdict(), "now": now._asdict()})
        test = curve_difference(points, then, now, (then_band + now_band) / 2)
        classes += [{"class": name, **test}] if test else []
    for entry, p_corrected in zip(classes, holm([entry["p_value"] for entry in classes]).tolist(), strict=True):
        entry["p_corrected"] = p_corrected
    return {"clock": new["clock"] | {"points": points}, "curves": curves, "classes": classes}, messages


def _class_curve(audit: Mapping[str, Any], name: str, points: np.ndarray) -> tuple[Share, float]:
    """The error rate of a true class, and the half-width of its simultaneous band in standard errors."""
    *rates, wide_lower, wide_upper = _curves_at(audit, CLASS_RATE, points, audit["table"]["classes"].index(name))
    near, wide = rates[2] - rates[1], wide_upper - wide_lower
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (wide / near)[np.isfinite(wide / near) & (near > 0)]
    return Share(*rates), float(Z * np.median(ratio)) if len(ratio) else Z


def _curves_at(
    audit: Mapping[str, Any], keys: tuple[str, ...], points: np.ndarray, index: int = -1
) -> list[np.ndarray]:
    """Curves at other moments, by linear interpolation; those of one class where its index is given."""
    clock, found = numbers(audit["noise"].get("clock")), (audit["noise"].get("curves") or [{}])[0]
    curves = [numbers(found.get(key)) for key in keys]
    curves = [curve[index] if index < len(curve) else curve for curve in curves] if index >= 0 else curves
    return [np.interp(points, clock, each) if each.shape == clock.shape else points * np.nan for each in curves]


# Tests of a difference between two audits: of the share of wrong labels, and of a curve over the clock.
#
# With enough people the difference of two shares has a cluster-robust variance (Liang and Zeger 1986) and quantiles of
# Student's t. What a person adds to the two shares is subtracted first, so people who are in both audits are paired.
# People say nothing about errors that a fit makes for all of them alike. These are added from the intervals of the two
# shares; labels that are the same in both audits make them correlated.
#
# With few people the interval of the difference comes from the two intervals by MOVER, the method of variance estimates
# recovery (Newcombe 1998; Zou and Donner 2008), which needs neither symmetric intervals nor a variance.
#
# A curve is tested at its most striking moment, by MOVER. The p-value of that moment is corrected for the many moments
# at which one could have looked by Šidák's formula (1967), with the effective number of moments that the simultaneous
# bands imply, at most as many as are compared.

Z = float(ndtri(0.975))
MAX_CORRELATION = 0.95  # by hand: of two fits to the same labels (docs/decisions/020-review.md)
People = dict[str, tuple[float, int]]  # expected number of wrong labels and number of labels of each person


class Share(NamedTuple):
    """An estimated share with its 95 % interval; arrays where it is a curve."""

    value: float | np.ndarray
    lower: float | np.ndarray
    upper: float | np.ndarray


class Difference(NamedTuple):
    """Now minus then, with a 95 % interval and the p-value of no difference; NaN where it cannot be estimated."""

    difference: float
    lower: float
    upper: float
    p_value: float


def independent_difference(old: Share, new: Share) -> Difference:
    """The difference of two independent shares by MOVER, with a z-test."""
    value = float(new.value - old.value)
    down, up = (float(half) for half in _half_widths(old, new))
    if not math.isfinite(value + down + up) or (down + up == 0 and value):
        return Difference(value, math.nan, math.nan, math.nan)
    side = down if value > 0 else up
    p_value = 1.0 if value == 0 else 0.0 if side == 0 else _two_sided(Z * abs(value) / side)
    return Difference(value, max(-1.0, value - down), min(1.0, value + up), p_value)


def people_difference(old: Share, new: Share, people: tuple[People, People], same_labels: float) -> Difference:
    """The difference of two shares with people as the unit; those who are in both audits are paired.

    Each audit has at least two people; `same_labels` is the share of labels that both audits have recorded alike.
    """
    value = float(new.value - old.value)
    errors = [float(np.subtract(share.upper, share.lower)) / (2 * Z) for share in (old, new)]
    correlation = min(same_labels, MAX_CORRELATION)
    names = sorted(people[0].keys() | people[1].keys())
    moved = _influence(people[1], names) - _influence(people[0], names)  # (people,)
    variance = errors[0] ** 2 + errors[1] ** 2 - 2 * correlation * errors[0] * errors[1]
    variance += float((moved**2).sum()) * len(names) / (len(names) - 1)  # cluster-robust
    if not math.isfinite(value + variance) or variance <= 0:
        return Difference(value, math.nan, math.nan, math.nan)
    freedom = min(map(len, people)) - 1
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(variance)
    p_value = 2 * float(stdtr(freedom, -abs(value) / math.sqrt(variance)))
    return Difference(value, max(-1.0, value - half), min(1.0, value + half), p_value)


def _influence(people: People, names: list[str]) -> np.ndarray:
    """What each person adds to the deviation of the share from its expectation: shape (people,)."""
    wrong, labels = (sum(each[index] for each in people.values()) for index in (0, 1))
    each_one = [people.get(name, (0.0, 0)) for name in names]
    return np.array([(own_wrong - wrong / labels * own_labels) / labels for own_wrong, own_labels in each_one])


def curve_difference(points: np.ndarray, old: Share, new: Share, critical: float) -> dict[str, float]:
    """Two curves on the same points at the moment at which they differ most surely; empty where no moment has both.

    Limits and p-value are those of the whole curve, corrected for the choice of a moment. `critical` is half the width
    of a simultaneous 95 % band in standard errors, at least that of a single moment.
    """
    value = np.asarray(new.value) - np.asarray(old.value)
    down, up = (np.asarray(half) for half in _half_widths(old, new))
    side = np.where(value > 0, down, up)
    known = np.isfinite(value + down + up) & (side > 0)
    if not known.any():
        return {}
    z = np.where(known, Z * np.abs(value) / np.where(known, side, 1), -1)
    index = int(z.argmax())
    looks = min(effective_moments(critical), float(known.sum()))
    p_value = -math.expm1(looks * math.log1p(-min(_two_sided(float(z[index])), 1 - 1e-12)))
    wide = float(ndtri((1 + 0.95 ** (1 / looks)) / 2)) / Z
    limits = float(value[index] - wide * down[index]), float(value[index] + wide * up[index])
    difference = Difference(float(value[index]), max(-1.0, limits[0]), min(1.0, limits[1]), float(p_value))
    then, now = (float(np.asarray(curve.value)[index]) for curve in (old, new))
    return {"at": float(points[index]), "then": then, "now": now, **difference._asdict()}


def effective_moments(critical: float) -> float:
    """The number of independent looks for which Šidák's correction gives this critical value at 5 %."""
    alone = _two_sided(min(max(critical, Z), 6.0))
    return max(1.0, math.log(0.95) / math.log1p(-alone))


def _half_widths(old: Share, new: Share) -> tuple[np.ndarray, np.ndarray]:
    """How far the interval of the difference reaches below and above it."""
    down = np.hypot(np.subtract(new.value, new.lower), np.subtract(old.upper, old.value))
    up = np.hypot(np.subtract(new.upper, new.value), np.subtract(old.value, old.lower))
    return down, up


def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


# Which label of one audit is which of another: matched by sequence, time and annotator.

COLUMNS = ["row", "sequence", "time", "annotator", "recorded", "probability_right", "is_issue"]
KINDS = ("new", "resolved", "persisting")


def read_recorded_lines(labels: pa.Table | Path) -> pa.Table:
    """Every recorded label of an audit; texts are of one type, and no annotator is an empty name."""
    table = read_labels(labels, COLUMNS)
    columns = dict(zip(COLUMNS, table.columns, strict=True))
    columns |= {name: columns[name].cast(pa.large_string()) for name in ("sequence", "time", "annotator", "recorded")}
    columns["annotator"] = pc.fill_null(columns["annotator"], "")
    return pa.table(columns).filter(pc.is_valid(columns["recorded"]))


def match_labels(
    old: pa.Table, new: pa.Table, old_audit: Mapping[str, Any], new_audit: Mapping[str, Any]
) -> tuple[pa.Table, str, list[str]]:
    """The lines of two audits side by side, the columns by which they were matched in words, and messages.

    Columns of the new audit end in _now; those of an audit that lacks a label are null. Where labels cannot be matched,
    the table and the words are empty, and the message says why.
    """
    timed = [audit["table"]["columns"].get("time") is not None for audit in (old_audit, new_audit)]
    people = [audit["table"].get("annotators") or [] for audit in (old_audit, new_audit)]
    one_each = max(map(len, people)) <= 1
    keys = ["sequence", "time"] if one_each else ["sequence", "time", "annotator"]
    right_names = [f"{name}_now" if name not in keys else name for name in COLUMNS]
    pairs = old.join(new.rename_columns(right_names), keys, join_type="full outer")
    n_both = pc.sum(pc.and_(pairs["row"].is_valid(), pairs["row_now"].is_valid())).as_py() or 0
    fewer, why = min(len(old), len(new)), ""
    if timed[0] != timed[1]:
        which = ("old", "new")[timed.index(False)]
        why = f"The {which} audit has no column of times and the other has one, so labels cannot be matched."
    elif not n_both and people[0] and people[1] and not set(people[0]) & set(people[1]):
        why = "No annotator is in both audits, so labels cannot be matched."
    elif not n_both and bool(people[0]) != bool(people[1]):
        which = "new" if people[0] else "old"
        why = f"The {which} audit names no annotators and the other does, so labels cannot be matched."
    elif not n_both:
        key = "sequence and time" if timed[0] else "sequence and row number"
        why = f"No {key} occurs in both audits, so labels cannot be matched."
    elif n_both > fewer:
        why = "Several labels share a sequence, time and annotator, so they cannot be matched."
    if why:
        return pairs.slice(0, 0), "", [why]
    by = f"sequence{', ' if not one_each else ' and '}{'time' if timed[0] else 'row number'}"
    by += "" if one_each else " and annotator"
    messages = []
    if not timed[0]:
        messages.append(
            "There is no column of times: labels are matched by row number, which is correct only if no row moved."
        )
    if 2 * n_both < fewer:
        messages.append(f"Only {n_both:,} of {fewer:,} labels could be matched: interpret the counts with caution.")
    for which, mine, other in (("old", people[0], people[1]), ("new", people[1], people[0])):
        alone = set(mine) - set(other) if not one_each else ()
        if alone:
            messages.append(f"{len(alone)} annotator{'s are' if len(alone) > 1 else ' is'} only in the {which} audit.")
    return pairs, by, messages


def label_changes(pairs: pa.Table) -> pa.Table:
    """One line for each label that is an issue in either audit; `change` is new, resolved or persisting."""
    then, now = (pc.fill_null(pairs[name], False) for name in ("is_issue", "is_issue_now"))
    names = ("row", "row_now", "recorded", "recorded_now", "probability_right", "probability_right_now")
    columns = {name: pairs[name] for name in ("sequence", "time", "annotator", *names)}
    if "annotator_now" in pairs.column_names:  # one annotator each, by whatever name
        columns["annotator"] = pc.coalesce(pairs["annotator"], pairs["annotator_now"])
    change = pc.if_else(then, pc.if_else(now, "persisting", "resolved"), "new")
    return pa.table({"change": change, **columns}).filter(pc.or_(then, now))
