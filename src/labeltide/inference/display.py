"""Base classes of the results that show themselves: HTML for notebooks, plots with matplotlib, and frames.

Curves are drawn by `plot` alone. Plots need the extra `plots`; each takes `ax`, draws on it or on a new one, and
returns it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._display import ShortRepr, p_value, panel, percent, sentence, table
from labeltide._files import import_extra
from labeltide.inference.review import EffectiveCount, clopper_pearson
from labeltide.tables.columns import as_frame

MAX_ISSUES = 8  # labels to check that are listed
MAX_PARTS = 12  # classes or annotators that are listed
BINS = 10  # of probabilities
EFFECTS = ("change", "change_lower", "change_upper", "worst_at", "best_at", "worst_rate", "best_rate")
BAND_ENDS = ("lower", "upper", "simultaneous_lower", "simultaneous_upper")


class NoiseDisplay(ShortRepr):
    """Display of a `NoiseEstimate`."""

    def _repr_html_(self: Any) -> str:
        """The share of wrong labels, its change over the clock, and the error rates of the classes."""
        change = self.change
        interval = f"95 % interval {percent(self.total_lower)} to {percent(self.total_upper)}."
        value, lower, upper = (percent(each, "points") for each in (change.value, change.lower, change.upper))
        summary = (
            f"Over the clock the share changes by {value} ({lower} to {upper}): worst at {change.worst_at:.4g} "
            f"({percent(change.worst_rate)}), best at {change.best_at:.4g} ({percent(change.best_rate)})."
        )
        heads = ["true class", "wrong on average", "least", "most"]
        rates = _table_of_rates(heads, enumerate(self.class_rate.T))
        more = _not_listed(self.class_rate.shape[1])
        title = f"{percent(self.total)} of labels wrong"
        return panel(title, sentence(interval), sentence(summary), rates, more)

    def plot(self: Any, ax: Any = None, *, classes: Sequence[Hashable] | None = None, true: int | None = None) -> Any:
        """Draw Q(t) with 95 % bands: the error rate of each true class, or all recorded labels of one true class.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        classes : names of the classes, numbers when left out
        true : number of the true class whose row of Q is drawn, optional
        """
        names = [_escape(name) for name in default_names("classes", classes, self.mean.shape[-1])]
        ax = new_axes(ax)
        if true is None:
            curves, prefix = (self.class_rate, *(getattr(self, f"class_rate_{end}") for end in BAND_ENDS)), "true"
            ax.set_ylabel("share of wrong labels")
        else:
            _validation.check_number("true", true, 0, len(names) - 1, whole=True)
            curves, prefix = tuple(getattr(self, name)[:, true] for name in ("mean", *BAND_ENDS)), "recorded"
            ax.set_ylabel(f"probability given true {names[true]}")
        for name, (mean, *ends) in zip(names, zip(*(curve.T for curve in curves), strict=True), strict=True):
            (line,) = ax.plot(self.clock, mean, label=f"{prefix} {name}")
            for low, high, alpha in ((ends[2], ends[3], 0.12), (ends[0], ends[1], 0.22)):
                ax.fill_between(self.clock, low, high, color=line.get_color(), alpha=alpha, linewidth=0)
        if true is None:
            ax.plot(self.clock, self.rate, color="gray", linestyle="--", label="all labels")
        return _finish(ax, ylim=(0, None), title=f"{100 * self.total:.1f} % of labels wrong")

    def to_frame(self: Any, kind: str = "pandas", *, classes: Sequence[Hashable] | None = None) -> Any:
        """Q with its bands, one line for each moment, true and recorded class: "pandas", "polars" or "pyarrow"."""
        names = np.array([str(name) for name in default_names("classes", classes, self.mean.shape[-1])], dtype=object)
        n_points, count = self.mean.shape[:2]
        columns: dict[str, Any] = {
            "clock": np.repeat(self.clock, count * count),
            "true": np.tile(np.repeat(names, count), n_points),
            "recorded": np.tile(names, n_points * count),
        }
        return as_frame(columns | {name: getattr(self, name).ravel() for name in ("mean", *BAND_ENDS)}, kind)


class LabelAuditDisplay(ShortRepr):
    """Display of a `LabelAudit`."""

    def _repr_html_(self: Any) -> str:
        """How many labels are to check, and the surest of them."""
        flagged, quality = (each.reshape(self.labels.shape) for each in (self.is_issue, self.quality))
        n_issues, there = int(flagged.sum()), self.labels >= 0
        surest = np.argsort(np.where(flagged, quality, np.inf), axis=None, kind="stable")[: min(MAX_ISSUES, n_issues)]
        rows = []
        for row, step, annotator in zip(*np.unravel_index(surest, self.labels.shape), strict=True):
            who = [annotator] if self.has_annotators else []
            recorded = self.classes[self.labels[row, step, annotator]]
            right = percent(quality[row, step, annotator])
            rows.append([row, step, *who, recorded, self.suggested[row, step], right])
        who = ["annotator"] if self.has_annotators else []
        heads = ["sequence", "step", *who, "recorded", "suggested", "probability right"]
        alarms = f"About {percent(self.expected_false_alarms)} of them are expected to be right."
        title = f"{n_issues:,} of {int(there.sum()):,} labels to check"
        return panel(title, sentence(alarms) if n_issues else "", table(heads, rows) if rows else "")

    def plot(self: Any, sequence: int = 0, ax: Any = None, *, times: ArrayLike | None = None) -> Any:
        """Draw recorded and suggested labels of one sequence over its steps; labels to check are marked.

        Parameters
        ----------
        sequence : number of the sequence
        ax : matplotlib Axes, optional
        times : moments of its steps, their numbers when left out
        """
        _validation.check_number("sequence", sequence, 0, len(self.labels) - 1, whole=True)
        real = self.mask[sequence]
        x = np.arange(len(real)) if times is None else np.asarray(times)
        if len(x) != len(real):
            raise ValueError(f"times must hold {len(real)} moments, one per step. Got {len(x)}.")
        ax = new_axes(ax)
        suggested = self.probabilities[sequence].argmax(-1)
        ax.step(x[real], suggested[real], where="mid", color="gray", label="suggested")
        flagged = self.is_issue.reshape(self.labels.shape)[sequence]
        for annotator, codes in enumerate(self.labels[sequence].T):
            there, wrong = codes >= 0, flagged[:, annotator]
            who = f"recorded by {annotator}" if self.has_annotators else "recorded"
            ax.plot(x[there], codes[there] + 0.08 * (annotator + 1), "|", markersize=9, label=who)
            label = "to check" if annotator == 0 else None
            ax.plot(x[wrong], codes[wrong] + 0.08 * (annotator + 1), "x", color="crimson", label=label)
        ax.set_yticks(range(len(self.classes)), [_escape(name) for name in self.classes])
        ax.set(xlabel="step" if times is None else "time", title=f"sequence {sequence}")
        ax.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.08), fontsize="small")
        return ax

    def plot_reliability(self: Any, trusted: ArrayLike, ax: Any = None, *, bins: int = BINS) -> Any:
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

    def to_frame(self: Any, kind: str = "pandas", **names: Any) -> Any:
        """One line for every recorded label, as `to_table` gives it: "pandas", "polars" or "pyarrow"."""
        return as_frame(self.to_table(**names), kind)


class TemporalityDisplay(ShortRepr):
    """Display of a `Temporality`."""

    def _repr_html_(self: Any) -> str:
        """All tests with their effect sizes."""
        title = "Whether the noise changes over the clock cannot be determined"
        if np.isfinite(self.p_value):
            verb = "changes" if self.p_value < 0.05 else "was not shown to change"
            title = f"The noise {verb} over the clock"
        rows = []
        for of, number, test, change in self._tests():
            if number is None or number < MAX_PARTS:
                name = {"all": "all labels", "class": f"true class {number}", "annotator": f"annotator {number}"}[of]
                at = [f"{moment:.4g}" for moment in change[3:5]]
                rows.append([name, p_value(test.p_value), *(percent(each, "points") for each in change[:3]), *at])
        heads = ["of", "p-value", "change", "from", "to", "worst at", "best at"]
        units = f"Test by {self.method}" + (f", {self.n_units} units." if self.n_units else ".")
        others = f"Test of no wrong labels: p {p_value(self.is_noisy_p)}. "
        others += f"Test of equal noise in all classes: p {p_value(self.classes_differ_p)}."
        more = _not_listed(max(len(self.per_class), len(self.per_annotator)))
        return panel(title, table(heads, rows), more, sentence(units), sentence(others))

    def to_frame(self: Any, kind: str = "pandas") -> Any:
        """One line for the test of all labels, of each class and of each annotator: "pandas", "polars" or "pyarrow"."""
        tests = self._tests()
        columns: dict[str, Any] = {"of": [of for of, *_ in tests], "number": [number for _, number, *_ in tests]}
        columns |= {name: [getattr(test, name) for *_, test, _ in tests] for name in ("statistic", "p_value")}
        columns |= {name: [change[index] for *_, change in tests] for index, name in enumerate(EFFECTS)}
        columns |= {name: [getattr(test, name) for *_, test, _ in tests] for name in ("method", "n_units")}
        return as_frame(columns, kind)

    def _tests(self: Any) -> list[tuple[str, int | None, Any, Sequence[float]]]:
        """What is tested, its number, the test and its effects."""
        tests: list[tuple[str, int | None, Any, Sequence[float]]]
        tests = [("all", None, self, tuple(getattr(self, name) for name in EFFECTS))]
        for of, parts in (("class", self.per_class), ("annotator", self.per_annotator)):
            tests += [(of, number, part, part.change) for number, part in enumerate(parts)]
        return tests


RATE_COLUMNS = ("rate", "lower", "upper")


class ConsensusDisplay(ShortRepr):
    """Display of a `Consensus`."""

    def _repr_html_(self: Any) -> str:
        """How well annotators agree, and how often each is right over the clock."""
        n, _, annotators = self.contested.shape
        steps = int((self.probabilities.sum(-1) > 0).sum())
        title = f"Consensus of {annotators} annotators on {steps:,} steps of {n:,} sequences"
        kappa = f"Fleiss' kappa {self.agreement.fleiss:.2f}; {len(self.classes)} classes."
        rates = _table_of_rates(["annotator", "right on average", "least", "most"], enumerate(self.quality))
        return panel(title, sentence(kappa), rates, _not_listed(annotators))

    def plot(self: Any, ax: Any = None, *, annotators: Sequence[Hashable] | None = None) -> Any:
        """Draw the share of right labels of each annotator over the clock."""
        names = default_names("annotators", annotators, len(self.quality))
        ax = new_axes(ax)
        for name, quality in zip(names, self.quality, strict=True):
            ax.plot(self.clock, quality, label=f"annotator {_escape(name)}")
        return _finish(ax, ylabel="share of right labels", ylim=(None, 1))

    def annotator_frame(self: Any, kind: str = "pandas", *, annotators: Sequence[Hashable] | None = None) -> Any:
        """Who differs how: one line for each annotator, true class and recorded class, with 95 % intervals."""
        who, true, recorded = np.nonzero(np.isfinite(self.rates))
        names = default_names("annotators", annotators, len(self.rates))
        columns = {
            "annotator": [names[index] for index in who.tolist()],
            "true": [self.classes[index] for index in true],
            "recorded": [self.classes[index] for index in recorded],
            **{name: getattr(self, name + "s" * (name == "rate"))[who, true, recorded] for name in RATE_COLUMNS},
        }
        return as_frame(columns, kind)

    def to_frame(self: Any, kind: str = "pandas", *, ids: Sequence[Hashable] | None = None) -> Any:
        """One line for every step: its consensus and the belief in each label: "pandas", "polars" or "pyarrow"."""
        names = default_names("ids", ids, len(self.labels), ", one per sequence")
        row, step = np.nonzero(self.probabilities.sum(-1) > 0)
        beliefs = self.probabilities[row, step]
        columns: dict[str, Any] = {
            "sequence": [names[index] for index in row.tolist()],
            "step": step,
            "consensus": self.labels[row, step].tolist(),
            "probability": beliefs.max(-1),
        }
        columns |= {f"probability of {name}": belief for name, belief in zip(self.classes, beliefs.T, strict=True)}
        return as_frame(columns, kind)


def estimator_html(estimator: Any) -> str:
    """What a fitted method learned: classes, networks and the noise over the clock."""
    classes, matrices = estimator.classes_, estimator.noise_matrices_
    wrong = 1 - np.diagonal(matrices, axis1=1, axis2=2)  # (points, classes)
    networks = estimator.model_.members
    kind = f"{networks} networks" if networks > 1 else "One network"
    words = f"{kind}; {estimator.n_features_in_} features; {len(classes)} classes."
    heads = ["true class", "recorded wrong, on average", "least", "most"]
    rates = _table_of_rates(heads, zip(classes, wrong.T, strict=True))
    return panel("Learned", sentence(words), rates, _not_listed(len(classes)))


def plot_reliability(probabilities: ArrayLike, is_right: ArrayLike, ax: Any = None, *, bins: int = BINS) -> Any:
    """Reliability diagram (Murphy and Winkler 1977): observed frequencies against predicted probabilities.

    The title has the expected calibration error (Naeini and others 2015). Bars are 95 % Clopper-Pearson intervals that
    take labels as independent; neighbouring labels are not, so the truth may lie further off.

    Parameters
    ----------
    probabilities : array of any shape, NaN where there is none
    is_right : bool array of the same shape, whether the prediction is right
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
    index = np.minimum((chances * bins).astype(int), bins - 1)
    counts = np.bincount(index, minlength=bins)
    used = counts > 0
    hits, counts = np.bincount(index, right, bins)[used], counts[used]
    predicted = np.bincount(index, chances, bins)[used] / counts
    observed = hits / counts
    low, high = np.transpose([clopper_pearson(EffectiveCount(*of), 0.95) for of in zip(hits, counts, strict=True)])
    ax = new_axes(ax, (4.2, 4.0))
    ax.plot([0, 1], [0, 1], color="gray", linestyle="--", linewidth=1)
    ax.errorbar(predicted, observed, yerr=[observed - low, high - observed], fmt="o", markersize=4, capsize=2)
    error = float(np.average(np.abs(predicted - observed), weights=counts))
    title = f"{len(chances):,} labels, expected calibration error {error:.3f}"
    ax.set(xlabel="probability", ylabel="observed share", xlim=(0, 1), ylim=(0, 1), title=title)
    return ax


def trusted_codes(trusted: ArrayLike, mask: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Trusted labels as codes into the classes, (n, steps), -1 where none is known."""
    labels = _validation.check_labels(trusted, *mask.shape)[..., 0]
    present = mask & ~_validation.missing_labels(labels)
    return _validation.encode_labels(labels, present, classes.tolist(), "trusted")


def new_axes(ax: Any, size: tuple[float, float] = (7.0, 3.2)) -> Any:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    pyplot = import_extra("matplotlib.pyplot", "plots", "A plot")
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _finish(ax: Any, **settings: Any) -> Any:
    """The axes of curves over the clock, with a legend."""
    ax.set(xlabel="clock", **settings)
    ax.legend(frameon=False)
    return ax


def default_names(what: str, names: Sequence[Hashable] | None, count: int, each: str = "") -> Sequence[Hashable]:
    """The names given, numbers when left out."""
    if names is not None and len(names) != count:
        raise ValueError(f"{what} must be {count} names{each}. Got {len(names)}.")
    return range(count) if names is None else names


def _table_of_rates(heads: Sequence[str], named: Iterable[tuple[Any, np.ndarray]]) -> Any:
    """Mean, smallest and largest value of each curve."""
    rows = [[name, percent(rates.mean()), percent(rates.min()), percent(rates.max())] for name, rates in named]
    return table(heads, rows[:MAX_PARTS])


def _not_listed(count: int) -> Any:
    return sentence(f"{count - MAX_PARTS} more are not listed.") if count > MAX_PARTS else ""


def _escape(name: Any) -> str:
    """A user's name as plain text: matplotlib would read formulas between dollar signs."""
    return str(name).replace("$", r"\$")
