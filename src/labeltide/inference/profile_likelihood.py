r"""Profile likelihood interval of the share of wrong labels (Venzon and Moolgavkar 1988), robust to clusters.

The profile of the share S is the largest likelihood that the hidden Markov model reaches for each value of S, with A,
k, the bursts and the shape of Q free. Its maximisers are also those of :math:`\ell(\theta) + c \log S(\theta)` above
the estimate and of :math:`\ell(\theta) + c \log(1 - S(\theta))` below it. EM finds them with c labels added, wrong
ones or right ones, spread like those that are expected. The interval holds the shares with
:math:`2 (\hat\ell - \ell(S)) \le \max(t^2_{n-1}, t^2_{G-1} D)`, for n rows and G clusters. D is the variance of the
profile score, summed over each cluster, divided by its variance under the model (Kent 1982; Chandler and Bate 2007).
The quantile :math:`t_{G-1}` is for few clusters (Cameron, Gelbach and Miller 2008). The likelihood is penalised by the
prior of k (Cole, Chu and Greenland 2014).

A bootstrap interval of S is degenerate where no label is wrong. This one is not: of n labels that are surely right it
says 0 to about 2 / n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, TrainingEvidence
from labeltide.chain.em import fit_chains, power_log_prior, power_unit
from labeltide.chain.families import Family, pooled
from labeltide.chain.logit import Coefficients, Families
from labeltide.chain.passes import expect
from labeltide.chain.pooled import families_of
from labeltide.inference.averaged_quality import Weighted, false_alarm_curve, profile_weights
from labeltide.inference.budget import coarsen
from labeltide.inference.cluster_bootstrap import chosen_pooling, chosen_spline
from labeltide.inference.noise_estimate import interval_around
from labeltide.inference.warm_start import same_data

CONFIDENCE = 0.95
# docs/decisions/012-share-interval.md
RESOLUTION = 0.003  # by hand, in probabilities: three wrong labels in a thousand cannot be told from none
PROFILE_ITERATIONS = 40  # by hand: of EM at every point of the profile, from the fitted chain
# The signed root has a mean in small samples (Barndorff-Nielsen 1986): shares are estimated too low, where A, k and the
# shape of Q are fitted to the same labels. This is the mean, divided by the share.
ROOT_MEAN = 1.0  # by hand
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

    def around(self, share: float) -> tuple[float, float]:
        """Both ends of the interval around another estimate of the same share (`interval_around`)."""
        return interval_around(share, self.estimate, self.lower, self.upper)


def share_interval(training: TrainingEvidence) -> tuple[float, float]:
    """Both ends of the 95 % interval of the share of wrong labels."""
    return share_test(training)[:2]


def share_test(training: TrainingEvidence) -> ShareInterval:
    """Interval and test of the share of wrong labels from one profile likelihood: the interval inverts the test."""
    profile = profile_share(training)
    clusters = np.arange(len(profile.log_likelihood[0])) if training.clusters is None else training.clusters.numpy()
    mean = ROOT_MEAN * profile.estimate
    p_value = null_p_value(profile, clusters, max(RESOLUTION, stretch_share(training.data)), mean)
    critical = critical_root(profile, clusters, _count_labels(training.data) * profile.estimate)
    lower, upper = invert(profile, critical, mean)
    lower = lower if p_value < 1 - CONFIDENCE else 0.0
    # States are named so that recorded labels are mostly right. Beyond the share of wrong labels that are given at
    # random, a model in which classes have changed their names is as likely.
    upper = max(min(upper, 1 - 1 / training.data.n_classes), profile.estimate)
    return ShareInterval(lower, upper, p_value, _false_alarms(training, profile, critical), profile.estimate)


def _false_alarms(training: TrainingEvidence, profile: Profile, critical: float) -> np.ndarray:
    """`false_alarm_curve` over the profile."""
    assert profile.parameters is not None
    shares, roots = _increasing(profile.shares), profile.signed_roots()
    weights = profile_weights(shares, roots, critical, float(norm.ppf((1 + CONFIDENCE) / 2)))
    return false_alarm_curve(coarsen(training).data, Weighted(profile.parameters, weights, len(shares) // 2))


def stretch_share(data: ChainData) -> float:
    """The share of all labels in one stretch of equal labels of average length: one over the number of stretches.

    A network that takes one stretch for another class looks like as many wrong labels, and in small studies networks
    do. Wrong labels that come one by one make stretches short.
    """
    labels = data.labels[0].masked_fill(~data.mask[..., None], -1)  # (rows, steps, annotators)
    there = labels >= 0
    goes_on = there[:, 1:] & (labels[:, 1:] == labels[:, :-1])
    return 1 / max(int(there.sum()) - int(goes_on.sum()), 1)


def null_p_value(profile: Profile, clusters: np.ndarray, share: float, mean: float = 0.0) -> float:
    """p-value of the null that at most this share of labels is wrong; below 5 % where `invert` ends above it."""
    root = float(np.interp(share, _increasing(profile.shares), profile.signed_roots()))
    if root >= 0:
        return 1.0
    root -= mean
    names, cluster = np.unique(clusters, return_inverse=True)
    tails = [_two_sided(root, profile.log_likelihood.shape[1])]
    if len(names) > 1:
        tails.append(_two_sided(root / np.sqrt(max(dispersion(profile, cluster), 1e-12)), len(names)))
    return max(tails)


def _two_sided(root: float, units: int) -> float:
    """The two-sided tail of Student's t at a signed root, for a number of independent units."""
    return float(2 * student.sf(abs(root), max(units - 1, 1)))


def invert(profile: Profile, critical: float, mean: float = 0.0) -> tuple[float, float]:
    """The shares at which the signed root is the critical value away from its mean, by linear interpolation."""
    roots, centre = profile.signed_roots(), len(profile.shares) // 2
    shares, below, above = _increasing(profile.shares), min(mean - critical, 0.0), mean + critical
    lower = 0.0 if roots[0] > below else np.interp(below, roots[: centre + 1], shares[: centre + 1])
    upper = shares[-1] if roots[-1] < above else np.interp(above, roots[centre:], shares[centre:])
    return float(lower), float(upper)


def critical_root(profile: Profile, clusters: np.ndarray, expected_wrong: float) -> float:
    """The critical value of the signed root: by the model, or by the spread between clusters where that is larger.

    The model's is the t quantile for the number of rows in place of the normal one: A, k and the shape of Q are
    estimated too. With fewer expected wrong labels than clusters, differences between clusters cannot be estimated, and
    matter little compared with chance (docs/decisions/012-share-interval.md).
    """
    by_model = _quantile(profile.log_likelihood.shape[1])
    names, cluster = np.unique(clusters, return_inverse=True)
    if len(names) < 2 or expected_wrong < len(names):
        return by_model
    return max(by_model, _quantile(len(names)) * float(np.sqrt(dispersion(profile, cluster))))


def _quantile(units: int) -> float:
    """Half width of a 95 % interval in standard errors from a number of independent units (Student 1908)."""
    return float(student.ppf((1 + CONFIDENCE) / 2, max(units - 1, 1)))


def dispersion(profile: Profile, cluster: np.ndarray) -> float:
    """Variance of the profile score, summed over clusters, divided by its variance under the model.

    The score is a difference of log-likelihoods between two shares, one on either side of the estimate, whose signed
    roots are closest to one.
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
    share = float(_shares(expect(data, same_data(1, ones), start).counts, start)[0])
    added = torch.tensor(_added_labels(_count_labels(data), share))
    members = same_data(len(added), ones)
    free = families_of([_family(coarse)] * len(added))
    families = TiltedFamilies((), data.n_points, data.n_classes, free, added)
    if start.bursts is not None and not bool(start.bursts.any()):
        start = start._replace(bursts=None)  # the pass without bursts is faster
    fitted = fit_chains(
        data,
        members,
        families,
        start.take(torch.zeros(len(added), dtype=torch.int64)),
        iterations=PROFILE_ITERATIONS,
        learn_power=data.evidence is not None,
    )
    shares = _shares(expect(data, members, fitted.parameters).counts, fitted.parameters)
    log_likelihood = fitted.log_likelihood.double()
    if data.evidence is not None:  # the prior belongs to what EM maximises; rows share it
        unit = power_unit(data, members, fitted.parameters.matrices).double()
        log_likelihood += power_log_prior(fitted.parameters.power.double(), unit)[:, None] / log_likelihood.shape[1]
    return Profile(shares, log_likelihood.numpy(), fitted.parameters)


def _added_labels(labels: int, share: float) -> list[float]:
    """Added labels at each point of the profile: right ones as negative numbers, zero at the estimate, wrong ones.

    To move the share by as much, (1 - S) / S right labels are needed in place of one wrong label.
    """
    wrong = (1 + np.sqrt(labels * share * (1 - share))) * np.array(ADDED_LABELS)
    right = wrong * (1 - share) / max(share, 0.5 / labels)
    return [*-right[::-1], 0.0, *wrong]


@dataclass(frozen=True)
class TiltedFamilies(Families):
    """Families whose M-step counts some more labels: wrong ones where `added` is positive, right ones elsewhere.

    Both are spread over annotators, moments and classes like the labels that are expected to be wrong, or right.
    """

    free: Families
    added: Tensor  # (members,)

    def fit_start(self, matrices: Tensor) -> Coefficients:
        """Least-squares coefficients of the free families."""
        return self.free.fit_start(matrices)

    def noise(self, coefficients: Coefficients) -> Tensor:
        """Q on the grid."""
        return self.free.noise(coefficients)

    def step(self, coefficients: Coefficients, counts: Tensor) -> Coefficients:
        """One Newton step with the added labels."""
        expected = counts.sum(-1, keepdim=True) * self.noise(coefficients)
        right = torch.eye(self.n_classes, dtype=torch.bool, device=counts.device)
        weight = torch.where((self.added[:, None, None, None, None] > 0) ^ right, expected, torch.zeros_like(expected))
        weight = weight / weight.sum((1, 2, 3, 4), keepdim=True).clamp_min(1e-12)
        return self.free.step(coefficients, counts + self.added.abs().to(counts)[:, None, None, None, None] * weight)


def _family(coarse: TrainingEvidence) -> Family:
    """The chosen spline, with partial pooling where there are several annotators."""
    spline = chosen_spline(coarse.data.n_classes, coarse.grid, coarse.families, coarse.period)
    several = coarse.parameters.matrices.shape[1] > 1
    return pooled(spline, chosen_pooling(coarse.families)) if several else spline


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
