"""How results are shown: short texts, HTML for notebooks, plots and frames.

Base classes of the results. What they need is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta

from labeltide import _validation
from labeltide._display import ShortRepr, draw, p_value, panel, percent, points, sentence, table
from labeltide._files import import_extra
from labeltide.tables.frames import as_frame

if TYPE_CHECKING:
    from labeltide.inference.annotators import Consensus
    from labeltide.inference.audit import LabelAudit
    from labeltide.inference.bands import NoiseEstimate
    from labeltide.inference.temporality import PartTemporality, Temporality


class NoiseDisplay(ShortRepr):
    """How a `NoiseEstimate` is shown."""

    def _repr_html_(self: Any) -> str:

        return noise_html(self)

    def plot(self: Any, ax: Any = None, *, classes: Sequence[Hashable] | None = None, true: int | None = None) -> Any:
        """Draw Q(t) with 95 % bands; see `labeltide.inference.display.plot_noise`."""

        return plot_noise(self, ax, classes=classes, true=true)

    def to_frame(self: Any, kind: str = "pandas", *, classes: Sequence[Hashable] | None = None) -> Any:
        """Q with its bands, one line for each moment, true and recorded class: "pandas", "polars" or "pyarrow"."""

        return noise_frame(self, kind, classes)


class LabelAuditDisplay(ShortRepr):
    """How a `LabelAudit` is shown."""

    def _repr_html_(self: Any) -> str:

        return label_audit_html(self)

    def plot(self: Any, sequence: int = 0, ax: Any = None, *, times: ArrayLike | None = None) -> Any:
        """Draw recorded and suggested labels of one sequence over its steps; labels to check are marked."""

        return plot_timeline(self, sequence, ax, times=times)

    def plot_clock(self: Any, ax: Any = None, *, bins: int = 40) -> Any:
        """Draw the shares of wrong labels and of labels to check over the clock."""

        return plot_over_clock(self, ax, bins=bins)

    def plot_reliability(self: Any, trusted: ArrayLike, ax: Any = None, *, bins: int = 10) -> Any:
        """Draw how often labels are right against their probability of being right.

        Parameters
        ----------
        trusted : array of shape (n, steps)
            Labels known to be right, in the values of `classes`; -1, None or NaN where none is known. They must not
            have been given to the audit.
        ax : matplotlib Axes, optional
        bins : int, default 10
        """

        codes = trusted_codes(trusted, self.mask, self.classes)[..., None]
        known = (codes >= 0) & (self.labels >= 0)
        quality = np.where(known, self.quality.reshape(self.labels.shape), np.nan)
        return plot_reliability(quality, self.labels == codes, ax, bins=bins)

    def to_frame(
        self: Any,
        kind: str = "pandas",
        *,
        ids: Sequence[Hashable] | None = None,
        times: ArrayLike | None = None,
        annotators: Sequence[Hashable] | None = None,
    ) -> Any:
        """One line for every recorded label, as `to_table` gives it: "pandas", "polars" or "pyarrow"."""
        from labeltide.tables.frames import as_frame

        return as_frame(self.to_table(ids, times, annotators), kind)


class TemporalityDisplay(ShortRepr):
    """How a `Temporality` is shown."""

    def _repr_html_(self: Any) -> str:

        return temporality_html(self)

    def to_frame(self: Any, kind: str = "pandas") -> Any:
        """One line for the test of all labels, of each class and of each annotator: "pandas", "polars" or "pyarrow"."""

        return temporality_frame(self, kind)


class ConsensusDisplay(ShortRepr):
    """How a `Consensus` is shown."""

    def _repr_html_(self: Any) -> str:

        return consensus_html(self)

    def plot(self: Any, ax: Any = None, *, annotators: Sequence[Hashable] | None = None) -> Any:
        """Draw the share of right labels of each annotator over the clock."""

        return plot_annotators(self, ax, annotators=annotators)

    def to_frame(self: Any, kind: str = "pandas", *, ids: Sequence[Hashable] | None = None) -> Any:
        """One line for every step: its consensus and the belief in each label: "pandas", "polars" or "pyarrow"."""

        return consensus_frame(self, kind, ids)


def trusted_codes(trusted: ArrayLike, mask: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Trusted labels as codes into the classes, (n, steps), -1 where none is known."""
    labels = _validation.check_labels(trusted, *mask.shape)[..., 0]
    present = mask & ~_validation.missing_labels(labels)
    return _validation.encode_labels(labels, present, classes.tolist(), "trusted")


# ----------------------------------------------------------------------------------------------------
# Results as small pieces of HTML for notebooks.
# ----------------------------------------------------------------------------------------------------


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
    return draw((edges[1:] + edges[:-1]) / 2, {"wrong, by the posterior": shares}, description=said)


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
    curve = draw(consensus.clock, chosen, description="Share of right labels of each annotator over the clock.")
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
    curve = draw(grid, curves, description="Error rate of each true class over the clock.") if grid.ndim == 1 else ""
    return panel("Learned", sentence(words), curve, listed, _more(len(classes)))


def _more(count: int) -> Any:
    return sentence(f"{count - PARTS} more are not listed.") if count > PARTS else ""


# ----------------------------------------------------------------------------------------------------
# Plots with matplotlib, which is the extra `plots` and imported when a plot is asked for.
#
# Every function takes `ax`, draws on it or on a new one, and returns it.
# ----------------------------------------------------------------------------------------------------


BINS = 10  # of probabilities, and of the clock


def new_axes(ax: Any, size: tuple[float, float] = (7.0, 3.2)) -> Any:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    pyplot = import_extra("matplotlib.pyplot", "plots", "A plot")
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def plot_noise(
    estimate: NoiseEstimate, ax: Any = None, *, classes: Sequence[Hashable] | None = None, true: int | None = None
) -> Any:
    """Q(t) with 95 % bands: the error rate of each true class, or all recorded labels of one true class.

    Parameters
    ----------
    estimate : NoiseEstimate
    ax : matplotlib Axes, optional
    classes : names of the classes, numbers when left out
    true : number of the true class whose row of Q is drawn, optional
    """
    names = class_names(estimate, classes)
    ax = new_axes(ax)
    if true is None:
        for place, name in enumerate(names):
            bands = [getattr(estimate, f"class_rate_{end}")[:, place] for end in _ENDS]
            _line(ax, estimate.clock, estimate.class_rate[:, place], bands, f"true {_text(name)}")
        ax.plot(estimate.clock, estimate.rate, color="gray", linestyle="--", label="all labels")
        ax.set_ylabel("share of wrong labels")
    else:
        _validation.check_number("true", true, 0, len(names) - 1, whole=True)
        for place, name in enumerate(names):
            bands = [getattr(estimate, end)[:, true, place] for end in _ENDS]
            _line(ax, estimate.clock, estimate.mean[:, true, place], bands, f"recorded {_text(name)}")
        ax.set_ylabel(f"probability given true {_text(names[true])}")
    ax.set(xlabel="clock", ylim=(0, None), title=f"{100 * estimate.total:.1f} % of labels wrong")
    ax.legend(frameon=False)
    return ax


_ENDS = ("lower", "upper", "simultaneous_lower", "simultaneous_upper")


def class_names(estimate: NoiseEstimate, classes: Sequence[Hashable] | None) -> list[str]:
    """Names of the classes of an estimate, numbers where none are told."""
    count = estimate.mean.shape[-1]
    if classes is not None and len(classes) != count:
        raise ValueError(f"classes must be {count} names. Got {len(classes)}.")
    return [str(name) for name in (range(count) if classes is None else classes)]


def _text(name: Any) -> str:
    """A user's name as plain text: matplotlib would read formulas between dollar signs."""
    return str(name).replace("$", r"\$")


def _line(ax: Any, clock: np.ndarray, values: np.ndarray, bands: Sequence[np.ndarray], label: str) -> None:
    """A curve with its pointwise band, and a lighter one that covers the whole curve."""
    (line,) = ax.plot(clock, values, label=label)
    ax.fill_between(clock, bands[2], bands[3], color=line.get_color(), alpha=0.12, linewidth=0)
    ax.fill_between(clock, bands[0], bands[1], color=line.get_color(), alpha=0.22, linewidth=0)


def plot_timeline(audit: LabelAudit, sequence: int = 0, ax: Any = None, *, times: ArrayLike | None = None) -> Any:
    """Recorded and suggested labels of one sequence over its steps; labels to check are marked.

    Parameters
    ----------
    audit : LabelAudit
    sequence : number of the sequence
    ax : matplotlib Axes, optional
    times : moments of its steps, their numbers when left out
    """
    _validation.check_number("sequence", sequence, 0, len(audit.labels) - 1, whole=True)
    real = audit.mask[sequence]
    x = np.arange(len(real)) if times is None else np.asarray(times)
    if len(x) != len(real):
        raise ValueError(f"times must hold {len(real)} moments, one per step. Got {len(x)}.")
    ax = new_axes(ax)
    suggested = audit.probabilities[sequence].argmax(-1)
    ax.step(x[real], suggested[real], where="mid", color="gray", label="suggested")
    flagged = audit.is_issue.reshape(audit.labels.shape)[sequence]
    for annotator, codes in enumerate(audit.labels[sequence].T):
        there = codes >= 0
        who = f"recorded by {annotator}" if audit.has_annotators else "recorded"
        ax.plot(x[there], codes[there] + 0.08 * (annotator + 1), "|", markersize=9, label=who)
        wrong = flagged[:, annotator]
        label = "to check" if annotator == 0 else None
        ax.plot(x[wrong], codes[wrong] + 0.08 * (annotator + 1), "x", color="crimson", label=label)
    ax.set_yticks(range(len(audit.classes)), [_text(name) for name in audit.classes])
    ax.set(xlabel="step" if times is None else "time", title=f"sequence {sequence}")
    ax.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.08), fontsize="small")
    return ax


def plot_over_clock(audit: LabelAudit, ax: Any = None, *, bins: int = 4 * BINS) -> Any:
    """How many labels are wrong over the clock by the posterior, and how many are to check."""
    _validation.check_number("bins", bins, 1, whole=True)
    clock = np.broadcast_to(audit.clock[..., None], audit.labels.shape)
    there = audit.labels >= 0
    moments = clock[there]
    wrong = 1 - audit.quality.reshape(audit.labels.shape)[there]
    edges = np.linspace(moments.min(), moments.max(), bins + 1)
    place = np.clip(np.searchsorted(edges, moments, "right") - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    flagged = audit.is_issue.reshape(audit.labels.shape)[there]
    with np.errstate(invalid="ignore"):
        shares = [np.bincount(place, values.astype(float), bins) / counts for values in (wrong, flagged)]
    ax = new_axes(ax)
    ax.stairs(shares[0], edges, label="wrong, by the posterior")
    ax.stairs(shares[1], edges, label="to check", fill=True, alpha=0.35)
    ax.set(xlabel="clock", ylabel="share of labels", ylim=(0, None))
    ax.legend(frameon=False)
    return ax


def plot_annotators(consensus: Consensus, ax: Any = None, *, annotators: Sequence[Hashable] | None = None) -> Any:
    """The share of right labels of each annotator over the clock."""
    count = len(consensus.quality)
    if annotators is not None and len(annotators) != count:
        raise ValueError(f"annotators must be {count} names. Got {len(annotators)}.")
    ax = new_axes(ax)
    for name, quality in zip(range(count) if annotators is None else annotators, consensus.quality, strict=True):
        ax.plot(consensus.clock, quality, label=f"annotator {_text(name)}")
    ax.set(xlabel="clock", ylabel="share of right labels", ylim=(None, 1))
    ax.legend(frameon=False)
    return ax


def plot_reliability(probabilities: ArrayLike, is_right: ArrayLike, ax: Any = None, *, bins: int = BINS) -> Any:
    """Reliability diagram (Murphy and Winkler 1977): how often what has a probability is so.

    The title has the expected calibration error (Naeini and others 2015). Bars are 95 % Clopper-Pearson intervals that
    take labels as independent; neighbouring labels are not, so the truth may lie further off.

    Parameters
    ----------
    probabilities : array of any shape, NaN where there is none
    is_right : bool array of the same shape, whether what was predicted is so
    ax : matplotlib Axes, optional
    bins : int, default 10
    """
    _validation.check_number("bins", bins, 1, whole=True)
    chances, right = np.asarray(probabilities, dtype=float), np.asarray(is_right)
    if chances.shape != right.shape:
        raise ValueError(f"is_right must have shape {chances.shape}, as the probabilities. Got {right.shape}.")
    known = np.isfinite(chances)
    if not known.any():
        raise ValueError("There is no step with a probability and a trusted label, so nothing can be compared.")
    chances, right = chances[known], right[known].astype(bool)
    place = np.minimum((chances * bins).astype(int), bins - 1)
    counts = np.bincount(place, minlength=bins)
    used = counts > 0
    hits, counts = np.bincount(place, right, bins)[used], counts[used]
    predicted = np.bincount(place, chances, bins)[used] / counts
    observed = hits / counts
    low, high = beta.ppf(0.025, hits, counts - hits + 1), beta.ppf(0.975, hits + 1, counts - hits)
    low, high = np.where(hits == 0, 0.0, low), np.where(hits == counts, 1.0, high)
    ax = new_axes(ax, (4.2, 4.0))
    ax.plot([0, 1], [0, 1], color="gray", linestyle="--", linewidth=1)
    ax.errorbar(predicted, observed, yerr=[observed - low, high - observed], fmt="o", markersize=4, capsize=2)
    error = float(np.average(np.abs(predicted - observed), weights=counts))
    title = f"{len(chances):,} labels, expected calibration error {error:.3f}"
    ax.set(xlabel="probability", ylabel="share that is so", xlim=(0, 1), ylim=(0, 1), title=title)
    return ax


# ----------------------------------------------------------------------------------------------------
# Results as tables: one line for each entry of Q, each test or each step.
# ----------------------------------------------------------------------------------------------------


def noise_frame(estimate: NoiseEstimate, kind: str, classes: Sequence[Hashable] | None) -> Any:
    """One line for each moment, true and recorded class."""
    names = np.array(class_names(estimate, classes), dtype=object)
    points, count = estimate.mean.shape[:2]
    ends = ("mean", "lower", "upper", "simultaneous_lower", "simultaneous_upper")
    columns: dict[str, Any] = {
        "clock": np.repeat(estimate.clock, count * count),
        "true": np.tile(np.repeat(names, count), points),
        "recorded": np.tile(names, points * count),
    }
    return as_frame(columns | {end: getattr(estimate, end).ravel() for end in ends}, kind)


def temporality_frame(tests: Temporality, kind: str) -> Any:
    """One line for the test of all labels, of each true class and of each annotator."""
    whole = {name: getattr(tests, name) for name in ("statistic", "p_value", "change", "change_lower", "change_upper")}
    whole |= {name: getattr(tests, name) for name in ("worst_at", "best_at", "worst_rate", "best_rate")}
    rows = [{"of": "all", "number": None, **whole, "method": tests.method, "n_units": tests.n_units}]
    for of, parts in (("class", tests.per_class), ("annotator", tests.per_annotator)):
        for number, part in enumerate(parts):
            change = dict(zip(list(whole)[2:], part.change, strict=True))
            test = {"of": of, "number": number, "statistic": part.statistic, "p_value": part.p_value}
            rows.append({**test, **change, "method": part.method, "n_units": part.n_units})
    return as_frame({name: [row[name] for row in rows] for name in rows[0]}, kind)


def consensus_frame(consensus: Consensus, kind: str, ids: Sequence[Hashable] | None) -> Any:
    """One line for each step."""
    row, step = np.nonzero(consensus.probabilities.sum(-1) > 0)
    if ids is not None and len(ids) != len(consensus.labels):
        raise ValueError(f"ids must be {len(consensus.labels)} names, one per sequence. Got {len(ids)}.")
    chances = consensus.probabilities[row, step]
    columns: dict[str, Any] = {
        "sequence": row if ids is None else [ids[place] for place in row.tolist()],
        "step": step,
        "consensus": consensus.labels[row, step].tolist(),
        "probability": chances.max(-1),
    }
    for place, name in enumerate(consensus.classes):
        columns[f"probability of {name}"] = chances[:, place]
    return as_frame(columns, kind)
