"""The findings of an audit in the form of audit.json, and its tables of labels and of Q."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide import __version__
from labeltide.auditing import fitting
from labeltide.auditing.alignment import find_patterns
from labeltide.auditing.checks import kept_codes
from labeltide.auditing.decisions import file_digest
from labeltide.auditing.fitting import written
from labeltide.auditing.judging import QUALITY, STEP, Flags, JudgeJob, work_ahead
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.page.payload import COLUMNS
from labeltide.auditing.reading import AuditInput
from labeltide.auditing.results import FORMAT, MODEL, MODEL_FILE
from labeltide.estimators import TideClassifier
from labeltide.estimators.planted import PlantedErrors, widen_interval
from labeltide.inference.annotators import cohen_kappas, count_votes, fleiss_kappa, observed_agreement
from labeltide.inference.audit import KINDS, RUN, LabelAudit, averaged_share, in_fixed_point
from labeltide.inference.bands import NoiseEstimate, interval_around, least_share
from labeltide.inference.checks import share_alone
from labeltide.inference.conclusion import NOT_SHOWN, Diagnostic, conclude
from labeltide.inference.temporality import PartTemporality
from labeltide.kernels.library import torch_on_one_thread
from labeltide.tables.columns import code_values
from labeltide.tables.files import address_path, is_address
from labeltide.tables.words import quoted

MAX_POINTS, MIN_POINTS = 200, 12
MAX_NUMBERS = 300_000  # that describe Q in audit.json, over all curves
SEQUENCES = 50  # named with their numbers of issues
PLANNED = 10
MIN_ALONE = 0.01  # by hand: labels that differ from their neighbours, above the share of wrong ones that may be there


def describe_noise_found(table: AuditInput, estimator: TideClassifier, checks: Sequence[Diagnostic]) -> dict[str, Any]:
    """The parts from which `conclude` decides what may be stated: `clock`, `noise` and `temporality` of each clock."""
    first, *others = (
        {
            "clock": asdict(info),
            "noise": describe_noise(table, estimator, estimate),
            "temporality": describe_temporality(table, estimator, index),
        }
        for index, (info, estimate) in enumerate(zip(table.clocks, estimator.clock_estimates_, strict=True))
    )
    diagnostics = [asdict(check) for check in (*checks, *estimator.diagnostics_)]
    found: dict[str, Any] = {**first, "other_clocks": others, "diagnostics": diagnostics}
    if conclude(found).noise.answer == NOT_SHOWN:
        alone, upper = share_alone(estimator.training_)
        if alone >= MIN_ALONE + found["noise"]["rate_upper"]:
            found["noise"] |= {"rate_alone": alone, "rate_alone_upper": upper}
    return found


def describe_noise(table: AuditInput, estimator: TideClassifier, estimate: NoiseEstimate) -> dict[str, Any]:
    """The part `noise`: Q of all together over one clock, then of each annotator."""
    annotators = annotator_estimates(table, estimator)
    n_classes = estimate.mean.shape[-1]
    most = int(np.clip(MAX_NUMBERS // (3 * n_classes**2 * (1 + len(annotators))), MIN_POINTS, MAX_POINTS))
    kept = np.unique(np.linspace(0, len(estimate.clock) - 1, min(most, len(estimate.clock))).round().astype(int))
    return {
        "steps": sum(each.weight for each in estimator.training_.families if each.kind == "pieces"),
        "rate": estimate.total,
        "rate_lower": estimate.total_lower,
        "rate_upper": estimate.total_upper,
        "rate_least": least_share(table.fit_labels),
        "clock": estimate.clock[kept],
        "curves": [
            describe_curve(estimate, kept, table.n_labels, None),
            *(describe_curve(of_annotator, kept, count, name) for name, count, of_annotator in annotators),
        ],
    }


def describe_whole(
    found: dict[str, Any], table: Any, totals: Totals, planted: Sequence[PlantedErrors] = (), is_moved: bool = False
) -> dict[str, Any]:
    """The findings with numbers of labels of the whole table, and its share of wrong labels as labels.parquet has it.

    That is the mean of 1 - `probability_right`. Bands are computed from some windows, which overlap, with Q fitted once
    more. Their share is the same where both rest on the same labels; elsewhere the interval is moved to the share that
    is stated, widened by the spread of the refits with planted errors, and begins without `Totals.share_unclear`, or
    at zero where signals do not support the suggestions, but never below what differences among annotators imply.
    Where no wrong labels are shown, it ends with those that differ from their neighbours, which errors that follow the
    signals do. Where labels were moved, errors of time are not counted.
    """
    alone = found["noise"].get("rate_alone_upper", 0.0)
    share, unclear = round(totals.share_wrong, 6), round(totals.share_unclear, 6)
    if any(check["name"] == "persistence" and check["is_warning"] for check in found["diagnostics"]):
        unclear = share
    of_annotator = dict(zip(table.annotator_names or (), totals.by_annotator.tolist(), strict=True))

    def stated(noise: dict[str, Any]) -> dict[str, Any]:
        for curve in noise["curves"]:
            who = curve["annotator"]
            curve["labels"] = table.n_labels if who is None else of_annotator.get(who, 0)
        lower, upper = noise["rate_lower"], noise["rate_upper"]
        if is_moved or lower is None or upper is None or not np.isfinite([share, lower, upper]).all():
            return noise
        lower, upper = interval_around(share, noise["rate"], lower, upper)
        lower, upper = widen_interval(share, lower, upper, planted)
        lower = max(lower - unclear, min(noise["rate_least"], share))
        return {**noise, "rate": share, "rate_lower": lower, "rate_upper": max(upper, alone), "rate_unclear": unclear}

    others = [{**clock, "noise": stated(clock["noise"])} for clock in found["other_clocks"]]
    return {**found, "noise": stated(found["noise"]), "other_clocks": others}


def noise_table(table: AuditInput, estimator: TideClassifier) -> pa.Table:
    """noise.csv: one line for each curve, moment, true and recorded class; the last column names the clock."""
    clocks = [info.name for info in table.clocks]
    curves: list[tuple[str, str | None, NoiseEstimate]]
    curves = [(clock, None, estimate) for clock, estimate in zip(clocks, estimator.clock_estimates_, strict=True)]
    curves += [(clocks[0], name, estimate) for name, _, estimate in annotator_estimates(table, estimator)]
    parts = []
    for clock, who, estimate in curves:
        lines = estimate.to_frame("pyarrow", classes=estimator.classes_.tolist())
        annotator, clock_name = (pa.array([name] * len(lines), pa.string()) for name in (who, clock))
        parts.append(lines.add_column(0, "annotator", annotator).append_column("clock_name", clock_name))
    joined = pa.concat_tables(parts)
    return joined.rename_columns(["probability" if name == "mean" else name for name in joined.column_names])


def describe_temporality(table: AuditInput, estimator: TideClassifier, index: int) -> dict[str, Any]:
    """The part `temporality`; over one of several clocks, for all classes and annotators together alone."""
    if len(table.clocks) > 1:
        test = estimator.clock_temporality_[index]
        nothing: dict[str, Any] = {"classes_differ_p": None, "per_class": [], "per_annotator": []}
        return {"statistic": test.statistic, **describe_test(test), "is_noisy_p": estimator.is_noisy_p_} | nothing
    tests = estimator.temporality_
    names = ("statistic", *TEST, "change", "change_lower", "change_upper", *EXTREMES, "is_noisy_p", "classes_differ_p")
    result = {name: getattr(tests, name) for name in names}
    of_classes = zip(estimator.classes_, tests.per_class, strict=True)
    result["per_class"] = [{"class": str(name), **describe_test(test, ())} for name, test in of_classes]
    named = {name for name, _, _ in annotator_estimates(table, estimator)}
    of_annotators = zip(table.annotator_names or (), tests.per_annotator, strict=bool(named))
    result["per_annotator"] = [
        {"annotator": name, **describe_test(test)} for name, test in of_annotators if name in named
    ]
    return result


TEST, EXTREMES = ("p_value", "method", "n_units"), ("worst_at", "best_at", "worst_rate", "best_rate")


def describe_test(test: PartTemporality, extremes: Sequence[str] = EXTREMES) -> dict[str, Any]:
    """A test of change with the size of the change, and when the error rate is highest and lowest."""
    change = {"change": test.change.value, "change_lower": test.change.lower, "change_upper": test.change.upper}
    known = {name: getattr(test, name) for name in TEST}
    return known | change | {name: getattr(test.change, name) for name in extremes}


def describe_plan(table: AuditInput, judged: LabelAudit, is_issue: np.ndarray) -> list[dict[str, Any]]:
    """The part `plan`: the stretches to relabel, chosen by how much their true labels would tell about Q.

    `is_issue` holds the flags of the labels of `judged`.
    """
    open_rows: np.ndarray = np.asarray((judged.labels >= 0).any(-1))
    if judged.trusted is not None:
        open_rows = open_rows & (judged.trusted < 0)
    most = int(open_rows.any(1).sum())
    if not most:
        return []
    row_of_step = table.line_row[table.first_lines()]
    stretches: list[dict[str, Any]] = []
    for window in judged.plan(min(PLANNED, most)).rows.tolist():
        steps = np.flatnonzero(open_rows[window])
        first, last = (row_of_step[table.index[window, step]] for step in (steps[0], steps[-1]))
        n_issues = int(is_issue[window].any(-1).sum())
        share = judged.probabilities[window, steps].mean(0)
        common = [str(judged.classes[code]) for code in np.argsort(-share)[:2] if share[code] > 0.2]
        given = ", given the stretches above" if stretches else ""
        why = f"Adds the most information about Q{given}: {len(steps)} labelled steps, {n_issues} of them to check"
        stretches.append(
            {
                "sequence": table.sequence_names[table.groups[window]],
                "first": table.times[int(first)].as_py(),
                "last": table.times[int(last)].as_py(),
                "steps": len(steps),
                "why": why + (f", mostly {quoted(common)}." if common else "."),
            }
        )
    return stretches


BOUTS = ("class", "recorded", "recorded_steps", "corrected", "corrected_steps")  # bouts and their steps in all
CONTESTED_PARTS = 12  # of the clock


PartTotals = Mapping[str, Any]  # sums over the labels of a part by the names of those of `Totals`, and its lines


@dataclass
class Totals:
    """Sums over all labels."""

    edges: np.ndarray  # borders of the parts of the first clock
    codes: np.ndarray  # of each class of the table among those that are judged, -1 for others: (classes + 1,)
    by_class: np.ndarray  # labels, issues and expected contested labels of each class: (3, classes)
    by_sequence: np.ndarray  # labels and issues of each sequence: (2, sequences)
    by_annotator: np.ndarray  # labels of each annotator
    doubtful: np.ndarray  # classes that no listed label is suggested to be: (classes,)
    # Labels and expected contested labels in each part of the clock: (2, parts).
    by_clock: np.ndarray = field(default_factory=lambda: np.zeros((2, CONTESTED_PARTS)))
    by_kind: np.ndarray = field(default_factory=lambda: np.zeros(len(KINDS), dtype=np.int64))  # issues of each
    bouts: np.ndarray = field(default_factory=lambda: np.zeros((4, 1), dtype=np.int64))  # as recorded and as corrected
    corrected: int = 0
    false_alarms: float = 0.0
    # Expected numbers of wrong labels: of all, of classes whose names are in doubt, of other issues, of these in runs.
    wrong: np.ndarray = field(default_factory=lambda: np.zeros(4))
    several: bool = False
    positions: list[int] = field(default_factory=lambda: [0])  # lines before each chunk
    # The sequence that the last chunk ended with, and in it the last classes of each annotator, as in `bouts`.
    end: tuple[int, dict[int, np.ndarray]] = (-1, {})

    def count(self, part: pa.Table, flagged: np.ndarray) -> PartTotals:
        """Count the lines of a part; several threads may do so at a time."""
        recorded, corrected, kind, people = (
            code_values(part[name])[0] for name in ("recorded", "corrected", "kind", "annotator")
        )
        codes = self.codes[recorded]
        there: np.ndarray | slice = codes >= 0
        if codes.min(initial=0) >= 0:
            there = slice(None)  # without copies
        quality, contested = (
            in_fixed_point(part[name].to_numpy()[there].astype(np.float64))
            for name in (QUALITY, "probability_contested")
        )
        classes, flags = codes[there], flagged[there]
        at = np.searchsorted(self.edges, part["clock"].to_numpy()[there], side="right") - 1
        at = np.clip(at, 0, CONTESTED_PARTS - 1)
        sequence, names = code_values(part["sequence"])
        sequence, people, n_classes = sequence[there], people[there], self.by_class.shape[1]
        corrected, suggested = self.codes[corrected][there], self.codes[code_values(part["suggested"])[0]][there]
        doubtful = self.doubtful[classes] | self.doubtful[suggested]
        parts = (slice(None), doubtful, flags & ~doubtful, flags & ~doubtful & (kind[there] == KINDS.index(RUN)))
        order = np.lexsort((part[STEP].to_numpy()[there], people))
        unit, pair = ((people + 1) * len(names) + sequence)[order], np.stack([classes, corrected], 1)[order]
        # Classes of each annotator where the first sequence of the part begins and where the last one ends.
        starts = np.flatnonzero(np.diff(unit, prepend=-1))
        who, number = np.divmod(unit[starts], max(1, len(names)))
        sides = (number == 0, starts), (number == len(names) - 1, np.append(starts[1:], len(unit)) - 1)
        edges = [dict(zip(who[own].tolist(), pair[steps[own]], strict=True)) for own, steps in sides]
        return dict(
            by_class=[np.bincount(classes, weights, n_classes) for weights in (None, flags, contested)],
            by_clock=[np.bincount(at, weights, CONTESTED_PARTS) for weights in (None, contested)],
            by_sequence=[np.bincount(chosen, minlength=len(names)) for chosen in (sequence, sequence[flags])],
            by_annotator=np.bincount(people[people >= 0], minlength=len(self.by_annotator)),
            by_kind=np.bincount(kind[flagged], minlength=len(KINDS)),
            bouts=np.concatenate([_bouts(each, unit, n_classes) for each in pair.T]),
            edges=edges,
            corrected=int((corrected != classes).sum()),
            false_alarms=float(quality[flags].sum()),
            wrong=np.array([(1 - quality)[chosen].sum() for chosen in parts]),
            lines=len(part),
        )

    def add(self, part: PartTotals, first_sequence: int) -> None:
        """Add the next part, in the order of the chunks."""
        for name in part.keys() - {"by_sequence", "lines", "edges"}:
            setattr(self, name, getattr(self, name) + part[name])
        of_part, (begin, end) = part["by_sequence"], part["edges"]
        last = first_sequence + len(of_part[0]) - 1
        before = self.end[1] if self.end[0] == first_sequence else {}
        for who in before.keys() & begin.keys():  # a bout that a cut between chunks has counted twice
            for row in np.flatnonzero(before[who] == begin[who]):
                self.bouts[2 * row, begin[who][row]] -= 1
        self.end = last, (before if last == first_sequence else {}) | end
        self.by_sequence[:, first_sequence : first_sequence + len(of_part[0])] += of_part
        self.positions.append(self.positions[-1] + part["lines"])

    @classmethod
    def of(cls, job: JudgeJob, sample: AuditInput) -> Totals:
        """Sums of nothing; the clock is cut between the first and the last label of the sample."""
        table = job.table
        clock = sample.each_clock[0][(sample.fit_labels >= 0).any(-1)]
        low, high = (float(clock.min()), float(clock.max())) if clock.size else (0.0, 1.0)
        return cls(
            edges=np.linspace(low, high, CONTESTED_PARTS + 1),
            codes=kept_codes(table.rare),
            by_class=np.zeros((3, len(table.class_names))),
            by_sequence=np.zeros((2, len(table.sequence_names)), dtype=np.int64),
            by_annotator=np.zeros(len(table.annotator_names or ()), dtype=np.int64),
            doubtful=np.logical_and(job.may_name.any(), ~job.may_name.any((0, 1))),
            several=job.scorer.judge.several,
        )

    @property
    def share_wrong(self) -> float:
        """The expected share of wrong labels."""
        labels = float(self.by_class[0].sum())
        return float(self.wrong[0]) / labels if labels else float("nan")

    @property
    def share_unclear(self) -> float:
        """The part of it of which labels or signals may be at fault.

        These are labels of classes whose names are in doubt, and labels in runs of three or more, beyond the runs that
        single errors form by chance.
        """
        _, doubtful, issues, in_runs = self.wrong
        share = self.share_wrong
        by_chance = issues * (1 - (1 - share) ** 2 * (1 + 2 * share))
        return float(doubtful + max(in_runs - by_chance, 0.0)) / max(float(self.by_class[0].sum()), 1.0)

    def describe_issues(self, names: pa.Array, classes: tuple[str, ...], judged: LabelAudit) -> dict[str, Any]:
        """The part `issues`."""
        labels, issues = self.by_sequence
        count = int(self.by_class[1].sum())
        return {
            "count": count,
            "fdr": judged.fdr,
            "spend_fdr": judged.spend_fdr,
            "expected_false_alarms": averaged_share(judged.false_alarms, self.false_alarms / count) if count else 0.0,
            "corrected": self.corrected,
            "by_kind": dict(zip(KINDS, self.by_kind.tolist(), strict=True)),
            "bouts": [dict(zip(BOUTS, row, strict=True)) for row in zip(classes, *self.bouts.tolist(), strict=True)],
            "by_class": [
                {"recorded": name, "labels": int(self.by_class[0, code]), "issues": int(self.by_class[1, code])}
                for code, name in enumerate(classes)
            ],
            "by_sequence": [
                {"sequence": names[each].as_py(), "labels": int(labels[each]), "issues": int(issues[each])}
                for each in self.worst_sequences(SEQUENCES)
            ],
        }

    def worst_sequences(self, most: int) -> list[int]:
        """The sequences with the most issues."""
        issues = self.by_sequence[1]
        return [int(each) for each in np.argsort(-issues, kind="stable")[:most] if issues[each]]

    def describe_contested(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """The part `contested` of audit.json."""
        labels, _, contested = self.by_class
        middles = (self.edges[1:] + self.edges[:-1]) / 2
        return {
            "from_several": self.several,
            "contested": _share(contested.sum(), labels.sum()),
            "by_class": [
                {"recorded": name, "labels": int(labels[code]), "contested": _share(contested[code], labels[code])}
                for code, name in enumerate(classes)
            ],
            "over_clock": [
                {"clock": float(middle), "labels": int(count), "contested": _share(differ, count)}
                for middle, (count, differ) in zip(middles, self.by_clock.T, strict=True)
                if count >= MIN_STEPS
            ],
        }


def _bouts(codes: np.ndarray, unit: np.ndarray, n_classes: int) -> list[np.ndarray]:
    """Bouts (runs of one class within a unit) and steps of each class."""
    begins = np.ones(len(codes), dtype=bool)
    begins[1:] = (codes[1:] != codes[:-1]) | (unit[1:] != unit[:-1])
    return [np.bincount(chosen, minlength=n_classes) for chosen in (codes[begins], codes)]


def _share(amount: float, labels: float) -> float | None:
    return float(amount / labels) if labels else None


# Agreement is corrected for chance: kappa of pairs (Cohen 1960) and of all annotators (Fleiss 1971), the latter also
# over the first clock.


PARTS = 24  # of the clock
MIN_STEPS = 20  # steps in a part, for a kappa of its own


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


def describe_agreement(
    labels: np.ndarray, clock: np.ndarray, names: Sequence[str], classes: Sequence[str]
) -> dict[str, Any] | None:
    """Kappas of pairs, of all annotators, and over the clock; None where no step has two labels.

    `labels` are of shape (steps, annotators), `clock` of shape (steps,).
    """
    several = (labels >= 0).sum(1) > 1
    if not several.any():
        return None
    labels, clock, n_classes = labels[several], clock[several], len(classes)
    kappas = cohen_kappas(labels, n_classes)
    together = (labels >= 0).astype(np.int64)
    steps = together.T @ together  # (annotators, annotators), labelled by both
    pairs = [(a, b) for a, b in combinations(range(len(names)), 2) if steps[a, b]]
    edges = np.linspace(clock.min(), clock.max(), PARTS + 1)
    part = np.clip(np.searchsorted(edges, clock, side="right") - 1, 0, PARTS - 1)
    shown = [number for number in range(PARTS) if (part == number).sum() >= MIN_STEPS]
    votes = count_votes(labels, n_classes)
    return {
        "cohen": [{"a": names[a], "b": names[b], "kappa": kappas[a, b], "steps": int(steps[a, b])} for a, b in pairs],
        "fleiss": fleiss_kappa(votes),
        "observed": observed_agreement(votes),
        "largest_class": classes[int(votes.sum(0).argmax())],
        "largest_share": float(votes.sum(0).max() / votes.sum()),
        "clock": [float((edges[number] + edges[number + 1]) / 2) for number in shown],
        "fleiss_over_clock": [fleiss_kappa(votes[part == number]) for number in shown],
    }


MAX_TIMELINES, STEPS, SIGNALS = 20, 2000, 4
SAMPLE = 20_000  # steps from which the telling signals are found
DIGITS = 5


class TimelineStretch(NamedTuple):
    """A stretch of one sequence that the page draws."""

    chunk: int
    sequence: int
    steps: np.ndarray  # within the chunk
    timeline: dict[str, Any]
    lines: pa.Table


def describe_timelines(
    job: JudgeJob, flags: Flags, totals: Totals, plan: Sequence[Mapping[str, Any]], signals: list[int]
) -> tuple[list[dict[str, Any]], pa.Table]:
    """The part `timelines`: for each sequence its stretch with the most issues, then every stretch of the plan.

    A stretch of the plan that lies within an earlier timeline is not drawn again; others have their number in the plan.
    A sequence that is judged in several chunks is shown by its first one. Also gives back the lines that timelines
    show, with their position in labels.parquet.
    """
    names = job.table.sequence_names
    worst = totals.worst_sequences(MAX_TIMELINES)
    planned = [pc.index(names, entry["sequence"]).as_py() for entry in plan]
    firsts = np.array([chunk.first_sequence for chunk in job.table.chunks])
    lasts = np.array([chunk.last_sequence for chunk in job.table.chunks])
    chunks_of = {
        sequence: np.flatnonzero((firsts <= sequence) & (sequence < lasts)).tolist() for sequence in (*worst, *planned)
    }
    needed = {chunks_of[sequence][0] for sequence in worst} | {n for sequence in planned for n in chunks_of[sequence]}

    def read(number: int) -> tuple[dict[int, TimelineStretch], dict[int, tuple[np.ndarray, TimelineStretch]]]:
        with torch_on_one_thread():
            judged = _JudgedChunk(job, number, flags, totals.positions[number], signals)
        shown = {each: judged.worst(each) for each in worst if chunks_of[each][0] == number}
        return shown, {
            order: found
            for order, (sequence, entry) in enumerate(zip(planned, plan, strict=True), 1)
            if number in chunks_of[sequence] and (found := judged.planned(sequence, entry))
        }

    of_worst: dict[int, TimelineStretch] = {}
    of_plan: dict[int, tuple[np.ndarray, TimelineStretch]] = {}
    for shown, found in work_ahead(read, sorted(needed)):
        of_worst |= shown
        of_plan = found | of_plan
    stretches = [of_worst[sequence] for sequence in worst]
    for order in sorted(of_plan):
        steps, drawn = of_plan[order]
        alike = [each for each in stretches if (each.chunk, each.sequence) == (drawn.chunk, drawn.sequence)]
        if not any(np.isin(steps, each.steps).all() for each in alike):
            stretches.append(drawn._replace(timeline={**drawn.timeline, "planned": order}))
    if not stretches:
        return [], pa.table({name: pa.array([], pa.string()) for name in (*COLUMNS, "position")})
    lines = pa.concat_tables([stretch.lines for stretch in stretches])
    first = np.unique(lines["position"].to_numpy(), return_index=True)[1]
    return [stretch.timeline for stretch in stretches], lines.take(pa.array(first))


class _JudgedChunk:
    """A chunk with its judged and flagged lines; `position` is that of its first line in labels.parquet."""

    def __init__(self, job: JudgeJob, number: int, flags: Flags, position: int, signals: list[int]) -> None:
        chunk = job.table.chunks[number]
        table, lines = job.table.read(chunk)[0], job.read_part(number)
        flagged, n_steps = flags.of(lines), len(table.flat_index)
        self.number, self.first_sequence, self.position, self.table = number, chunk.first_sequence, position, table
        ends = np.full(1, n_steps)
        if not chunk.last_window:
            ends = np.zeros(len(table.sequence_names), dtype=np.int64)
            np.maximum.at(ends, table.groups, table.index.max(1) + 1)
        self.bounds = np.append(0, ends)  # the first step of every sequence, and the one after the last
        self.first_line = table.first_lines()  # of every step
        self.lines = lines.append_column("is_issue", pa.array(flagged))
        issues = np.bincount(table.line_step[flagged], minlength=n_steps) > 0
        self.issues_before = np.append(0, np.cumsum(issues))  # steps with issues before each step
        self.signals = {table.feature_names[each]: table.signal(each) for each in signals}

    def worst(self, sequence: int) -> TimelineStretch:
        """The whole sequence or, where it is long, those `STEPS` in a row that hold the most issues."""
        start, end = self._bounds(sequence)
        if end - start > STEPS:
            before = self.issues_before
            start += int((before[start + STEPS : end + 1] - before[start : end + 1 - STEPS]).argmax())
        return self._stretch(sequence, np.arange(start, min(start + STEPS, end)))

    def planned(self, sequence: int, entry: Mapping[str, Any]) -> tuple[np.ndarray, TimelineStretch] | None:
        """The steps of a stretch of the plan, and it with what lies around it; None where its times are not here."""
        start, end = self._bounds(sequence)
        times = self._times(np.arange(start, end))
        if entry["first"] not in times or entry["last"] not in times:
            return None
        low, high = sorted(times.index(entry[side]) for side in ("first", "last"))
        steps = start + np.arange(low, high + 1)[:STEPS]
        more = min(max(10, len(steps) // 4), max(0, (STEPS - len(steps)) // 2))  # a quarter of its length on each side
        around = np.arange(max(start, int(steps[0]) - more), min(end, int(steps[-1]) + 1 + more))
        return steps, self._stretch(sequence, around)

    def _bounds(self, sequence: int) -> tuple[int, int]:
        first = sequence - self.first_sequence
        return int(self.bounds[first]), int(self.bounds[first + 1])

    def _times(self, steps: np.ndarray) -> list[str]:
        return list(self.table.times.take(pa.array(self.table.line_row[self.first_line[steps]])).to_pylist())

    def _stretch(self, sequence: int, steps: np.ndarray) -> TimelineStretch:
        timeline = {
            "sequence": self.table.sequence_names[sequence - self.first_sequence],
            "times": self._times(steps),
            "signals": {name: rounded(values[steps]) for name, values in self.signals.items()},
            "rows": (self.position + self.first_line[steps]).tolist(),
        }
        shown = np.flatnonzero((self.table.line_step >= steps[0]) & (self.table.line_step <= steps[-1]))
        lines = self.lines.take(pa.array(shown)).append_column("position", pa.array(self.position + shown))
        return TimelineStretch(self.number, sequence, steps, timeline, as_texts(lines.select([*COLUMNS, "position"])))


def as_texts(lines: pa.Table) -> pa.Table:
    """Dictionary-encoded columns as plain texts."""
    fields = [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in lines.schema]
    return lines.cast(pa.schema(fields))


def telling_features(table: AuditInput, judged: LabelAudit) -> list[int]:
    """The features that best separate the suggested classes within sequences, the best first.

    They are ranked by the correlation ratio: the variance between classes over the total variance.
    """
    suggested = table.from_steps(judged.probabilities.argmax(-1))
    some = np.unique(np.linspace(0, len(suggested) - 1, min(SAMPLE, len(suggested))).astype(np.int64))
    window, step = np.divmod(table.flat_index[some], table.index.shape[1])
    values, codes = table.features[window, step].astype(np.float64), suggested[some]
    total = ((values - values.mean(0)) ** 2).sum(0)
    values -= _averages(values, table.groups[window])  # what never changes within a sequence is a flat line there
    between = (_averages(values, codes) ** 2).sum(0)
    ratio = between / np.maximum(total, 1e-12)
    return [int(feature) for feature in np.argsort(-ratio, kind="stable")[:SIGNALS]]


def _averages(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The average of each row's own group: of the shape of values, (rows, features)."""
    names, group = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, group, values)
    return (sums / np.bincount(group)[:, None])[group]


def rounded(values: np.ndarray) -> list[float | None]:
    """Values as a drawing needs them: to a small part of their range, not each to its own digits."""
    finite = np.isfinite(values)
    span = float(np.ptp(values[finite])) if finite.any() else 0.0
    largest = span or float(np.abs(values[finite]).max(initial=0)) or 1.0
    digits = DIGITS - math.ceil(math.log10(largest))
    return [round(value, digits) + 0.0 if good else None for value, good in zip(values.tolist(), finite, strict=True)]


def say_limits(n_windows: int, of_windows: int, options: AuditOptions, estimator: TideClassifier) -> list[str]:
    """Sentences about what was limited to save time, or because the user asked for it."""
    messages = []
    if n_windows < of_windows:
        why = "The table is large" if options.train_on is None else "As asked by train_on (--train-on)"
        given = options.probabilities is not None
        others = "" if given else "; labels in the others are judged by the average of all networks"
        learned = "the noise was learned" if given else "the networks learned"
        messages.append(f"{why}: {learned} from {n_windows} of {of_windows} windows, drawn at random{others}.")
    if estimator.epochs < fitting.EPOCHS:
        messages.append(f"The networks were trained for {estimator.epochs} epochs, not {fitting.EPOCHS}, to save time.")
    return messages


def describe_run(command: str | None, seconds: Mapping[str, float]) -> dict[str, Any]:
    """When and with what the audit was run."""
    return {
        "format": FORMAT,
        "labeltide": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None if command is None else as_utf8(command),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
        "seconds": dict(seconds),
    }


def describe_table(table: Any, read: AuditInput, messages: list[str]) -> dict[str, Any]:
    """The table, and everything that was decided about it."""
    source: dict[str, Any] = {}  # where a review finds the table again, and how it sees that the table has changed
    if not isinstance(table, str | Path):
        schema = table.schema if isinstance(table, pa.Table) else pa.schema([])
        source["name"] = as_utf8((schema.metadata or {}).get(b"name", b"table").decode("utf-8", "replace"))
    elif Path(table).is_file():
        path = Path(table)
        source |= {"name": as_utf8(path.name), "path": as_utf8(str(path.absolute())), "digest": file_digest(path)}
    else:  # a folder, a glob or an address
        source["name"] = as_utf8(Path(address_path(table)).name)
    if "digest" not in source:  # a frame or several files: the arrays read from them tell two tables apart
        content = hashlib.sha256(np.ascontiguousarray(read.labels).data)
        content.update(np.ascontiguousarray(read.features).data)
        source["content"] = f"sha256:{content.hexdigest()}"
    return {
        **source,
        "rows": read.n_rows,
        "sequences": len(read.sequence_names),
        "labels": read.n_labels,
        "columns": read.columns,
        "classes": read.class_names,
        "features": read.feature_names,
        "annotators": read.annotator_names,
        "messages": [*read.messages, *say_files(table, read), *messages],
        "overview": [asdict(column) for column in read.overview],
    }


def say_files(table: Any, read: AuditInput) -> list[str]:
    """What to do where several files without a column of sequences were meant to be one sequence each."""
    if read.columns.get("sequence") or not is_address(table):
        return []
    return [
        "Without a sequence column, all files are read as one sequence, one after another. If each file is a separate "
        "recording, add a column with its name and pass that column as sequence."
    ]


def describe_labels(
    job: JudgeJob, flags: Flags, totals: Totals, sample: AuditInput, judged: LabelAudit
) -> tuple[dict[str, Any], pa.Table]:
    """What was found about single labels, and the lines that timelines show; `judged` is the audit of the sample."""
    table = job.table
    plan = describe_plan(sample, judged, judged.flags_below(flags.threshold))
    patterns = find_patterns(sample, sample.from_steps(sample.labels), sample.from_steps(judged.probabilities))
    timelines, lines = describe_timelines(job, flags, totals, plan, telling_features(sample, judged))
    described = {
        "issues": totals.describe_issues(table.sequence_names, table.class_names, judged) | {"patterns": patterns},
        "contested": totals.describe_contested(table.class_names),
        "agreement": describe_agreement(
            sample.from_steps(sample.labels),
            sample.from_steps(sample.each_clock[0]),
            sample.annotator_names or (),
            sample.class_names,
        ),
        "plan": plan,
        "timelines": timelines,
        "encoders": [asdict(encoder) for encoder in sample.encoders],
    }
    return described, lines


def describe_settings(
    read: AuditInput, options: AuditOptions, estimator: TideClassifier, n_windows: int
) -> dict[str, Any]:
    """The settings of the fit."""
    return {
        "model": options.model if options.probabilities is None else "probabilities",
        "seed": options.seed,
        "window": read.window,
        "fdr": options.fdr,
        "spend_fdr": options.spend_fdr,
        "device": options.device,
        "fast": options.fast,
        "epochs": estimator.epochs,
        "hidden_size": estimator.hidden_size,
        "train_on": written(options.n_train),
        "windows learned from": n_windows,
        "model file": f"{MODEL}/{MODEL_FILE}",
    }


def as_utf8(text: str) -> str:
    """The text as a file can hold it."""
    return text.encode("utf-8", "replace").decode()
