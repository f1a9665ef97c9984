r"""The share of wrong labels from a probability sample, with the model's probabilities as a helper.

The difference estimator of survey sampling (Särndal, Swensson and Wretman 1992) with a tuned weight :math:`\lambda`,
which is prediction-powered inference (Angelopoulos and others 2023; tuned: Angelopoulos, Duchi and Zrnic 2023):

.. math:: \hat\theta = \frac{1}{N} \sum_{i \in U} \lambda p_i
   + \frac{\sum_{i \in S} w_i (y_i - \lambda p_i)}{\sum_{i \in S} w_i}.

U are all N labels, S the reviewed ones, :math:`y_i` is one where a label is wrong, :math:`p_i` the model's probability
of that, and :math:`w_i = 1 / \pi_i`. Weighted sums are unbiased whatever the model says (Horvitz and Thompson 1952).
The sum of the weights takes the place of N, so that the shares of wrong and of right labels add up to one (Hájek 1971).
The model changes the width of the interval alone.

Later draws come from the labels that are left. Draw k estimates the total by what was found before plus the weighted
sum of its own labels (Des Raj 1956). Given the earlier draws that is unbiased. The errors of draws are therefore
uncorrelated, and a draw may depend on earlier answers (Zrnic and Candès 2024). The estimate is the mean of the draws,
weighted by their sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Reviewed:
    """Reviewed labels of one population or of one group of it.

    Attributes
    ----------
    wrong : float array of shape (items,), one where the label is wrong
    predicted : array of shape (items,)
        The model's probability that the label is wrong.
    inclusion : array of shape (items,)
        The probability with which the label was drawn, given the draws before.
    draws : int array of shape (items,), number of the draw
    shares : array of shape (draws,)
        The share of each draw in the estimate.
    clusters : int array of shape (items,), optional
    """

    wrong: np.ndarray
    predicted: np.ndarray
    inclusion: np.ndarray
    draws: np.ndarray
    shares: np.ndarray
    clusters: np.ndarray | None = None

    @property
    def weights(self) -> np.ndarray:
        """The weight of each item: its own draw's, and the share of all later draws, which count it as found."""
        later = 1 - self.shares.cumsum()
        return self.shares[self.draws] / self.inclusion + later[self.draws]

    def take(self, where: np.ndarray) -> Reviewed:
        """Some of the items."""
        return Reviewed(
            wrong=self.wrong[where],
            predicted=self.predicted[where],
            inclusion=self.inclusion[where],
            draws=self.draws[where],
            shares=self.shares,
            clusters=None if self.clusters is None else self.clusters[where],
        )


class Population(NamedTuple):
    """What is known of all labels, reviewed or not."""

    size: int
    predicted: float  # sum of the model's probabilities
    cluster_sizes: np.ndarray | None = None  # (clusters,)
    cluster_predicted: np.ndarray | None = None  # (clusters,)


class Estimate(NamedTuple):
    rate: float
    variance: float
    weight: float  # the tuned weight of the model, between 0 and 1
    degrees: float  # of freedom


def estimate_rate(reviewed: Reviewed, population: Population) -> Estimate:
    """The difference estimate of the share of wrong labels with its design-based or cluster-robust variance."""
    weights = reviewed.weights
    wrong, predicted = (float(np.average(v, weights=weights)) for v in (reviewed.wrong, reviewed.predicted))
    if population.cluster_sizes is None or np.count_nonzero(population.cluster_sizes) < 2:
        scores = (
            design_scores(reviewed, reviewed.wrong - wrong) / weights.sum(),
            design_scores(reviewed, reviewed.predicted - predicted) / weights.sum(),
        )
        degrees = max(len(weights) - 1.0, 1.0)
    else:
        scores = cluster_scores(reviewed, population)
        degrees = max(effective_clusters(population) - 1, 1.0)
    weight, variance = tune_weight(*scores, degrees)
    return Estimate(wrong + weight * (population.predicted / population.size - predicted), variance, weight, degrees)


def design_scores(reviewed: Reviewed, residuals: np.ndarray) -> np.ndarray:
    r"""Scores whose sum of squares estimates the variance of the weighted sum of residuals.

    :math:`\hat V = \frac{n}{n - 1} \sum_S (1 - \pi_i) (e_i / \pi_i)^2` for residuals whose weighted sum is zero: the
    approximation of Hájek (1964), which needs no joint inclusion probabilities. It holds for designs of high entropy,
    and randomised systematic sampling is near one. Where a stratified order matters, it is too large.
    """
    n = len(residuals)
    scale = np.sqrt((1 - reviewed.inclusion) * n / max(n - 1, 1))
    return reviewed.shares[reviewed.draws] * scale * residuals / reviewed.inclusion


def cluster_scores(reviewed: Reviewed, population: Population) -> tuple[np.ndarray, np.ndarray]:
    """Scores of whole clusters, of wrong labels and of the model: squares add up to a cluster-robust variance."""
    sizes, expected = population.cluster_sizes, population.cluster_predicted
    assert reviewed.clusters is not None
    assert sizes is not None
    assert expected is not None
    total = partial(np.bincount, reviewed.clusters, minlength=len(sizes))  # sums of weights by cluster
    counted = total(reviewed.weights)  # (clusters,)

    def centred(totals: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return (totals - totals.sum() * counts / counts.sum()) / counts.sum()

    wrong = centred(total(reviewed.weights * reviewed.wrong), counted)
    predicted = centred(total(reviewed.weights * reviewed.predicted), counted) - centred(expected, sizes)
    n_clusters = np.count_nonzero(sizes)
    scale = np.sqrt(n_clusters / (n_clusters - 1))
    return scale * wrong, scale * predicted


def effective_clusters(population: Population) -> float:
    """The number of equally large clusters that would say as much (Carter, Schnepel and Steigerwald 2017)."""
    assert population.cluster_sizes is not None
    sizes = population.cluster_sizes.astype(float)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def tune_weight(wrong: np.ndarray, predicted: np.ndarray, degrees: float) -> tuple[float, float]:
    r"""The weight of the model between 0 and 1, and the variance with it.

    The variance is :math:`\lVert a - \lambda b \rVert^2` with scores a of the wrong labels and b of the model. Least
    squares minimise it. The weight is shrunk by the factor 1 - 1/F with F its own F statistic, and is 0 for F < 1. One
    degree of freedom is paid for it. A weight is used only where it makes the variance smaller.
    """
    plain = float(wrong @ wrong)
    information = float(predicted @ predicted)
    if information <= 1e-24 or plain == 0 or degrees < 2:
        return 0.0, plain
    best = float(wrong @ predicted) / information
    noise = float(np.sum((wrong - best * predicted) ** 2)) / (degrees - 1)
    shrunk = best * max(0.0, 1 - noise / (best**2 * information)) if best > 0 else 0.0
    weight = min(shrunk, 1.0)
    residual = wrong - weight * predicted
    variance = float(residual @ residual) * degrees / (degrees - 1)
    return (weight, variance) if variance < plain else (0.0, plain)
