r"""Intervals of a small share from a weighted sample: Clopper and Pearson (1934) with an effective sample size.

As Korn and Graubard (1998): the effective size is :math:`\tilde n = \hat\theta (1 - \hat\theta) / \hat V`, corrected
for the degrees of freedom of :math:`\hat V`, and the interval is that of :math:`\tilde n \hat\theta` wrong among
:math:`\tilde n`. Where few wrong labels were found, :math:`\hat V` says little. The design effect
:math:`n / \tilde n` is then drawn towards the largest that the design allows, that of wrong labels which all have
the smallest inclusion probability. With no wrong label found, the upper limit therefore holds for every model.
"""

from __future__ import annotations

from typing import NamedTuple

from scipy import special, stats

from labeltide.inference.difference_estimator import Estimate

PRIOR_FOUND = 1.0  # by hand: wrong labels that the largest design effect counts for (docs/decisions/020-review.md)


class EffectiveCount(NamedTuple):
    """As many wrong labels of as many reviewed ones in a simple random sample that would say as much."""

    wrong: float
    size: float


def effective_count(estimate: Estimate, n: int, found: int, worst: float, level: float) -> EffectiveCount:
    r"""The effective count behind an estimate.

    The design effect of the estimate is :math:`n \hat V / (\theta (1 - \theta)) \, (t / z)^2` with quantiles of
    Student's t and the normal distribution. It is averaged with the largest design effect. The weights are
    the number of wrong labels found (of right ones, if fewer) and `PRIOR_FOUND`.

    Parameters
    ----------
    n, found : int, numbers of reviewed labels and of wrong ones among them
    worst : float
        The largest design effect: the largest weight divided by the mean weight.
    """
    share = min(max(estimate.rate, 0.0), 1.0)
    smoothed = (n * share + 0.5) / (n + 1)
    tail = 0.5 + level / 2
    quantiles = stats.t.ppf(tail, estimate.degrees) / stats.norm.ppf(tail)
    effect = estimate.variance * n / (smoothed * (1 - smoothed)) * quantiles**2
    informative = min(found, n - found)
    effect = (informative * effect + PRIOR_FOUND * worst) / (informative + PRIOR_FOUND)
    size = float(n / effect)
    return EffectiveCount(share * size, size)


def clopper_pearson(count: EffectiveCount, level: float) -> tuple[float, float]:
    """The exact interval of a binomial share (Clopper and Pearson 1934), for counts that need not be whole."""
    tail = (1 - level) / 2
    right = count.size - count.wrong
    lower = special.betaincinv(count.wrong, right + 1, tail) if count.wrong > 0 else 0.0
    return float(lower), upper_limit(count, 1 - tail)


def upper_limit(count: EffectiveCount, level: float) -> float:
    """The exact upper confidence limit of a binomial share."""
    right = count.size - count.wrong
    return float(special.betaincinv(count.wrong + 1, right, level)) if right > 0 else 1.0
