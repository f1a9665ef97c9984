"""Results as small pieces of HTML for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labeltide._display import draw, p_value, panel, percent, points, sentence, table

if TYPE_CHECKING:
    from labeltide.inference.audit import LabelAudit
    from labeltide.inference.consensus import Consensus
    from labeltide.inference.noise_estimate import NoiseEstimate
    from labeltide.inference.temporality import PartTemporality, Temporality

ISSUES = 8  # labels to check that are listed
PARTS = 12  # classes or annotators that are listed
CURVES = 4
CLOCK_BINS = 40


def noise_html(estimate: NoiseEstimate) -> str:
    """The share of wrong labels, its curve over the clock, and the error rates of the classes."""
    change = estimate.change
    total = f"{percent(estimate.total)} of labels wrong"
    range_ = f"95 % interval {percent(estimate.total_lower)} to {percent(estimate.total_upper)}."
    moved = (
        f"Over the clock the share changes by {points(change.value)} ({points(change.lower)} to "
        f"{points(change.upper)}): worst at {change.worst_at:.4g} ({percent(change.worst_rate)}), best at "
        f"{change.best_at:.4g} ({percent(change.best_rate)})."
    )
    curve = draw(
        estimate.clock,
        {"all labels": estimate.rate},
        (estimate.rate_lower, estimate.rate_upper),
        f"Share of wrong labels over the clock. {moved}",
    )
    rows = [
        [place, percent(rates.mean()), percent(rates.min()), percent(rates.max())]
        for place, rates in enumerate(estimate.class_rate.T[:PARTS])
    ]
    heads = ["true class", "wrong on average", "least", "most"]
    return panel(
        total, sentence(range_), curve, sentence(moved), table(heads, rows), _more(estimate.class_rate.shape[1])
    )


def label_audit_html(audit: LabelAudit) -> str:
    """How many labels are to check, over the clock, and the surest of them."""
    count, flagged = int((audit.labels >= 0).sum()), audit.is_issue.reshape(audit.labels.shape)
    n_issues = int(flagged.sum())
    title = f"{n_issues:,} of {count:,} labels to check"
    alarms = f"About {percent(audit.expected_false_alarms)} of them are expected to be right."
    quality = audit.quality.reshape(audit.labels.shape)
    surest = np.argsort(np.where(flagged, quality, np.inf), axis=None, kind="stable")[: min(ISSUES, n_issues)]
    rows = []
    for row, step, annotator in zip(*np.unravel_index(surest, audit.labels.shape), strict=True):
        who = [annotator] if audit.has_annotators else []
        recorded = audit.classes[audit.labels[row, step, annotator]]
        shown = [row, step, *who, recorded, audit.suggested[row, step], percent(quality[row, step, annotator])]
        rows.append(shown)
    who = ["annotator"] if audit.has_annotators else []
    listed = table(["sequence", "step", *who, "recorded", "suggested", "probability right"], rows) if rows else ""
    return panel(title, sentence(alarms) if n_issues else "", _over_clock(audit, quality), listed)


def _over_clock(audit: LabelAudit, quality: np.ndarray) -> Any:
    """The share of wrong labels in bins of the clock, by the posterior."""
    there = audit.labels >= 0
    moments = np.broadcast_to(audit.clock[..., None], audit.labels.shape)[there]
    if not moments.size or np.ptp(moments) == 0:
        return ""
    bins = min(CLOCK_BINS, len(np.unique(moments)))
    edges = np.linspace(moments.min(), moments.max(), bins + 1)
    place = np.clip(np.searchsorted(edges, moments, "right") - 1, 0, bins - 1)
    with np.errstate(invalid="ignore"):
        shares = np.bincount(place, 1 - quality[there], bins) / np.bincount(place, minlength=bins)
    said = f"Share of wrong labels over the clock, by the posterior: {percent(float((1 - quality[there]).mean()))}."
    return draw((edges[1:] + edges[:-1]) / 2, {"wrong, by the posterior": shares}, said=said)


def temporality_html(tests: Temporality) -> str:
    """All tests with their effect sizes."""
    known = np.isfinite(tests.p_value)
    title = (
        "Whether the noise changes over the clock cannot be told"
        if not known
        else f"The noise {'changes' if tests.p_value < 0.05 else 'was not shown to change'} over the clock"
    )
    change = (tests.change, tests.change_lower, tests.change_upper)
    rows = [["all labels", p_value(tests.p_value), *map(points, change), tests.worst_at, tests.best_at]]
    rows += [_part(f"true class {place}", part) for place, part in enumerate(tests.per_class[:PARTS])]
    rows += [_part(f"annotator {place}", part) for place, part in enumerate(tests.per_annotator[:PARTS])]
    shown = [[*row[:5], *(f"{moment:.4g}" for moment in row[5:])] for row in rows]
    heads = ["of", "p-value", "change", "from", "to", "worst at", "best at"]
    units = f"Test by {tests.method}" + (f", {tests.n_units} units." if tests.n_units else ".")
    others = f"No label is wrong: p {p_value(tests.is_noisy_p)}. "
    others += f"Classes have the same noise: p {p_value(tests.classes_differ_p)}."
    more = _more(max(len(tests.per_class), len(tests.per_annotator)))
    return panel(title, table(heads, shown), more, sentence(units), sentence(others))


def _part(name: str, part: PartTemporality) -> list[Any]:
    change = part.change
    ends = (points(change.value), points(change.lower), points(change.upper))
    return [name, p_value(part.p_value), *ends, change.worst_at, change.best_at]


def consensus_html(consensus: Consensus) -> str:
    """How well annotators agree, and how often each is right over the clock."""
    n, _, annotators = consensus.contested.shape
    steps = int((consensus.probabilities.sum(-1) > 0).sum())
    title = f"Consensus of {annotators} annotators on {steps:,} steps of {n:,} sequences"
    kappa = f"Fleiss' kappa {consensus.agreement.fleiss:.2f}; {len(consensus.classes)} classes."
    chosen = {f"annotator {place}": quality for place, quality in enumerate(consensus.quality[:CURVES])}
    curve = draw(consensus.clock, chosen, said="Share of right labels of each annotator over the clock.")
    rows = [
        [place, percent(quality.mean()), percent(quality.min()), percent(quality.max())]
        for place, quality in enumerate(consensus.quality[:PARTS])
    ]
    heads = ["annotator", "right on average", "least", "most"]
    return panel(title, sentence(kappa), curve, table(heads, rows), _more(annotators))


def estimator_html(estimator: Any) -> str:
    """What a fitted method learned: classes, networks and the noise over the clock."""
    classes, matrices = estimator.classes_, estimator.noise_matrices_
    wrong = 1 - np.diagonal(matrices, axis1=1, axis2=2)  # (points, classes)
    networks = estimator.model_.members
    kind = f"{networks} networks" if networks > 1 else "One network"
    words = f"{kind}; {estimator.n_features_in_} features; {len(classes)} classes."
    rows = [
        [name, percent(rates.mean()), percent(rates.min()), percent(rates.max())]
        for name, rates in zip(classes[:PARTS], wrong.T[:PARTS], strict=True)
    ]
    listed = table(["true class", "recorded wrong, on average", "least", "most"], rows)
    grid = np.asarray(estimator.clock_grid_)
    curves = {f"true {name}": rates for name, rates in zip(classes[:CURVES], wrong.T[:CURVES], strict=True)}
    curve = draw(grid, curves, said="Error rate of each true class over the clock.") if grid.ndim == 1 else ""
    return panel("Learned", sentence(words), curve, listed, _more(len(classes)))


def _more(count: int) -> Any:
    return sentence(f"{count - PARTS} more are not listed.") if count > PARTS else ""
