"""The findings of an audit in the form of audit.json, and its tables of labels and of Q."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide import __version__
from labeltide.auditing import fitting
from labeltide.auditing.decisions import file_digest
from labeltide.auditing.fitting import written
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.reading import AuditInput, decode
from labeltide.auditing.results import FORMAT, MODEL, MODEL_FILE
from labeltide.estimators import TideClassifier
from labeltide.inference.annotators import cohen_kappas, count_votes, fleiss_kappa, observed_agreement
from labeltide.inference.audit import LabelAudit
from labeltide.inference.bands import Change, NoiseEstimate, interval_around
from labeltide.inference.conclusion import Diagnostic
from labeltide.inference.temporality import PartTemporality
from labeltide.tables.files import address_path, is_address
from labeltide.tables.words import quoted

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


# ----------------------------------------------------------------------------------------------------
# Contested labels in the form of audit.json: shares of all labels, by class and over the first clock.
# ----------------------------------------------------------------------------------------------------


CONTESTED_PARTS = 12  # of the clock


def describe_contested(judged: LabelAudit) -> dict[str, Any]:
    """The part `contested`: mean probabilities that another expert would record another label."""
    recorded = judged.labels >= 0
    codes = judged.labels[recorded]
    contested = judged.contested.reshape(recorded.shape)[recorded]
    clock = np.broadcast_to(judged.clock[..., None], judged.labels.shape)[recorded]
    place, middles = _parts(clock)
    return {
        "from_several": bool((recorded.sum(-1) > 1).any()),
        "contested": _mean(contested),
        "by_class": [
            {"recorded": str(name), "labels": int((codes == code).sum()), "contested": _mean(contested[codes == code])}
            for code, name in enumerate(judged.classes)
        ],
        "over_clock": [
            {"clock": middle, "labels": int((place == part).sum()), "contested": _mean(contested[place == part])}
            for part, middle in enumerate(middles)
            if (place == part).sum() >= FEWEST
        ],
    }


def _parts(clock: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """The part of the clock in which each label lies, and the middles of all parts."""
    low, high = (float(clock.min()), float(clock.max())) if clock.size else (0.0, 1.0)
    edges = np.linspace(low, high, CONTESTED_PARTS + 1)
    place = np.clip(np.searchsorted(edges, clock, side="right") - 1, 0, CONTESTED_PARTS - 1)
    return place, ((edges[1:] + edges[:-1]) / 2).tolist()


def _mean(values: np.ndarray) -> float | None:
    """The mean; None without labels."""
    return float(values.mean()) if values.size else None


# ----------------------------------------------------------------------------------------------------
# What is known of annotators, in the form of audit.json: noise functions, tests of change, and agreement.
#
# Agreement is corrected for chance: kappa of pairs (Cohen 1960) and of all annotators (Fleiss 1971), the latter also
# over the first clock.
# ----------------------------------------------------------------------------------------------------


PARTS = 24  # of the clock
FEWEST = 20  # steps in a part, for a kappa of its own


def annotator_estimates(table: AuditInput, estimator: TideClassifier) -> list[tuple[str, int, NoiseEstimate]]:
    """Name, number of labels and noise estimate of each annotator with labels; empty where all share one Q.

    Also empty with several clocks: Q along each clock is estimated for all annotators together.
    """
    names = table.annotator_names or ()
    estimates = estimator.annotator_estimates_ if len(table.clocks) == 1 else ()
    if len(names) < 2 or len(estimates) != len(names):
        return []
    counts = (table.fit_labels >= 0).sum((0, 1)).tolist()
    return [(name, count, estimate) for name, count, estimate in zip(names, counts, estimates, strict=True) if count]


def describe_curve(estimate: NoiseEstimate, kept: np.ndarray, n_labels: int, annotator: str | None) -> dict[str, Any]:
    """A curve of the part `noise`, at some grid points; annotator None stands for all together."""
    curve: dict[str, Any] = {"annotator": annotator, "labels": n_labels}
    for name in ("rate", "rate_lower", "rate_upper", "mean", "lower", "upper"):
        curve[name] = getattr(estimate, name)[kept]
    for end in ("", "_lower", "_upper", "_simultaneous_lower", "_simultaneous_upper"):
        curve[f"class_rate{end}"] = getattr(estimate, f"class_rate{end}")[kept].T
    return curve


def annotator_changes(table: AuditInput, estimator: TideClassifier) -> list[dict[str, Any]]:
    """The test of a constant error rate and the size of the change, for each annotator with labels."""
    named = {name for name, _, _ in annotator_estimates(table, estimator)}
    tests = zip(table.annotator_names or (), estimator.temporality_.per_annotator, strict=bool(named))
    return [
        {"annotator": name, **describe_test(test), **describe_change(test.change)}
        for name, test in tests
        if name in named
    ]


def describe_test(test: PartTemporality) -> dict[str, Any]:
    """The p-value of a test of change, its reference distribution and the units behind it."""
    return {"p_value": test.p_value, "method": test.method, "n_units": test.n_units}


def describe_change(change: Change) -> dict[str, float]:
    """How much an error rate changes, and when it is highest and lowest."""
    interval = {"change": change.value, "change_lower": change.lower, "change_upper": change.upper}
    return interval | {name: getattr(change, name) for name in ("worst_at", "best_at", "worst_rate", "best_rate")}


def describe_agreement(table: AuditInput) -> dict[str, Any] | None:
    """Kappas of pairs, of all annotators, and over the clock; None where no step has two labels."""
    labels = table.from_steps(table.labels)  # (steps, annotators)
    several = (labels >= 0).sum(1) > 1
    if not table.annotator_names or not several.any():
        return None
    labels, clock = labels[several], table.from_steps(table.each_clock[0])[several]
    names, n_classes = table.annotator_names, len(table.class_names)
    kappas = cohen_kappas(labels, n_classes)
    together = (labels >= 0).astype(np.int64)
    steps = together.T @ together  # (annotators, annotators), labelled by both
    pairs = [(a, b) for a, b in combinations(range(len(names)), 2) if steps[a, b]]
    edges = np.linspace(clock.min(), clock.max(), PARTS + 1)
    part = np.clip(np.searchsorted(edges, clock, side="right") - 1, 0, PARTS - 1)
    shown = [place for place in range(PARTS) if (part == place).sum() >= FEWEST]
    votes = count_votes(labels, n_classes)
    return {
        "cohen": [{"a": names[a], "b": names[b], "kappa": kappas[a, b], "steps": int(steps[a, b])} for a, b in pairs],
        "fleiss": fleiss_kappa(votes),
        "observed": observed_agreement(votes),
        "largest_class": table.class_names[int(votes.sum(0).argmax())],
        "largest_share": float(votes.sum(0).max() / votes.sum()),
        "clock": [float((edges[place] + edges[place + 1]) / 2) for place in shown],
        "fleiss_over_clock": [fleiss_kappa(votes[part == place]) for place in shown],
    }


# ----------------------------------------------------------------------------------------------------
# The sequences with the most issues and the stretches of the plan, step by step, for the page to draw.
# ----------------------------------------------------------------------------------------------------


MAX_TIMELINES, STEPS, SIGNALS = 20, 2000, 4
SAMPLE = 20_000  # steps from which the telling signals are found
DIGITS = 5


def describe_timelines(
    table: AuditInput, judged: LabelAudit, plan: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """The part `timelines`: for each sequence its stretch with the most issues, then every stretch of the plan.

    A stretch of the plan that lies within an earlier timeline is not drawn again. Others have their place in the plan.
    """
    issues = table.from_steps(np.asarray(judged.is_issue.any(-1)))  # (steps,)
    starts, ends = sequence_bounds(table)
    summed = np.append(0, np.cumsum(issues))
    totals = summed[ends] - summed[starts]
    worst = [place for place in np.argsort(-totals, kind="stable")[:MAX_TIMELINES] if totals[place]]
    signals = {table.feature_names[place]: table.signal(place) for place in telling_features(table, judged)}
    first = table.first_lines()

    def describe(sequence: int, stretch: np.ndarray) -> dict[str, Any]:
        return {
            "sequence": table.sequence_names[sequence],
            "times": table.times.take(table.line_row[first[stretch]]).to_pylist(),
            "signals": {name: rounded(values[stretch]) for name, values in signals.items()},
            "rows": first[stretch].tolist(),
        }

    shown = [(place, worst_stretch(summed, int(starts[place]), int(ends[place]))) for place in worst]
    timelines = [describe(place, stretch) for place, stretch in shown]
    for order, entry in enumerate(plan, 1):
        place = table.sequence_names.index(entry["sequence"])
        bounds = (int(starts[place]), int(ends[place]))
        planned = _planned_stretch(table, first, bounds, (entry["first"], entry["last"]))
        if planned is None or any(each == place and np.isin(planned, steps).all() for each, steps in shown):
            continue
        shown.append((place, _with_context(planned, *bounds)))
        timelines.append({**describe(*shown[-1]), "planned": order})
    return timelines


def _planned_stretch(
    table: AuditInput, first: np.ndarray, bounds: tuple[int, int], ends: tuple[str, str]
) -> np.ndarray | None:
    """The steps of a sequence between two of its times; None where these are not found."""
    times = table.times.take(table.line_row[first[slice(*bounds)]]).to_pylist()
    try:
        places = [times.index(end) for end in ends]
    except ValueError:
        return None
    return bounds[0] + np.arange(min(places), max(places) + 1)[:STEPS]


def _with_context(stretch: np.ndarray, start: int, end: int) -> np.ndarray:
    """The stretch with a quarter of its length on either side, within its sequence and a timeline's length."""
    more = min(max(10, len(stretch) // 4), max(0, (STEPS - len(stretch)) // 2))
    return np.arange(max(start, int(stretch[0]) - more), min(end, int(stretch[-1]) + 1 + more))


def sequence_bounds(table: AuditInput) -> tuple[np.ndarray, np.ndarray]:
    """The first step of every sequence, and the one after its last."""
    last = np.zeros(len(table.sequence_names), dtype=np.int64)
    np.maximum.at(last, table.groups, table.index.max(1) + 1)
    return np.append(0, last[:-1]), last


def telling_features(table: AuditInput, judged: LabelAudit) -> list[int]:
    """The features that best separate the suggested classes within sequences, the best first.

    They are ranked by the correlation ratio: the variance between classes over the total variance.
    """
    suggested = table.from_steps(judged.probabilities.argmax(-1))
    some = np.unique(np.linspace(0, len(suggested) - 1, min(SAMPLE, len(suggested))).astype(np.int64))
    window, step = np.divmod(table.place[some], table.index.shape[1])
    values, codes = table.features[window, step].astype(np.float64), suggested[some]
    total = ((values - values.mean(0)) ** 2).sum(0)
    values -= _averages(values, table.groups[window])  # what never changes within a sequence is a flat line there
    between = (_averages(values, codes) ** 2).sum(0)
    ratio = between / np.maximum(total, 1e-12)
    return [int(place) for place in np.argsort(-ratio, kind="stable")[:SIGNALS]]


def _averages(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The average of each row's own group: of the shape of values, (rows, features)."""
    names, group = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, group, values)
    return (sums / np.bincount(group)[:, None])[group]


def worst_stretch(summed: np.ndarray, start: int, end: int) -> np.ndarray:
    """The steps from start to end or, where they are many, those `STEPS` in a row that hold the most issues."""
    if end - start > STEPS:
        within = summed[start + STEPS : end + 1] - summed[start : end + 1 - STEPS]
        start += int(within.argmax())
    return np.arange(start, min(start + STEPS, end))


def rounded(values: np.ndarray) -> list[float | None]:
    """Values as a drawing needs them: to a small part of their range, not each to its own digits."""
    finite = np.isfinite(values)
    span = float(np.ptp(values[finite])) if finite.any() else 0.0
    largest = span or float(np.abs(values[finite]).max(initial=0)) or 1.0
    places = DIGITS - math.ceil(math.log10(largest))
    return [round(value, places) + 0.0 if good else None for value, good in zip(values.tolist(), finite, strict=True)]


# ----------------------------------------------------------------------------------------------------
# The parts of audit.json that say what was audited, how, and what was found about its labels.
# ----------------------------------------------------------------------------------------------------


def say_limits(n_windows: int, of_windows: int, options: AuditOptions, estimator: TideClassifier) -> list[str]:
    """Sentences about what was limited to save time, or because the user asked for it."""
    said = []
    if n_windows < of_windows:
        why = "The table is large" if options.train_on is None else "As asked by train_on (--train-on)"
        said.append(
            f"{why}: the networks learned from {n_windows} of {of_windows} windows, drawn by chance; "
            "labels in the others are judged by the average of all networks."
        )
    if estimator.epochs < fitting.EPOCHS:
        said.append(f"The networks were trained for {estimator.epochs} epochs, not {fitting.EPOCHS}, to save time.")
    return said


def describe_run(command: str | None, spent: Mapping[str, float]) -> dict[str, Any]:
    """When and with what the audit was run."""
    return {
        "format": FORMAT,
        "labeltide": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None if command is None else as_utf8(command),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
        "seconds": {"read": spent["read"], "fit": spent["fit"], "inference": spent["judge"] + spent["bands"]},
    }


def describe_table(table: Any, read: AuditInput, said: list[str]) -> dict[str, Any]:
    """The table, and everything that was decided about it."""
    return {
        **describe_source(table),
        "rows": read.n_rows,
        "sequences": len(read.sequence_names),
        "labels": read.n_labels,
        "columns": read.columns,
        "classes": read.class_names,
        "features": read.feature_names,
        "annotators": read.annotator_names,
        "said": [*read.said, *say_files(table, read), *said],
        "overview": [asdict(column) for column in read.overview],
    }


def say_files(table: Any, read: AuditInput) -> list[str]:
    """What to do where several files without a column of sequences were meant to be one sequence each."""
    if read.columns.get("sequence") or not is_address(table):
        return []
    return [
        "Without a column of sequences, several files are one sequence, file after file. If each is a recording "
        "of its own, write its name into a column of its rows, and give that column as sequence."
    ]


def describe_source(table: Any) -> dict[str, Any]:
    """Where a review finds the table again, and how it sees that the table has changed."""
    if not isinstance(table, str | Path):
        return {"name": "table"}
    path = Path(table)
    if not path.is_file():  # a folder, a glob or an address
        return {"name": as_utf8(Path(address_path(table)).name)}
    return {"name": as_utf8(path.name), "path": as_utf8(str(path.absolute())), "digest": file_digest(path)}


def describe_labels(read: AuditInput, judged: LabelAudit) -> dict[str, Any]:
    """What was found about single labels."""
    plan = describe_plan(read, judged)
    return {
        "issues": describe_issues(read, judged),
        "contested": describe_contested(judged),
        "agreement": describe_agreement(read),
        "plan": plan,
        "timelines": describe_timelines(read, judged, plan),
        "encoders": [asdict(encoder) for encoder in read.encoders],
    }


def describe_settings(
    read: AuditInput, options: AuditOptions, estimator: TideClassifier, n_windows: int
) -> dict[str, Any]:
    """The settings of the fit."""
    return {
        "model": options.model,
        "seed": options.seed,
        "window": read.window,
        "fdr": options.fdr,
        "spend_fdr": options.spend_fdr,
        "device": options.device,
        "fast": options.fast,
        "epochs": estimator.epochs,
        "hidden_size": estimator.hidden_size,
        "train_on": written(options.train_on),
        "windows learned from": n_windows,
        "model file": f"{MODEL}/{MODEL_FILE}",
    }


def as_utf8(text: str) -> str:
    """The text as a file can hold it."""
    return text.encode("utf-8", "replace").decode()
