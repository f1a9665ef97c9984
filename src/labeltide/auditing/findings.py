"""The findings of an audit in the form of audit.json, and its tables of labels and of Q."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing.annotator_findings import (
    annotator_changes,
    annotator_estimates,
    describe_change,
    describe_curve,
    describe_test,
)
from labeltide.auditing.audit_input import AuditInput, decode
from labeltide.estimators import TideClassifier
from labeltide.inference.audit import LabelAudit
from labeltide.inference.diagnostic import Diagnostic
from labeltide.inference.noise_estimate import NoiseEstimate, interval_around
from labeltide.tables.wording import quoted

MOST_POINTS, FEWEST_POINTS = 200, 12
MOST_NUMBERS = 300_000  # that describe Q in audit.json, over all curves
SEQUENCES = 50  # named with their numbers of issues
PLANNED = 10


def audited_lines(recorded: AuditInput, table: AuditInput, judged: LabelAudit) -> pa.Table:
    """labels.parquet: every line of the table with its posterior, suggestion, flag and reason.

    `recorded` holds all labels, `table` those that were judged; the others are kept as they are.
    """
    place, who = table.place[table.line_step], table.line_annotator
    is_issue = table.rows_from_steps(judged.is_issue) & (who >= 0)
    reasons = np.full(len(place), None, dtype=object)
    reasons[is_issue] = judged.reason.reshape(-1, judged.labels.shape[2])[place[is_issue], who[is_issue]]
    chances = {"probability_right": judged.quality, "probability_contested": judged.contested}
    suggested = table.rows_from_steps(judged.probabilities.argmax(-1))
    names, lines = tuple(str(name) for name in judged.classes), recorded.lines()
    columns = {
        **{
            name: pa.array(table.rows_from_steps(values), pa.float64(), from_pandas=True)
            for name, values in chances.items()
        },
        "suggested": decode(suggested, names),
        "suggested_probability": table.rows_from_steps(judged.suggested_probability),
        "corrected": pc.coalesce(decode(table.rows_from_steps(judged.corrected()), names), lines["recorded"]),
        "is_issue": is_issue,
        "reason": pa.array(reasons, pa.string()),
    }
    for name, values in columns.items():
        is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
        lines = lines.append_column(name, values if is_arrow else pa.array(values))
    return lines


def describe_clocks(table: AuditInput, estimator: TideClassifier) -> list[dict[str, Any]]:
    """The parts `clock`, `noise` and `temporality` for each clock."""
    parts = []
    for place, (info, estimate) in enumerate(zip(table.clocks, estimator.clock_estimates_, strict=True)):
        noise, test = describe_noise(table, estimator, estimate), describe_temporality(table, estimator, place)
        parts.append({"clock": asdict(info), "noise": noise, "temporality": test})
    return parts


def describe_noise(table: AuditInput, estimator: TideClassifier, estimate: NoiseEstimate) -> dict[str, Any]:
    """The part `noise`: Q of all together over one clock, then of each annotator."""
    annotators = annotator_estimates(table, estimator)
    n_classes = estimate.mean.shape[-1]
    most = int(np.clip(MOST_NUMBERS // (3 * n_classes**2 * (1 + len(annotators))), FEWEST_POINTS, MOST_POINTS))
    kept = np.unique(np.linspace(0, len(estimate.clock) - 1, min(most, len(estimate.clock))).round().astype(int))
    return {
        "rate": estimate.total,
        "rate_lower": estimate.total_lower,
        "rate_upper": estimate.total_upper,
        "clock": estimate.clock[kept],
        "curves": [
            describe_curve(estimate, kept, table.n_labels, None),
            *(describe_curve(of_annotator, kept, count, name) for name, count, of_annotator in annotators),
        ],
    }


def state_share(found: dict[str, Any], share: float) -> dict[str, Any]:
    """The findings with the share of wrong labels as labels.parquet has it: the mean of 1 - `probability_right`.

    Bands are computed from some windows, which overlap, with Q fitted once more. Their share is the same where both
    rest on the same labels; elsewhere the interval is moved to the share that is stated. Tables in parts have it in
    single precision.
    """
    share = round(share, 6)

    def stated(noise: dict[str, Any]) -> dict[str, Any]:
        lower, upper = noise["rate_lower"], noise["rate_upper"]
        if lower is None or upper is None or not np.isfinite([share, lower, upper]).all():
            return noise
        lower, upper = interval_around(share, noise["rate"], lower, upper)
        return {**noise, "rate": share, "rate_lower": lower, "rate_upper": upper}

    others = [{**clock, "noise": stated(clock["noise"])} for clock in found["other_clocks"]]
    return {**found, "noise": stated(found["noise"]), "other_clocks": others}


def noise_table(table: AuditInput, estimator: TideClassifier) -> pa.Table:
    """noise.csv: one line for each curve, moment, true and recorded class; the last column names the clock."""
    names = tuple(map(str, estimator.classes_))
    n = len(names)
    clocks = [info.name for info in table.clocks]
    curves: list[tuple[str, str | None, NoiseEstimate]]
    curves = [(clock, None, estimate) for clock, estimate in zip(clocks, estimator.clock_estimates_, strict=True)]
    curves += [(clocks[0], name, estimate) for name, _, estimate in annotator_estimates(table, estimator)]
    titles = {"mean": "probability"}
    parts = []
    for clock, who, estimate in curves:
        cells = len(estimate.clock) * n * n
        columns: dict[str, Any] = {
            "annotator": pa.array([who] * cells, pa.string()),
            "clock": np.repeat(estimate.clock, n * n),
            "true": decode(np.tile(np.repeat(np.arange(n), n), len(estimate.clock)), names),
            "recorded": decode(np.tile(np.arange(n), n * len(estimate.clock)), names),
        }
        for name in ("mean", "lower", "upper", "simultaneous_lower", "simultaneous_upper"):
            columns[titles.get(name, name)] = pa.array(getattr(estimate, name).reshape(-1), from_pandas=True)
        parts.append(pa.table(columns | {"clock_name": pa.array([clock] * cells, pa.string())}))
    return pa.concat_tables(parts)


def describe_temporality(table: AuditInput, estimator: TideClassifier, place: int) -> dict[str, Any]:
    """The part `temporality`; over one of several clocks, for all classes and annotators together alone."""
    if len(table.clocks) > 1:
        over_clock = estimator.clock_temporality_[place]
        whole: dict[str, Any] = {"statistic": over_clock.statistic, **describe_test(over_clock)}
        whole |= describe_change(over_clock.change)
        nothing: dict[str, Any] = {"classes_differ_p": None, "per_class": [], "per_annotator": []}
        return whole | {"is_noisy_p": estimator.is_noisy_p_} | nothing
    tests = estimator.temporality_
    names = ("statistic", "p_value", "method", "n_units", "change", "change_lower", "change_upper", "worst_at")
    more = ("best_at", "worst_rate", "best_rate", "is_noisy_p", "classes_differ_p")
    result = {name: getattr(tests, name) for name in (*names, *more)}
    result["per_class"] = [
        {
            "class": str(name),
            **describe_test(test),
            "change": test.change.value,
            "change_lower": test.change.lower,
            "change_upper": test.change.upper,
        }
        for name, test in zip(estimator.classes_, tests.per_class, strict=True)
    ]
    return result | {"per_annotator": annotator_changes(table, estimator)}


def describe_issues(table: AuditInput, judged: LabelAudit) -> dict[str, Any]:
    """The part `issues`."""
    flagged, recorded = judged.is_issue, judged.labels >= 0
    codes, flagged_codes = judged.labels[recorded], judged.labels[flagged]
    n = len(judged.classes)
    by_class = zip(
        judged.classes, np.bincount(codes, minlength=n), np.bincount(flagged_codes, minlength=n), strict=True
    )
    n_sequences = len(table.sequence_names)
    labels = np.bincount(table.groups, recorded.sum((1, 2)), minlength=n_sequences)
    issues = np.bincount(table.groups, flagged.sum((1, 2)), minlength=n_sequences)
    worst = [place for place in np.argsort(-issues, kind="stable")[:SEQUENCES] if issues[place]]
    return {
        "count": int(flagged.sum()),
        "fdr": judged.fdr,
        "spend_fdr": judged.spend_fdr,
        "expected_false_alarms": judged.expected_false_alarms,
        "corrected": int((judged.corrected() != judged.labels).sum()),
        "by_class": [
            {"recorded": str(name), "labels": int(all_), "issues": int(flagged_)} for name, all_, flagged_ in by_class
        ],
        "by_sequence": [
            {"sequence": table.sequence_names[place], "labels": int(labels[place]), "issues": int(issues[place])}
            for place in worst
        ],
    }


def describe_plan(table: AuditInput, judged: LabelAudit) -> list[dict[str, Any]]:
    """The part `plan`: the stretches to relabel, chosen by how much their true labels would tell about Q."""
    open_rows: np.ndarray = np.asarray((judged.labels >= 0).any(-1))
    if judged.trusted is not None:
        open_rows = open_rows & (judged.trusted < 0)
    most = int(open_rows.any(1).sum())
    if not most:
        return []
    row_of_step = table.line_row[table.first_lines()]
    stretches: list[dict[str, Any]] = []
    for window in judged.plan(min(PLANNED, most)).rows.tolist():
        places = np.flatnonzero(open_rows[window])
        first, last = (row_of_step[table.index[window, place]] for place in (places[0], places[-1]))
        n_issues = int(judged.is_issue[window].any(-1).sum())
        share = judged.probabilities[window, places].mean(0)
        common = [str(judged.classes[place]) for place in np.argsort(-share)[:2] if share[place] > 0.2]
        given = ", given the stretches above" if stretches else ""
        why = f"Adds most information about Q{given}: {len(places)} labelled steps, {n_issues} of them to check"
        stretches.append(
            {
                "sequence": table.sequence_names[table.groups[window]],
                "first": table.times[int(first)].as_py(),
                "last": table.times[int(last)].as_py(),
                "steps": len(places),
                "why": why + (f", mostly {quoted(common)}." if common else "."),
            }
        )
    return stretches


def describe_noise_found(table: AuditInput, estimator: TideClassifier, checks: Sequence[Diagnostic]) -> dict[str, Any]:
    """The parts from which `conclude` decides what may be said, and those that belong to them."""
    first, *others = describe_clocks(table, estimator)
    return {
        **first,
        "other_clocks": others,
        "diagnostics": [asdict(check) for check in (*checks, *estimator.diagnostics_)],
    }
