"""Plots with matplotlib, which is the extra `plots` and imported when a plot is asked for.

Every function takes `ax`, draws on it or on a new one, and returns it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta

from labeltide import _validation
from labeltide._extras import import_extra

if TYPE_CHECKING:
    from labeltide.inference.audit import LabelAudit
    from labeltide.inference.consensus import Consensus
    from labeltide.inference.noise_estimate import NoiseEstimate

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
