"""The share of wrong labels as a review found it, with intervals that hold whatever the model got wrong."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._display import ShortRepr
from labeltide.data.clusters import encode_clusters
from labeltide.inference.difference_estimator import Estimate, Population, Reviewed, estimate_rate
from labeltide.inference.label_groups import label_groups
from labeltide.inference.rate_interval import EffectiveCount, clopper_pearson, effective_count
from labeltide.inference.review_sample import ReviewSample
from labeltide.inference.wrong_probabilities import broadcast, check_same_labels, wrong_probabilities

if TYPE_CHECKING:
    from labeltide.inference.audit import LabelAudit


@dataclass(frozen=True)
class CheckedRate:
    """The share of wrong labels among all labels or those of one group: the model's estimate and the checked one."""

    group: Hashable  # None for all labels
    rate: float  # NaN where nothing was reviewed
    lower: float
    upper: float
    model_rate: float
    model_weight: float  # between 0, the sample alone, and 1
    n_labels: int
    n_reviewed: int
    n_wrong: int

    @property
    def disagrees(self) -> bool:
        """Whether the model's estimate lies outside the checked interval."""
        return not self.lower <= self.model_rate <= self.upper


@dataclass(frozen=True, repr=False)
class CheckedRates(ShortRepr):
    """Checked shares of wrong labels: overall, and of each group under the name of its grouping."""

    overall: CheckedRate
    groups: dict[str, list[CheckedRate]]
    level: float


@dataclass(frozen=True)
class Review:
    """A reviewed sample together with what is known of all labels."""

    probabilities: np.ndarray  # (labels,), NaN where nothing was recorded
    reviewed: Reviewed
    items: np.ndarray  # (items,), places in `probabilities`
    clusters: np.ndarray | None  # (labels,)
    largest_weight: float

    def part(self, inside: np.ndarray) -> tuple[Reviewed, Population]:
        """The reviewed labels and the population of a group: bool array of shape (labels,)."""
        inside = inside & np.isfinite(self.probabilities)
        predicted = self.probabilities[inside]
        population = Population(int(inside.sum()), float(predicted.sum()))
        if self.clusters is not None:
            codes, n = self.clusters[inside], self.clusters.max() + 1
            population = population._replace(
                cluster_sizes=np.bincount(codes, minlength=n), cluster_predicted=np.bincount(codes, predicted, n)
            )
        return self.reviewed.take(inside[self.items]), population

    def count(self, part: Reviewed, population: Population, estimate: Estimate, level: float) -> EffectiveCount:
        """The effective count behind the estimate of a group."""
        n = len(part.wrong)
        worst = max(self.largest_weight * n / population.size, 1.0)
        return effective_count(estimate, n, int(part.wrong.sum()), worst, level)


def checked_rate(
    audit_or_probabilities: LabelAudit | ArrayLike,
    sample: ReviewSample,
    wrong: ArrayLike,
    *,
    by: Mapping[str, ArrayLike] | Iterable[str] | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
) -> CheckedRates:
    r"""The share of wrong labels from a reviewed probability sample, with the model as a helper.

    The difference estimator with a tuned weight, which is prediction-powered inference (`difference_estimator.py`). Its
    interval is that of Clopper and Pearson with an effective sample size (`rate_interval.py`). It needs the inclusion
    probabilities to be right. The model may be wrong in any way.

    Parameters
    ----------
    audit_or_probabilities : LabelAudit, or array of shape (labels,), (n, steps) or (n, steps, annotators)
        Probability that each label is wrong; NaN where nothing was recorded.
    sample : ReviewSample
        The labels that were drawn, as of `review_sample`. For a review that ended early: `sample.first(n)`.
    wrong : bool array of shape (items,)
        Whether the reviewer found each of them wrong.
    by : names among "class", "clock" and "annotator" with an audit, or a mapping from names to group values, optional
        Group values have the shape of the labels or that of their first axes. Intervals are for one group at a time.
    clusters : array of shape (rows,), optional
        Person, night or recording of each row. Without them the interval is for these labels. With them it is for the
        labels of more people like these: the variance is cluster-robust, with quantiles of Student's t.
    level : float, the confidence level

    Returns
    -------
    CheckedRates

    Examples
    --------
    >>> import labeltide as lt
    >>> import numpy as np
    >>> chances = np.random.default_rng(0).beta(1, 9, 2000)  # that each label is wrong, as of an audit
    >>> sample = lt.review_sample(chances, 200)
    >>> wrong = chances[sample.rows] > 0.2  # what the reviewer found
    >>> rate = lt.checked_rate(chances, sample, wrong).overall
    >>> rate.n_reviewed, rate.lower < rate.rate < rate.upper
    (200, True)
    """
    _validation.check_number("level", level, 0.5, 0.9999)
    review = read_review(audit_or_probabilities, sample, wrong, clusters)
    everything = np.ones(review.probabilities.size, dtype=bool)
    groups = {
        name: [
            _rate(review, values == value, level, value.item() if isinstance(value, np.generic) else value)
            for value in np.unique(values[np.isfinite(review.probabilities)])
        ]
        for name, values in label_groups(audit_or_probabilities, by, sample.shape).items()
    }
    return CheckedRates(_rate(review, everything, level), groups, level)


def read_review(
    source: LabelAudit | ArrayLike, sample: ReviewSample, wrong: ArrayLike, clusters: ArrayLike | None = None
) -> Review:
    """Check a reviewed sample and join it with the model's probabilities of all labels."""
    probabilities = wrong_probabilities(source)
    check_same_labels(sample.shape, probabilities.shape)
    predicted = probabilities.ravel()[sample.items]
    if np.isnan(predicted).any():
        raise ValueError("Every label of the sample must have a probability. Some are NaN: was the audit another one?")
    codes = None if clusters is None else _cluster_codes(clusters, probabilities)
    shares = np.bincount(sample.draws, minlength=len(sample.smallest)) / len(sample)
    reviewed = Reviewed(
        wrong=_check_wrong(wrong, len(sample)),
        predicted=predicted,
        inclusion=sample.inclusion,
        draws=sample.draws,
        shares=shares,
        clusters=None if codes is None else codes[sample.items],
    )
    largest = float(np.max(shares / sample.smallest + 1 - shares.cumsum()))
    return Review(probabilities.ravel(), reviewed, sample.items, codes, largest)


def _rate(review: Review, inside: np.ndarray, level: float, group: Hashable = None) -> CheckedRate:
    part, population = review.part(inside)
    n, found, model = len(part.wrong), int(part.wrong.sum()), population.predicted / population.size
    if n == 0:
        return CheckedRate(group, np.nan, 0.0, 1.0, model, 0.0, population.size, 0, 0)
    if n == population.size and review.clusters is None:  # nothing is left to estimate
        share = found / n
        return CheckedRate(group, share, share, share, model, 0.0, n, n, found)
    estimate = estimate_rate(part, population)
    lower, upper = clopper_pearson(review.count(part, population, estimate, level), level)
    rate = min(max(estimate.rate, 0.0), 1.0)
    return CheckedRate(group, rate, lower, upper, model, estimate.weight, population.size, n, found)


def _check_wrong(wrong: ArrayLike, n: int) -> np.ndarray:
    values = np.asarray(wrong)
    if values.shape != (n,) or not (values.dtype == bool or np.isin(values, (0, 1)).all()):
        raise ValueError(
            f"wrong must be {n} times True or False, one for each label of the sample. Got {values.dtype} of shape "
            f"{values.shape}. For a review that ended early pass sample.first(n)."
        )
    return values.astype(float)


def _cluster_codes(clusters: ArrayLike, probabilities: np.ndarray) -> np.ndarray:
    """The cluster of each label: int array of shape (labels,)."""
    codes = encode_clusters(clusters, probabilities.shape[0])
    labelled = np.isfinite(probabilities).reshape(len(codes), -1).any(1)
    if len(np.unique(codes[labelled])) < 2:
        raise ValueError("clusters must hold at least two with labels. Got one: leave clusters out.")
    return broadcast("clusters", codes, probabilities.shape).ravel()
