r"""Pointwise and simultaneous confidence bands of Q(t) and of error rates, from a cluster bootstrap.

On the logit scale half widths are :math:`c\, s(t)`. Pointwise, c is the normal quantile (Efron and Tibshirani 1993).
Simultaneous bands take the 95 % quantile over replicates of the maximum studentised deviation (Ruppert, Wand and
Carroll 2003, section 6.5). The variance :math:`s^2` includes the square of an estimated smoothing bias (compare Nychka
1988). On the scale of probabilities `RESOLUTION` is added in quadrature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor

from labeltide.chain.em import fit_chains, power_log_prior, power_unit
from labeltide.chain.families import Coefficients, Families, Family, families_of
from labeltide.chain.passes import ChainData, ChainParameters, TrainingEvidence, expect, same_data
from labeltide.inference.audit import false_alarm_curve, profile_weights
from labeltide.inference.bootstrap import (
    BAND_REPLICATES,
    Replicates,
    bootstrap_noise,
    chosen_family,
    coarsen,
    pooled_by,
)
from labeltide.inference.conclusion import SURE
from labeltide.inference.display import NoiseDisplay
from labeltide.inference.review import EffectiveCount, clopper_pearson

NORMAL_QUANTILE = 1.959964  # half width of a 95 % interval, in standard deviations
BIAS_SHARE = 0.5  # by hand: of the gap between undersmoothed and chosen estimate, counted as smoothing bias
MAX_CURVE_BIAS = 0.01  # the largest smoothing bias along a curve, in probabilities (`bench/benchmarks/inference.py`)
OTHERS_WEIGHT = 1e-6  # of the other annotators' labels among those of one annotator
MAX_SHIFT = 30.0  # of a logit
PROBABILITY_FLOOR = 1e-4  # probabilities are kept this far from 0 and 1 before their logit is taken


class Band(NamedTuple):
    """Both ends of pointwise and of simultaneous bands."""

    lower: np.ndarray
    upper: np.ndarray
    simultaneous_lower: np.ndarray
    simultaneous_upper: np.ndarray


def estimate_annotators(
    training: TrainingEvidence,
    tested: ShareInterval | None = None,
    *,
    n_replicates: int = BAND_REPLICATES,
    seed: int = 0,
) -> tuple[NoiseEstimate, tuple[NoiseEstimate, ...]]:
    """Q with bands from a cluster bootstrap: of all annotators together, and of each; of one annotator the common one.

    The networks' evidence is held fixed. Replicates are undersmoothed and pooled less than the estimate.
    """
    matrices = training.parameters.matrices[0].double().numpy()  # (annotators or 1, points, classes, classes)
    replicates = bootstrap_noise(training, n_replicates, seed)
    common = estimate(training.grid, matrices, replicates, training.weights())
    common = _with_profile(common, tested or share_test(training))
    if len(matrices) == 1:
        return common, (common,)
    everyone = OTHERS_WEIGHT * replicates.totals.sum(1, keepdims=True)  # class shares where an annotator gave no label
    per_annotator = []
    for annotator in range(len(matrices)):
        part = slice(annotator, annotator + 1)
        drawn = Replicates(replicates.matrices[:, part], replicates.totals[:, part] + everyone)
        per_annotator.append(estimate(training.grid, matrices[part], drawn, np.ones(1)))
    return common, tuple(per_annotator)


def _with_profile(estimate: NoiseEstimate, tested: ShareInterval) -> NoiseEstimate:
    """The same estimate with the profile likelihood interval of the total share; bands are at least as wide."""
    ends = interval_around(estimate.total, tested.estimate, tested.lower, tested.upper)
    weights = estimate.labels.sum(-1) / estimate.labels.sum()

    def excess(shift: float, share: float) -> float:
        return float((weights * expit(logit(estimate.rate) + shift)).sum() - share)

    down, up = (  # shifts of all logits of the error rate at which its mean over the labels is either end
        float(brentq(excess, -MAX_SHIFT, MAX_SHIFT, (end,)))
        if excess(-MAX_SHIFT, end) < 0 < excess(MAX_SHIFT, end)
        else -MAX_SHIFT
        for end in ends
    )
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


def estimate(grid: np.ndarray, matrices: np.ndarray, replicates: Replicates, weights: np.ndarray) -> NoiseEstimate:
    """Bands around the weighted mean Q of annotators; error rates count each annotator's labels under their own Q."""
    mean = (weights[:, None, None, None] * matrices).sum(0)
    means = (weights[:, None, None, None] * replicates.matrices).sum(1)
    band = make_band(mean, means)
    class_rate, class_rates = _class_rates(mean), _class_rates(means)
    totals, wrong, wrongs = _labels_and_rates(matrices, replicates)
    shares = totals / totals.sum(-1, keepdims=True).clip(1e-12)
    rate, rates = (shares[0] * wrong).sum(-1), (shares * wrongs).sum(-1)
    total, total_lower, total_upper = share_wrong(matrices, replicates)
    of_class = Band(*(_class_rates(end) for end in (band[1], band[0], band[3], band[2])))  # 1 - Q_ii swaps the ends
    bands = {"": band, "class_rate_": of_class, "rate_": make_band(rate, rates)}
    ends = {f"{name}{end}": getattr(of_curve, end) for name, of_curve in bands.items() for end in Band._fields}
    return NoiseEstimate(
        clock=grid,
        mean=mean,
        class_rate=class_rate,
        rate=rate,
        total=total,
        total_lower=total_lower,
        total_upper=total_upper,
        labels=replicates.totals[0].sum(0),
        change=find_change(grid, rate, rates),
        class_change=tuple(
            find_change(grid, class_rate[:, i], class_rates[..., i]) for i in range(class_rate.shape[1])
        ),
        **ends,
    )


def share_wrong(matrices: np.ndarray, replicates: Replicates) -> tuple[float, float, float]:
    """The share of all recorded labels that are wrong, with a 95 % interval."""
    totals, wrong, wrongs = _labels_and_rates(matrices, replicates)
    n_labels = totals.sum((-2, -1)).clip(1e-12)
    total = np.asarray((wrong * totals[0]).sum((-2, -1)) / n_labels[0])
    lower, upper = make_band(total, (wrongs * totals).sum((-2, -1)) / n_labels)[:2]
    return float(total), float(lower), float(upper)


def _labels_and_rates(matrices: np.ndarray, replicates: Replicates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expected labels of true classes, error rates of the estimate and of replicates: (..., annotators * classes)."""

    def join(values: np.ndarray) -> np.ndarray:
        moved = np.moveaxis(values, -3, -2)
        return np.ascontiguousarray(moved).reshape(*moved.shape[:-2], -1)

    return join(replicates.totals), join(_class_rates(matrices)[None])[0], join(_class_rates(replicates.matrices))


def make_band(mean: np.ndarray, replicates: np.ndarray) -> Band:
    """Bands around a curve (points, ...) from (1 + replicates, points, ...); the first used all rows."""
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

    Sampling noise widens the range of a curve; the basic interval subtracts that (Davison and Hinkley 1997, section
    5.2). The upper end is at least that of the normal interval of the difference between the two moments.
    """
    worst, best, value = int(rate.argmax()), int(rate.argmin()), float(np.ptp(rate))
    deviation = rates[1:] - rates[1:].mean(0)
    low, high = np.quantile(np.ptp(rate + deviation, axis=1) - value, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    error = float((deviation[:, worst] - deviation[:, best]).std(ddof=1))
    lower, upper = min(value - high, value), max(value - low, value + NORMAL_QUANTILE * error)
    ends = max(float(lower), 0.0), min(float(upper), 1.0)
    return Change(value, *ends, float(grid[worst]), float(grid[best]), float(rate[worst]), float(rate[best]))


def logit(values: np.ndarray) -> np.ndarray:
    """Log-odds, finite."""
    kept = np.clip(values, PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR)
    return np.log(kept / (1 - kept))


def _class_rates(matrices: np.ndarray) -> np.ndarray:
    return 1 - np.diagonal(matrices, axis1=-2, axis2=-1)


# Estimated noise over the clock, as a result that shows itself.


def interval_around(share: float, estimate: float, lower: float, upper: float) -> tuple[float, float]:
    """The interval of one estimate moved to another estimate of the same share; its lower end is zero where it was."""
    below = max(estimate - lower, 0.0) * min(1.0, share / max(estimate, 1e-12))
    return (max(share - below, 0.0) if lower > 0 else 0.0), min(share + max(upper - estimate, 0.0), 1.0)


class Change(NamedTuple):
    """How much an error rate changes over the clock: largest minus smallest, with a 95 % interval."""

    value: float
    lower: float
    upper: float
    worst_at: float
    best_at: float
    worst_rate: float
    best_rate: float


@dataclass(frozen=True, repr=False)
class NoiseEstimate(NoiseDisplay):
    """Q over the clock with 95 % confidence bands.

    Pointwise bands cover the truth at each moment, simultaneous bands the whole curve of an entry. The estimate is that
    of one annotator, or the common one: the mean over annotators, weighted by their numbers of labels.

    Attributes
    ----------
    clock : array of shape (points,)
    mean, lower, upper, simultaneous_lower, simultaneous_upper : arrays of shape (points, classes, classes)
        Q, the probability of each recorded label given the true one.
    class_rate, and the same four bands of it : arrays of shape (points, classes)
        Error rate of each true class: P(recorded wrong | true class).
    rate, and the same four bands of it : arrays of shape (points,)
        Error rate: P(recorded label is wrong).
    total, total_lower, total_upper, total_p : float
        The share of all recorded labels that are wrong: profile likelihood interval and test (annotators: bootstrap).
    false_alarms : array, optional
        Expected shares of false alarms among flags, Q and k not taken as known (`inference/audit.py`).
    labels : array of shape (points, classes)
        The expected number of recorded labels of each true class, averaged over neighbouring moments.
    change, class_change : Change, and one for each class
        How much the error rates change over the clock.

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9)
    >>> clf = lt.TideClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> estimate = clf.noise_estimate_
    >>> estimate.mean.shape
    (10, 2, 2)
    >>> bool((estimate.lower <= estimate.mean).all())
    True
    """

    clock: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    simultaneous_lower: np.ndarray
    simultaneous_upper: np.ndarray
    class_rate: np.ndarray
    class_rate_lower: np.ndarray
    class_rate_upper: np.ndarray
    class_rate_simultaneous_lower: np.ndarray
    class_rate_simultaneous_upper: np.ndarray
    rate: np.ndarray
    rate_lower: np.ndarray
    rate_upper: np.ndarray
    rate_simultaneous_lower: np.ndarray
    rate_simultaneous_upper: np.ndarray
    total: float
    total_lower: float
    total_upper: float
    labels: np.ndarray
    change: Change
    class_change: tuple[Change, ...]
    total_p: float = np.nan
    false_alarms: np.ndarray | None = None


# Profile likelihood interval of the share of wrong labels (Venzon and Moolgavkar 1988), robust to clusters.
#
# The profile of the share S is the largest likelihood that the hidden Markov model reaches for each value of S. Its
# maximisers are also those of :math:`\ell(\theta) + c \log S(\theta)` above the estimate and of :math:`\ell(\theta) + c
# \log(1 - S(\theta))` below it: EM with c labels added, wrong or right ones. The interval holds the shares with
# :math:`2 (\hat\ell - \ell(S)) \le \max(t^2_{n-1}, t^2_{G-1} D)`, for n rows and G clusters, with the dispersion D of
# the profile score over clusters (Kent 1982; Chandler and Bate 2007; few clusters: Cameron, Gelbach and Miller 2008).
# Where wrong labels are shown, the ends come from the evidence of networks that read backwards: evidence that has also
# seen earlier features counts them twice (docs/decisions/012-share-interval.md).

CONFIDENCE = 0.95
# docs/decisions/012-share-interval.md
RESOLUTION = 0.003  # by hand, in probabilities: three wrong labels in a thousand cannot be told from none
PROFILE_ITERATIONS = 40  # by hand: of EM at every point of the profile, from the fitted chain
ROOT_MEAN = 1.0  # by hand: mean of the signed root in small samples (Barndorff-Nielsen 1986), divided by the share
# Added labels on either side, in units of one plus the binomial standard deviation of the number of wrong labels.
ADDED_LABELS = (0.15, 0.4, 0.8, 1.5, 2.5, 5.0, 12.0)  # by hand


class Profile(NamedTuple):
    """Points of a profile likelihood in order of the share; the estimate is in the middle."""

    shares: np.ndarray  # (points,)
    log_likelihood: np.ndarray  # (points, rows)
    parameters: ChainParameters | None = None  # the chain of each point

    @property
    def estimate(self) -> float:
        """The share at the maximum of the likelihood."""
        return float(self.shares[len(self.shares) // 2])

    def signed_roots(self) -> np.ndarray:
        """Signed root of the likelihood ratio, which grows with the share: (points,)."""
        totals = self.log_likelihood.sum(1)
        centre = len(totals) // 2
        roots = np.sqrt(2 * (totals[centre] - totals).clip(0))
        roots[:centre] *= -1
        return _increasing(roots)


class ShareInterval(NamedTuple):
    """The 95 % interval of the share of wrong labels, and the p-value of the null that none is wrong."""

    lower: float  # zero if and only if the p-value is at least 5 %
    upper: float
    p_value: float
    false_alarms: np.ndarray  # see `NoiseEstimate`
    estimate: float  # the share at which the likelihood is largest


def share_test(training: TrainingEvidence, profile: Profile | None = None) -> ShareInterval:
    """Interval and test of the share of wrong labels from one profile likelihood: the interval inverts the test."""
    profile = profile or profile_share(training)
    clusters = np.arange(len(profile.log_likelihood[0])) if training.clusters is None else training.clusters.numpy()
    mean = ROOT_MEAN * profile.estimate
    p_value = null_p_value(profile, clusters, max(RESOLUTION, stretch_share(training.data)), mean)
    n_labels = _count_labels(training.data)
    critical = critical_root(profile, clusters, n_labels * profile.estimate)
    lower, upper = invert(profile, critical, mean)
    is_shown = p_value < 1 - CONFIDENCE
    if is_shown and training.data.future_evidence is not None:
        data = training.data.with_evidence(training.data.future_evidence, training.data.trained_with)
        kinds, members = families_of([_family(training)]), same_data(torch.ones(1, data.labels.shape[1]))
        fitted = fit_chains(data, members, kinds, training.parameters, iterations=PROFILE_ITERATIONS, learn_power=True)
        ahead = profile_share(training._replace(data=data, parameters=fitted.parameters))
        root = critical_root(ahead, clusters, n_labels * ahead.estimate)
        lowest, upper = invert(ahead, root, ROOT_MEAN * ahead.estimate)
        lower = lowest or lower
    lower = lower if is_shown else 0.0
    # Above the share of labels that are wrong if given at random, a model with exchanged class names is as likely.
    upper = max(min(upper, 1 - 1 / training.data.n_classes), profile.estimate)
    assert profile.parameters is not None
    shares, roots = _increasing(profile.shares), profile.signed_roots()
    weights = profile_weights(shares, roots, critical, float(norm.ppf((1 + CONFIDENCE) / 2)))
    false_alarms = false_alarm_curve(coarsen(training).data, profile.parameters, weights, len(shares) // 2)
    return ShareInterval(lower, upper, p_value, false_alarms, profile.estimate)


def stretch_share(data: ChainData) -> float:
    """One over the number of stretches of equal labels: a network that mistakes one looks like as many wrong labels."""
    labels = data.labels[0].masked_fill(~data.mask[..., None], -1)  # (rows, steps, annotators)
    there = labels >= 0
    goes_on = there[:, 1:] & (labels[:, 1:] == labels[:, :-1])
    return 1 / max(int(there.sum()) - int(goes_on.sum()), 1)


def null_p_value(profile: Profile, clusters: np.ndarray, share: float, mean: float = 0.0) -> float:
    """p-value of the null that at most this share of labels is wrong; below 5 % where `invert` ends above it."""
    root = float(np.interp(share, _increasing(profile.shares), profile.signed_roots()))
    if root >= 0:
        return 1.0
    root = abs(root - mean)
    names, cluster = np.unique(clusters, return_inverse=True)
    tails = [2 * student.sf(root, max(profile.log_likelihood.shape[1] - 1, 1))]
    if len(names) > 1:
        tails.append(2 * student.sf(root / np.sqrt(max(dispersion(profile, cluster), 1e-12)), len(names) - 1))
    return float(max(tails))


def invert(profile: Profile, critical: float, mean: float = 0.0) -> tuple[float, float]:
    """The shares at which the signed root is the critical value away from its mean, by linear interpolation."""
    roots, centre = profile.signed_roots(), len(profile.shares) // 2
    shares, below, above = _increasing(profile.shares), min(mean - critical, 0.0), mean + critical
    lower = 0.0 if roots[0] > below else np.interp(below, roots[: centre + 1], shares[: centre + 1])
    upper = shares[-1] if roots[-1] < above else np.interp(above, roots[centre:], shares[centre:])
    return float(lower), float(upper)


def critical_root(profile: Profile, clusters: np.ndarray, expected_wrong: float) -> float:
    """The critical value of the signed root: by the model, or by the spread between clusters where that is larger.

    With fewer expected wrong labels than clusters, differences between clusters cannot be estimated.
    """
    tail = (1 + CONFIDENCE) / 2
    by_model = float(student.ppf(tail, max(profile.log_likelihood.shape[1] - 1, 1)))
    names, cluster = np.unique(clusters, return_inverse=True)
    if len(names) < 2 or expected_wrong < len(names):
        return by_model
    return max(by_model, float(student.ppf(tail, len(names) - 1)) * float(np.sqrt(dispersion(profile, cluster))))


def dispersion(profile: Profile, cluster: np.ndarray) -> float:
    """Variance of the profile score, summed over clusters, divided by its variance under the model.

    The score is the difference of log-likelihoods of the shares on either side whose signed roots are closest to one.
    """
    roots, centre = profile.signed_roots(), len(profile.shares) // 2
    low = int(np.abs(roots[: centre + 1] + 1).argmin())
    high = centre + int(np.abs(roots[centre:] - 1).argmin())
    distance = roots[high] - roots[low]
    if distance <= 0:
        return 1.0
    scores = np.bincount(cluster, profile.log_likelihood[high] - profile.log_likelihood[low])
    return float(len(scores) * scores.var(ddof=1) / distance**2)


def profile_share(training: TrainingEvidence) -> Profile:
    """The profile likelihood of the share of wrong labels, all its points as one fleet of chains."""
    coarse = coarsen(training)
    data, start = coarse.data, coarse.parameters
    ones = torch.ones(1, data.labels.shape[1])
    share = float(_shares(expect(data, same_data(ones), start).counts, start)[0])
    # Added labels at each point: right ones as negative numbers, zero at the estimate, wrong ones. To move the share by
    # as much, (1 - S) / S right labels are needed in place of one wrong label.
    n_labels = _count_labels(data)
    wrong = (1 + np.sqrt(n_labels * share * (1 - share))) * np.array(ADDED_LABELS)
    right = wrong * (1 - share) / max(share, 0.5 / n_labels)
    added = torch.tensor([*-right[::-1], 0.0, *wrong])
    members = same_data(ones.expand(len(added), -1))
    free = families_of([_family(coarse)] * len(added))
    families = TiltedFamilies(free.groups, data.n_points, data.n_classes, added)
    if start.bursts is not None and not bool(start.bursts.any()):
        start = start._replace(bursts=None)  # the pass without bursts is faster
    starts, learn = start.take(torch.zeros(len(added), dtype=torch.int64)), data.evidence is not None
    fitted = fit_chains(data, members, families, starts, iterations=PROFILE_ITERATIONS, learn_power=learn)
    shares = _shares(expect(data, members, fitted.parameters).counts, fitted.parameters)
    log_likelihood = fitted.log_likelihood.double()
    if data.evidence is not None:  # the prior belongs to what EM maximises; rows share it
        unit = power_unit(data, members, fitted.parameters.matrices).double()
        log_likelihood += power_log_prior(fitted.parameters.power.double(), unit)[:, None] / log_likelihood.shape[1]
    return Profile(shares, log_likelihood.numpy(), fitted.parameters)


@dataclass(frozen=True)
class TiltedFamilies(Families):
    """Families whose M-step counts some more labels, spread like those that are expected to be wrong, or right."""

    added: Tensor  # (members,), wrong ones where positive, right ones elsewhere

    def step(self, coefficients: Coefficients, counts: Tensor) -> Coefficients:
        expected = counts.sum(-1, keepdim=True) * self.noise(coefficients)
        right = torch.eye(self.n_classes, dtype=torch.bool, device=counts.device)
        weight = torch.where((self.added[:, None, None, None, None] > 0) ^ right, expected, torch.zeros_like(expected))
        weight = weight / weight.sum((1, 2, 3, 4), keepdim=True).clamp_min(1e-12)
        return super().step(coefficients, counts + self.added.abs().to(counts)[:, None, None, None, None] * weight)


def _family(coarse: TrainingEvidence) -> Family:
    return pooled_by(coarse, chosen_family(coarse.data.n_classes, coarse.grid, coarse.families, coarse.period))


def _count_labels(data: ChainData) -> int:
    return int(((data.labels[0] >= 0) & data.mask[..., None]).sum())


def _increasing(values: np.ndarray) -> np.ndarray:
    """Values made monotone on either side of the middle one; EM that has not converged can lower a point."""
    centre = len(values) // 2
    below = np.minimum.accumulate(values[: centre + 1][::-1])[::-1]
    return np.concatenate([below[:-1], np.maximum.accumulate(values[centre:])])


def _shares(counts: Tensor, parameters: ChainParameters) -> np.ndarray:
    """The share of wrong labels of each member: error rates of Q times the expected labels of each true class."""
    totals = counts.sum(-1).double()  # (members, annotators, points, classes)
    wrong = 1 - parameters.matrices.double().diagonal(dim1=-2, dim2=-1)
    shares = (totals * wrong).sum((1, 2, 3)) / totals.sum((1, 2, 3)).clamp_min(1e-12)
    return shares.numpy()


# Intervals that exclude zero if and only if the test of the same quantity rejects zero at 5 %.
#
# Where a test does not reject, the interval is widened to zero. Where it does and the bootstrap's interval still holds
# zero, the lower end is the test-based limit :math:`v (1 - z_{.975} / z_p)` of the estimate v (Miettinen 1976).


def presence_p(first: float, second: float, training: TrainingEvidence) -> float:
    """The p-value of the null that no label is wrong: zero where annotators contradict each other.

    Else the larger of two, as both tests must reject (Berger 1982); NaN counts as not made.
    """
    return 0.0 if least_share(training.data.labels[0].numpy()) > 0 else float(np.fmax(first, second))


def least_share(labels: np.ndarray) -> float:
    """The share of labels that are wrong at least, if every step has one true label, from codes (..., annotators).

    It is the lower limit of Clopper and Pearson (1934).
    """
    recorded = int((labels >= 0).sum())
    votes = np.stack([(labels == code).sum(-1) for code in range(int(labels.max(initial=0)) + 1)])
    return clopper_pearson(EffectiveCount(recorded - int(votes.max(0).sum()), recorded), 1 - SURE)[0]


def agree_change(change: Change, p_value: float) -> Change:
    """The same change with a lower end that agrees with its test; an unknown p-value rejects nothing."""
    if math.isnan(p_value) or p_value >= SURE:
        return change._replace(lower=0.0)
    if change.lower > 0:
        return change
    limit = 1 - norm.isf(SURE / 2) / norm.isf(p_value / 2)
    return change._replace(lower=max(change.value, 0.0) * float(limit))


def agree_share(estimate: NoiseEstimate, p_value: float, training: TrainingEvidence) -> NoiseEstimate:
    """The same estimate; its interval of the total share begins at zero where the test does not reject that.

    Where annotators differ it begins at `least_share` or above.
    """
    lower = max(estimate.total_lower if p_value < SURE else 0.0, least_share(training.data.labels[0].numpy()))
    return replace(estimate, total_lower=min(lower, estimate.total))
