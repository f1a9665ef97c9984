r"""Pointwise and simultaneous confidence bands of Q(t) and of error rates, from a cluster bootstrap.

With :math:`\psi = \mathrm{logit}\, q`, half widths are :math:`c\, s(t)` around :math:`\hat\psi(t)`. Pointwise,
:math:`c` is the normal quantile (Efron and Tibshirani 1993, chapter 12). Simultaneous bands take the 95 % quantile over
replicates of the maximum studentised deviation, :math:`\max_t |\psi_b^*(t) - \bar\psi^*(t)| / s^*(t)` (Ruppert, Wand
and Carroll 2003, section 6.5). The squared standard error is the bootstrap variance plus the square of an estimated
smoothing bias (compare Nychka 1988): :math:`s^2 = s^{*2} + (\tfrac12 (\tilde\psi - \hat\psi))^2` with the undersmoothed
estimate :math:`\tilde\psi`. Back on the scale of probabilities, `RESOLUTION` is added in quadrature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from labeltide.chain.data import TrainingEvidence
from labeltide.inference.cluster_bootstrap import BAND_REPLICATES, Replicates, bootstrap_noise
from labeltide.inference.noise_estimate import Change, NoiseEstimate
from labeltide.inference.profile_likelihood import CONFIDENCE, RESOLUTION, ShareInterval, share_test

NORMAL_QUANTILE = 1.959964  # half width of a 95 % interval, in standard deviations
BIAS_SHARE = 0.5  # by hand: of the gap between undersmoothed and chosen estimate, counted as smoothing bias
# In probabilities, measured by `bench/benchmarks/inference.py`. The largest smoothing bias along a curve is about a
# hundredth, most where error rates are close to zero; pointwise coverage hardly depends on that one turn.
MAX_CURVE_BIAS = 0.01
OTHERS_WEIGHT = 1e-6  # of the other annotators' labels among those of one annotator
MAX_SHIFT = 30.0  # of a logit
PROBABILITY_FLOOR = 1e-4  # probabilities are kept this far from 0 and 1 before their logit is taken


class Band(NamedTuple):
    """Lower and upper ends of pointwise and of simultaneous bands."""

    lower: np.ndarray
    upper: np.ndarray
    simultaneous_lower: np.ndarray
    simultaneous_upper: np.ndarray


class Estimates(NamedTuple):
    """The noise of all annotators together, and of each."""

    common: NoiseEstimate
    per_annotator: tuple[NoiseEstimate, ...]  # with one annotator the common one


def estimate_noise(training: TrainingEvidence, *, n_replicates: int = BAND_REPLICATES, seed: int = 0) -> NoiseEstimate:
    """The common part of `estimate_annotators`."""
    return estimate_annotators(training, n_replicates=n_replicates, seed=seed).common


def estimate_annotators(
    training: TrainingEvidence,
    tested: ShareInterval | None = None,
    *,
    n_replicates: int = BAND_REPLICATES,
    seed: int = 0,
) -> Estimates:
    """Q with bands from a cluster bootstrap, on the logit scale so that they stay between 0 and 1.

    The networks' evidence is held fixed. Replicates are undersmoothed and pooled less than the estimate. Simultaneous
    bands are wider by a hundredth in probability, for the sharpest turn of a curve, where smoothing bias is largest.
    """
    matrices = training.parameters.matrices[0].double().numpy()  # (annotators or 1, points, classes, classes)
    replicates = bootstrap_noise(training, n_replicates, seed)
    common = with_profile(
        estimate(training.grid, matrices, replicates, training.weights()), tested or share_test(training)
    )
    if len(matrices) == 1:
        return Estimates(common, (common,))
    everyone = OTHERS_WEIGHT * replicates.totals.sum(1, keepdims=True)  # class shares where an annotator gave no label
    per_annotator = []
    for annotator in range(len(matrices)):
        part = slice(annotator, annotator + 1)
        drawn = Replicates(replicates.matrices[:, part], replicates.totals[:, part] + everyone)
        per_annotator.append(estimate(training.grid, matrices[part], drawn, np.ones(1)))
    return Estimates(common, tuple(per_annotator))


def with_profile(estimate: NoiseEstimate, tested: ShareInterval) -> NoiseEstimate:
    """The same estimate with the profile likelihood interval of the total share in place of the bootstrap's.

    Bands are widened where needed: Q at one moment is known no better than the share of all wrong labels.
    """
    ends = tested.around(estimate.total)
    down, up = (_level_shift(estimate, end) for end in ends)
    right = np.eye(estimate.mean.shape[-1], dtype=bool)
    shifted = {
        "": (estimate.mean, np.where(right, -up, down), np.where(right, -down, up)),
        "class_rate_": (estimate.class_rate, down, up),
        "rate_": (estimate.rate, down, up),
    }
    wider: dict[str, Any] = {}
    for name, (curve, below, above) in shifted.items():
        lowest, highest = (expit(logit(curve) + shift) for shift in (below, above))
        for kind in (name, f"{name}simultaneous_"):
            wider[f"{kind}lower"] = np.minimum(getattr(estimate, f"{kind}lower"), lowest)
            wider[f"{kind}upper"] = np.maximum(getattr(estimate, f"{kind}upper"), highest)
    wider |= {"total_lower": ends[0], "total_upper": ends[1]}
    wider |= {"total_p": tested.p_value, "false_alarms": tested.false_alarms}
    return replace(estimate, **wider)


def _level_shift(estimate: NoiseEstimate, share: float) -> float:
    """The shift of all logits of the error rate at which its mean over the labels is the share."""
    weights = estimate.labels.sum(-1) / estimate.labels.sum()

    def excess(shift: float) -> float:
        return float((weights * expit(logit(estimate.rate) + shift)).sum() - share)

    return float(brentq(excess, -MAX_SHIFT, MAX_SHIFT)) if excess(-MAX_SHIFT) < 0 < excess(MAX_SHIFT) else -MAX_SHIFT


def estimate(grid: np.ndarray, matrices: np.ndarray, replicates: Replicates, weights: np.ndarray) -> NoiseEstimate:
    """Bands around the weighted mean Q of annotators; error rates count each annotator's labels under their own Q."""
    mean = (weights[:, None, None, None] * matrices).sum(0)
    means = (weights[:, None, None, None] * replicates.matrices).sum(1)
    band = make_band(mean, means)
    class_rate, class_rates = _class_rates(mean), _class_rates(means)
    class_band = _class_rate_band(band)
    rate, rates = _error_rate(matrices, replicates)
    rate_band = make_band(rate, rates)
    total, total_lower, total_upper = share_wrong(matrices, replicates)
    return NoiseEstimate(
        clock=grid,
        mean=mean,
        lower=band.lower,
        upper=band.upper,
        simultaneous_lower=band.simultaneous_lower,
        simultaneous_upper=band.simultaneous_upper,
        class_rate=class_rate,
        class_rate_lower=class_band.lower,
        class_rate_upper=class_band.upper,
        class_rate_simultaneous_lower=class_band.simultaneous_lower,
        class_rate_simultaneous_upper=class_band.simultaneous_upper,
        rate=rate,
        rate_lower=rate_band.lower,
        rate_upper=rate_band.upper,
        rate_simultaneous_lower=rate_band.simultaneous_lower,
        rate_simultaneous_upper=rate_band.simultaneous_upper,
        total=total,
        total_lower=total_lower,
        total_upper=total_upper,
        labels=replicates.totals[0].sum(0),
        change=find_change(grid, rate, rates),
        class_change=tuple(
            find_change(grid, class_rate[:, i], class_rates[..., i]) for i in range(class_rate.shape[1])
        ),
    )


def _error_rate(matrices: np.ndarray, replicates: Replicates) -> tuple[np.ndarray, np.ndarray]:
    """P(recorded label is wrong) over the clock: (points,) of the estimate, (1 + replicates, points)."""
    totals = _join_annotators(replicates.totals)  # (1 + replicates, points, annotators * classes)
    wrong = _join_annotators(_class_rates(matrices)[None])[0]
    wrongs = _join_annotators(_class_rates(replicates.matrices))
    shares = totals / totals.sum(-1, keepdims=True).clip(1e-12)
    return (shares[0] * wrong).sum(-1), (shares * wrongs).sum(-1)


def share_wrong(matrices: np.ndarray, replicates: Replicates) -> tuple[float, float, float]:
    """The share of all recorded labels that are wrong, with a 95 % interval."""
    totals = _join_annotators(replicates.totals)  # (1 + replicates, points, annotators * classes)
    wrong = _join_annotators(_class_rates(matrices)[None])[0]
    wrongs = _join_annotators(_class_rates(replicates.matrices))
    total = _total(wrong, totals[0])
    lower, upper = make_band(total, _total(wrongs, totals))[:2]
    return float(total), float(lower), float(upper)


def make_band(mean: np.ndarray, replicates: np.ndarray) -> Band:
    """Bands around a curve (points, ...) from (1 + replicates, points, ...), of which the first used all rows."""
    centre, logits = logit(mean), logit(replicates)
    undersmoothed, drawn = logits[0], logits[1:]
    deviation = drawn - drawn.mean(0)
    variance = deviation.var(0, ddof=1).clip(1e-12)
    studentised = np.abs(deviation / np.sqrt(variance))
    largest = studentised.max(1) if centre.ndim else studentised
    quantile = np.maximum(np.quantile(largest, CONFIDENCE, axis=0), NORMAL_QUANTILE)
    error = np.sqrt(variance + (BIAS_SHARE * (undersmoothed - centre)) ** 2)
    lower, upper = _ends(mean, NORMAL_QUANTILE * error, NORMAL_QUANTILE * RESOLUTION)
    simultaneous = _ends(mean, quantile * error, quantile * np.hypot(RESOLUTION, MAX_CURVE_BIAS))
    return Band(lower, upper, *simultaneous)


def _ends(
    mean: np.ndarray, logit_width: np.ndarray, probability_width: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of a band from its half width in logits and one in probabilities, added in quadrature."""
    below, above = mean - expit(logit(mean) - logit_width), expit(logit(mean) + logit_width) - mean
    lower, upper = mean - np.hypot(below, probability_width), mean + np.hypot(above, probability_width)
    return np.clip(lower, 0, 1), np.clip(upper, 0, 1)


def find_change(grid: np.ndarray, rate: np.ndarray, rates: np.ndarray) -> Change:
    """The range of a curve (points,), with a basic bootstrap interval from replicates (1 + replicates, points).

    Sampling noise widens the range of a curve. Replicates centred on the curve show by how much, and the basic (or
    reflected) interval subtracts it (Davison and Hinkley 1997, section 5.2). The upper end is at least that of the
    normal interval of the difference between the two moments.
    """
    worst, best, value = int(rate.argmax()), int(rate.argmin()), float(np.ptp(rate))
    deviation = rates[1:] - rates[1:].mean(0)
    low, high = np.quantile(np.ptp(rate + deviation, axis=1) - value, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    error = float((deviation[:, worst] - deviation[:, best]).std(ddof=1))
    lower, upper = min(value - high, value), max(value - low, value + NORMAL_QUANTILE * error)
    return Change(
        value=value,
        lower=max(float(lower), 0.0),
        upper=min(float(upper), 1.0),
        worst_at=float(grid[worst]),
        best_at=float(grid[best]),
        worst_rate=float(rate[worst]),
        best_rate=float(rate[best]),
    )


def logit(values: np.ndarray) -> np.ndarray:
    """Log-odds, finite."""
    kept = np.clip(values, PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR)
    return np.log(kept / (1 - kept))


def _class_rates(matrices: np.ndarray) -> np.ndarray:
    return 1 - np.diagonal(matrices, axis1=-2, axis2=-1)


def _class_rate_band(band: Band) -> Band:
    """Bands of 1 - Q_ii from those of Q_ii."""
    return Band(
        lower=_class_rates(band.upper),
        upper=_class_rates(band.lower),
        simultaneous_lower=_class_rates(band.simultaneous_upper),
        simultaneous_upper=_class_rates(band.simultaneous_lower),
    )


def _total(class_rate: np.ndarray, totals: np.ndarray) -> np.ndarray:
    return np.asarray((class_rate * totals).sum((-2, -1)) / totals.sum((-2, -1)).clip(1e-12))


def _join_annotators(values: np.ndarray) -> np.ndarray:
    """The classes of all annotators on one axis: (..., annotators, points, classes) → (..., points, both)."""
    return np.ascontiguousarray(moved := np.moveaxis(values, -3, -2)).reshape(*moved.shape[:-2], -1)
