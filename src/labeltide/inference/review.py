"""Review of labels: probability samples, and design-based estimates of the share of wrong labels from them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from labeltide import _validation
from labeltide._display import ShortRepr
from labeltide.data.clusters import encode_clusters

if TYPE_CHECKING:
    from labeltide.inference.audit import LabelAudit


GROUPINGS = ("class", "clock", "annotator")  # that an audit knows
FLOOR = 0.8  # by hand: a model that is wrong then widens intervals by at most 12 % (docs/decisions/020-review.md)


@dataclass(frozen=True, repr=False)
class ReviewSample(ShortRepr):
    """Labels drawn for review one by one, in their order.

    Attributes
    ----------
    items : int array of shape (items,)
        Indices of the labels in the flattened array of probabilities.
    chances : array of shape (items,)
        Probability with which each was drawn, given all items before it.
    draws : int array of shape (items,)
        Number of the call of `review_sample`, from 0.
    least : array of shape (draws,)
        The smallest probability of any label at the first item of each draw.
    shape : tuple of int, shape of the array of probabilities
    """

    items: np.ndarray
    chances: np.ndarray
    draws: np.ndarray
    least: np.ndarray
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def index(self) -> tuple[np.ndarray, ...]:
        """The index of the drawn labels in any array of that shape: `labels[sample.index]`."""
        return np.unravel_index(self.items, self.shape)

    @property
    def rows(self) -> np.ndarray:
        return self.index[0]

    @property
    def steps(self) -> np.ndarray | None:
        return self.index[1] if len(self.shape) > 1 else None

    @property
    def annotators(self) -> np.ndarray | None:
        return self.index[2] if len(self.shape) > 2 else None

    @cached_property
    def left(self) -> np.ndarray:
        """The share of a draw's total that is left before each item: shape (items,)."""
        parts = [self.chances[self.draws == draw] for draw in range(len(self.least))]
        return np.concatenate([np.cumprod(np.append(1.0, 1 - part[:-1])) for part in parts])

    @cached_property
    def inclusion(self) -> np.ndarray:
        r"""Probability of being in the draw at all, given the draws before: shape (items,).

        :math:`1 - \prod_t (1 - q_{ti})` with the probability :math:`q_{ti}` of label i at item t, for the items that
        were drawn. With equal probabilities that is exact.
        """
        return self._included(self.chances * self.left, self.draws)

    @cached_property
    def smallest(self) -> np.ndarray:
        """The smallest inclusion probability of any label in each draw: shape (draws,)."""
        return self._included(self.least, np.arange(len(self.least)))

    @cached_property
    def shares(self) -> np.ndarray:
        """The share of each draw in the estimate: shape (draws,)."""
        return np.bincount(self.draws, minlength=len(self.least)) / len(self)

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of each item: its own draw's, and the share of all later draws, which count it as found."""
        return self.shares[self.draws] / self.inclusion + (1 - self.shares.cumsum())[self.draws]

    def _included(self, sizes: np.ndarray, draws: np.ndarray) -> np.ndarray:
        found = np.empty(len(sizes))
        for draw in range(len(self.least)):
            left, which = self.left[self.draws == draw], np.flatnonzero(draws == draw)
            for part in np.array_split(which, 1 + len(which) // 1000):
                missed = 1 - np.minimum(sizes[part, None] / left, 1.0)
                found[part] = 1 - missed.prod(axis=1)
        return found

    def first(self, n: int) -> ReviewSample:
        """The first n items, for a review that ended early."""
        _validation.check_number("n", n, 1, len(self), whole=True)
        items, chances, draws = self.items[:n], self.chances[:n], self.draws[:n]
        return ReviewSample(items, chances, draws, self.least[: draws[-1] + 1], self.shape)


def review_sample(
    audit_or_probabilities: LabelAudit | ArrayLike,
    n: int,
    *,
    earlier: ReviewSample | None = None,
    floor: float = FLOOR,
    random_state: int | np.random.Generator | None = 0,
) -> ReviewSample:
    r"""Draw labels for review with known probabilities, more where the model is uncertain.

    Labels are drawn one by one from those that are left, label i with probability proportional to
    :math:`f + (1 - f)\, s_i / \bar s` and :math:`s_i = \sqrt{p_i (1 - p_i)}` (successive sampling, Des Raj 1956). The
    probability of every draw, given those before, is known exactly, so a review may end after any item. Without the
    floor f this is Neyman's (1934) allocation for a model that is right. The floor bounds what a wrong model can cost:
    where few labels are wrong, the variance grows by at most 1 / f.

    Parameters
    ----------
    audit_or_probabilities : LabelAudit, or array of shape (labels,), (n, steps) or (n, steps, annotators)
        Probability that each label is wrong; NaN where nothing was recorded.
    n : int, number of labels to draw
    earlier : ReviewSample, optional
        What was drawn before. The new labels are from the rest, and the result holds both. Probabilities may have
        changed in between, also because of the answers (Zrnic and Candès 2024).
    floor : float above 0 and up to 1; 1 draws with equal probabilities
    random_state : int, Generator or None

    Returns
    -------
    ReviewSample

    Examples
    --------
    >>> import labeltide as lt
    >>> import numpy as np
    >>> chances = np.random.default_rng(0).beta(1, 9, 2000)  # that each label is wrong, as of an audit
    >>> sample = lt.review_sample(chances, 200)
    >>> len(sample), sample.rows.shape  # which labels to look at
    (200, (200,))
    """
    probabilities = wrong_probabilities(audit_or_probabilities)
    _validation.check_number("floor", floor, 0, 1, above=True)
    free = np.isfinite(probabilities).ravel()
    if earlier is not None:
        _check_same_labels(earlier, probabilities.shape)
        free[earlier.items] = False
    remaining = np.flatnonzero(free)
    _validation.check_number(
        f"n, the number of labels to draw from the {len(remaining)} that are left,", n, 1, len(remaining), whole=True
    )
    n_draws = 0 if earlier is None else len(earlier.least)
    if random_state is None or isinstance(random_state, np.random.Generator):
        generator = np.random.default_rng(random_state)
    else:
        _validation.check_number("random_state", random_state, 0, whole=True)
        generator = np.random.default_rng((random_state, n_draws))  # a later draw does not repeat an earlier one
    chances = probabilities.ravel()[remaining]
    spread = np.sqrt(chances * (1 - chances))
    mean = spread.mean()
    size = np.ones(len(spread)) if mean == 0 else floor + (1 - floor) * spread / mean
    # Exponential waiting times with these rates come in the order of successive draws (Efraimidis and Spirakis 2006).
    waiting = generator.exponential(size=len(size)) / size
    first = np.argpartition(waiting, n - 1)[:n]
    first = first[np.argsort(waiting[first])]
    left = size[first][::-1].cumsum()[::-1] + np.delete(size, first).sum()  # before each item
    drawn = {
        "items": remaining[first],
        "chances": size[first] / left,
        "draws": np.full(n, n_draws),
        "least": size.min(keepdims=True) / left[0],
    }
    if earlier is not None:
        drawn = {name: np.concatenate([getattr(earlier, name), values]) for name, values in drawn.items()}
    return ReviewSample(**drawn, shape=probabilities.shape)


# The share of wrong labels as a review found it, with intervals that hold whatever the model got wrong.


@dataclass(frozen=True)
class CheckedRate:
    """The share of wrong labels among all labels or those of one group: the model's estimate and the checked one.

    There are two intervals. `lower` and `upper` hold for a review whose size was fixed beforehand. `anytime_lower` and
    `anytime_upper` hold at all sizes at once: a reviewer may look after every item and stop at will. They are NaN where
    the rate is for more people like these.
    """

    group: Hashable  # None for all labels
    rate: float  # NaN where nothing was reviewed
    lower: float
    upper: float
    anytime_lower: float
    anytime_upper: float
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
    """A reviewed sample together with the model's probabilities, of all labels or of those of one group."""

    probabilities: np.ndarray  # (labels,), NaN where nothing was recorded and outside the group
    sample: ReviewSample
    answers: np.ndarray  # float (items,), one where the label is wrong
    clusters: np.ndarray | None = None  # (labels,)

    @cached_property
    def known(self) -> np.ndarray:
        """The model's probabilities of the labels of the group: shape (labels of the group,)."""
        return self.probabilities[np.isfinite(self.probabilities)]

    @cached_property
    def inside(self) -> np.ndarray:
        """Whether each item is in the group: shape (items,)."""
        return np.isfinite(self.probabilities[self.sample.items])

    @cached_property
    def wrong(self) -> np.ndarray:
        """The answers on the items of the group."""
        return self.answers[self.inside]


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

    The difference estimator with a tuned weight, which is prediction-powered inference (`estimate_rate`). There are two
    intervals. `lower` and `upper` are those of Clopper and Pearson with an effective sample size (`effective_count`);
    they hold for a review whose size was fixed beforehand. `anytime_lower` and `anytime_upper` are a confidence
    sequence (`confidence_sequence`): a reviewer may look after every item and stop at will. Both need the
    probabilities of the draws to be right. The model may be wrong in any way.

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
        labels of more people like these: the variance is cluster-robust, with quantiles of Student's t, and the
        interval is never narrower than that of these labels. It is for a size that was fixed beforehand.
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
    >>> rate.n_reviewed, rate.anytime_lower < rate.lower < rate.rate  # may be watched, so it is wider
    (200, True)
    """
    _validation.check_number("level", level, 0.5, 0.9999)
    review = read_review(audit_or_probabilities, sample, wrong, clusters)
    if by is not None and not isinstance(by, Mapping):
        names = [by] if isinstance(by, str) else by
        by = {name: _audit_groups(audit_or_probabilities, name, sample.shape) for name in names}
    groups: dict[str, list[CheckedRate]] = {}
    for name, of in (by or {}).items():
        values = broadcast(f"The groups {name!r}", of, sample.shape).ravel()
        groups[name] = [
            _rate(
                replace(review, probabilities=np.where(values == value, review.probabilities, np.nan)),
                level,
                value.item() if isinstance(value, np.generic) else value,
            )
            for value in np.unique(values[np.isfinite(review.probabilities)])
        ]
    return CheckedRates(_rate(review, level), groups, level)


def _audit_groups(audit: Any, name: str, shape: tuple[int, ...]) -> ArrayLike:
    """The group of each label by one of the `GROUPINGS` of an audit."""
    _validation.check_choice("grouping", name, GROUPINGS)
    if not hasattr(audit, "labels"):
        raise ValueError(f"Grouping by {name!r} needs an audit. Pass by={{{name!r}: values}} with probabilities.")
    if name == "clock":
        return clock_bins(audit.clock, audit.mask)
    if name == "annotator":
        return np.broadcast_to(np.arange(shape[2]) if len(shape) > 2 else 0, shape)
    return np.asarray(audit.classes)[audit.labels.reshape(shape)]


def read_review(
    source: LabelAudit | ArrayLike, sample: ReviewSample, wrong: ArrayLike, clusters: ArrayLike | None = None
) -> Review:
    """Check a reviewed sample and join it with the model's probabilities of all labels."""
    probabilities = wrong_probabilities(source)
    _check_same_labels(sample, probabilities.shape)
    if np.isnan(probabilities.ravel()[sample.items]).any():
        raise ValueError(
            "Every label of the sample must have a probability. Some are NaN: was it drawn from this audit?"
        )
    codes = None  # the cluster of each label
    if clusters is not None:
        of_row = encode_clusters(clusters, probabilities.shape[0])
        labelled = np.isfinite(probabilities).reshape(len(of_row), -1).any(1)
        if len(np.unique(of_row[labelled])) < 2:
            raise ValueError("clusters must hold at least two with labels. Got one: leave clusters out.")
        codes = broadcast("clusters", of_row, probabilities.shape).ravel()
    answers = np.asarray(wrong)
    if answers.shape != (len(sample),) or not (answers.dtype == bool or np.isin(answers, (0, 1)).all()):
        raise ValueError(
            f"wrong must be {len(sample)} times True or False, one for each label of the sample. Got {answers.dtype} "
            f"of shape {answers.shape}. For a review that ended early pass sample.first(n)."
        )
    return Review(probabilities.ravel(), sample, answers.astype(float), codes)


def _rate(review: Review, level: float, group: Hashable = None) -> CheckedRate:
    size, n, found = len(review.known), len(review.wrong), int(review.wrong.sum())
    model = float(review.known.sum()) / size
    if n == 0:
        return CheckedRate(group, np.nan, 0.0, 1.0, 0.0, 1.0, model, 0.0, size, 0, 0)
    share, counts = found / n, (size, n, found)
    if n == size and review.clusters is None:  # nothing is left to estimate
        return CheckedRate(group, share, share, share, share, share, model, 0.0, *counts)
    estimate = estimate_rate(review)
    lower, upper = clopper_pearson(effective_count(estimate, review, level), level)
    always = np.nan, np.nan
    if review.clusters is None:
        always = confidence_sequence(review, level)
    else:  # more people add to the uncertainty about the labels of these
        these = _rate(replace(review, clusters=None), level)
        lower, upper = min(lower, these.lower), max(upper, these.upper)
    rate = min(max(estimate.rate, 0.0), 1.0)
    return CheckedRate(group, rate, lower, upper, *always, model, estimate.weight, *counts)


# An upper confidence bound on the share of labels that are still wrong after correction.

CURVE_POINTS = 40
# By hand: reviewed items that the model counts for in a forecast, and in its range (bench/results/review/anytime.md).
FORECAST_ITEMS, RANGE_ITEMS = 100, 30


@dataclass(frozen=True)
class RemainingRate:
    """What is still wrong: with confidence `level` at most `bound` of the labels.

    `bound` holds for a review whose size was fixed beforehand, `anytime_bound` at all sizes at once.
    """

    rate: float  # estimated share of labels that are still wrong
    bound: float
    anytime_bound: float
    model_rate: float  # share of wrong labels after automatic correction, according to the model
    level: float
    n_labels: int
    n_reviewed: int
    n_found: int  # reviewed labels that the automatic correction alone would have left wrong
    count: EffectiveCount  # the simple random sample that would say as much about labels after automatic correction

    def predict_bound(self, more: ArrayLike, quantile: float | None = None) -> np.ndarray:
        """The bound to expect after this many more items, at the rate found drawn to the model's, or its quantile."""
        reviewed = self.n_reviewed + np.atleast_1d(np.asarray(more, dtype=float))
        inside = reviewed < self.n_labels
        share, now = reviewed[inside] / self.n_labels, self.n_reviewed / self.n_labels
        growth = share / now * (1 - now) / (1 - share)  # of the effective size, with finite population correction
        wrong, size = self.count
        expected = min(wrong / size, (wrong + FORECAST_ITEMS * self.model_rate) / (size + FORECAST_ITEMS))
        if quantile is not None:
            alpha, beta = wrong + RANGE_ITEMS * self.model_rate, size - wrong + RANGE_ITEMS * (1 - self.model_rate)
            expected = float(stats.beta.ppf(quantile, alpha + 0.5, beta + 0.5))
        limits = [upper_limit(EffectiveCount(wrong + (g - 1) * size * expected, g * size), self.level) for g in growth]
        found = (self.n_found + (reviewed[inside] - self.n_reviewed) * expected) / self.n_labels
        bounds = np.zeros(reviewed.shape)
        bounds[inside] = (np.array(limits) - found).clip(0)
        return bounds

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of further items, and the bound to expect after each."""
        left = self.n_labels - self.n_reviewed
        more = np.unique(np.rint(np.geomspace(1, left + 1, CURVE_POINTS)).astype(np.int64)) - 1
        return more, self.predict_bound(more)

    def items_needed(self, target: float, quantile: float | None = None) -> int:
        """How many more items are expected to bring the bound to the target; at most all that are left."""
        _validation.check_number("target", target, 0, 1)
        left = range(self.n_labels - self.n_reviewed)
        return bisect_left(left, True, key=lambda more: bool(self.predict_bound(more, quantile)[0] <= target))

    def forecast(self, target: float) -> dict[str, float]:
        """`items_needed` with an 80 % range."""
        low, items, high = (self.items_needed(target, quantile) for quantile in (0.1, None, 0.9))
        return {"target": target, "items": items, "low": min(low, items), "high": max(high, items)}


def remaining_rate(
    probabilities: ArrayLike, sample: ReviewSample, wrong_after: ArrayLike, *, level: float = 0.95
) -> RemainingRate:
    r"""Bound the share of labels that are still wrong after correction.

    Reviewed labels are taken as right from now on, all others as the automatic correction leaves them. The bound is the
    one-sided Clopper-Pearson limit of the share that it leaves wrong, less what the review found.

    Parameters
    ----------
    probabilities : the model's probability that each label is wrong after automatic correction
    wrong_after : bool array of shape (items,)
        For each reviewed label: would it be wrong after automatic correction, had nobody reviewed it?
    """
    _validation.check_number("level", level, 0.5, 0.9999)
    review = read_review(probabilities, sample, wrong_after)
    estimate, size = estimate_rate(review), len(review.known)
    count = effective_count(estimate, review, 2 * level - 1)
    found = float(review.wrong.sum()) / size
    unreviewed = len(sample) < size
    return RemainingRate(
        rate=max(estimate.rate - found, 0.0) * unreviewed,
        bound=max(upper_limit(count, level) - found, 0.0) * unreviewed,
        anytime_bound=max(confidence_sequence(review, level)[1] - found, 0.0) * unreviewed,
        model_rate=float(review.known.sum()) / size,
        level=level,
        n_labels=size,
        n_reviewed=len(sample),
        n_found=int(review.wrong.sum()),
        count=count,
    )


# The share of wrong labels from a probability sample, with the model's probabilities as a helper.
#
# The difference estimator of survey sampling (Särndal, Swensson and Wretman 1992) with a tuned weight :math:`\lambda`,
# which is prediction-powered inference (Angelopoulos and others 2023; tuned: Angelopoulos, Duchi and Zrnic 2023):
#
# .. math:: \hat\theta = \frac{1}{N} \sum_{i \in U} \lambda p_i
#    + \frac{\sum_{i \in S} w_i (y_i - \lambda p_i)}{\sum_{i \in S} w_i}.
#
# U are all N labels, S the reviewed ones, :math:`y_i` is one where a label is wrong, :math:`p_i` the model's
# probability of that, and :math:`w_i = 1 / \pi_i` (Horvitz and Thompson 1952; divided by their sum: Hájek 1971). Draw k
# estimates the total by what was found before plus the weighted sum of its own labels (Des Raj 1956), which is unbiased
# given the earlier draws (Zrnic and Candès 2024). The estimate is the mean of the draws, weighted by their sizes.


class Estimate(NamedTuple):
    rate: float
    variance: float
    weight: float  # the tuned weight of the model, between 0 and 1
    degrees: float  # of freedom


def estimate_rate(review: Review) -> Estimate:
    r"""The difference estimate of the share of wrong labels with its design-based or cluster-robust variance.

    The design-based variance is :math:`\frac{n}{n - 1} \sum_S (1 - \pi_i) (e_i / \pi_i)^2` for residuals e whose
    weighted sum is zero: the approximation of Hájek (1964), which needs no joint inclusion probabilities.
    """
    items, weights = review.sample.items[review.inside], review.sample.weights[review.inside]
    of_wrong, of_model = review.wrong, review.probabilities[items]
    wrong, predicted = (float(np.average(values, weights=weights)) for values in (of_wrong, of_model))
    n, n_clusters = len(weights), 0
    if review.clusters is not None:
        of_labels, count = review.clusters[np.isfinite(review.probabilities)], review.clusters.max() + 1
        sizes, expected = np.bincount(of_labels, minlength=count), np.bincount(of_labels, review.known, count)
        n_clusters = int(np.count_nonzero(sizes))
    if review.clusters is None or n_clusters < 2:
        inclusion, draws = review.sample.inclusion[review.inside], review.sample.draws[review.inside]
        scale = review.sample.shares[draws] * np.sqrt((1 - inclusion) * n / max(n - 1, 1))
        wrong_scores = scale * (of_wrong - wrong) / inclusion / weights.sum()
        model_scores = scale * (of_model - predicted) / inclusion / weights.sum()
        degrees = max(n - 1.0, 1.0)
    else:  # scores of whole clusters, whose squares add up to a cluster-robust variance
        total = partial(np.bincount, review.clusters[items], minlength=len(sizes))  # sums of weights by cluster
        counted = total(weights)  # (clusters,)

        def centred(totals: np.ndarray, counts: np.ndarray) -> np.ndarray:
            return (totals - totals.sum() * counts / counts.sum()) / counts.sum()

        scale = np.sqrt(n_clusters / (n_clusters - 1))
        wrong_scores = scale * centred(total(weights * of_wrong), counted)
        model_scores = scale * (centred(total(weights * of_model), counted) - centred(expected, sizes))
        # The number of equally large clusters that would say as much (Carter, Schnepel and Steigerwald 2017).
        n_effective = float(float(sizes.sum()) ** 2 / (sizes.astype(float) ** 2).sum())
        degrees = max(n_effective - 1, 1.0)
    weight, variance = tune_weight(wrong_scores, model_scores, degrees)
    model = float(review.known.sum()) / len(review.known)
    return Estimate(wrong + weight * (model - predicted), variance, weight, degrees)


def tune_weight(wrong: np.ndarray, predicted: np.ndarray, degrees: float) -> tuple[float, float]:
    r"""The weight of the model between 0 and 1, and the variance :math:`\lVert a - \lambda b \rVert^2` with it.

    Least squares minimise it for scores a of the wrong labels and b of the model. The weight is shrunk by the factor
    1 - 1/F with F its own F statistic, and is used only where it makes the variance smaller.
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


# Intervals of a small share from a weighted sample: Clopper and Pearson (1934) with the effective sample size
# :math:`\tilde n = \hat\theta (1 - \hat\theta) / \hat V` (Korn and Graubard 1998). Where few wrong labels were found,
# :math:`\hat V` says little, and the design effect :math:`n / \tilde n` is drawn towards the largest that the design
# allows. With no wrong label found, the upper limit therefore holds for every model.

PRIOR_FOUND = 1.0  # by hand: wrong labels that the largest design effect counts for (docs/decisions/020-review.md)


class EffectiveCount(NamedTuple):
    """As many wrong labels of as many reviewed ones in a simple random sample that would say as much."""

    wrong: float
    size: float


def effective_count(estimate: Estimate, review: Review, level: float) -> EffectiveCount:
    r"""The effective count behind an estimate.

    The design effect of the estimate is :math:`n \hat V / (\theta (1 - \theta)) \, (t / z)^2` with quantiles of
    Student's t and the normal distribution. It is averaged with the largest design effect, the largest weight divided
    by the mean weight. Their weights are the number of wrong labels found (of right ones, if fewer) and `PRIOR_FOUND`.
    """
    n, found = len(review.wrong), int(review.wrong.sum())
    shares = review.sample.shares
    largest = float(np.max(shares / review.sample.smallest + 1 - shares.cumsum()))  # weight that any label can have
    worst = max(largest * n / len(review.known), 1.0)
    share = min(max(estimate.rate, 0.0), 1.0)
    smoothed = (n * share + 0.5) / (n + 1)
    tail = 0.5 + level / 2
    quantiles = stats.t.ppf(tail, estimate.degrees) / stats.norm.ppf(tail)
    effect = estimate.variance * n / (smoothed * (1 - smoothed)) * quantiles**2
    informative = min(found, n - found)
    effect = (informative * effect + PRIOR_FOUND * worst) / (informative + PRIOR_FOUND)
    size = float(n / effect)
    return EffectiveCount(share * size, size)


def holm(p_values: ArrayLike) -> np.ndarray:
    """P-values corrected for their number (Holm 1979); NaN stays and does not count."""
    corrected = np.array(p_values, dtype=float)
    order = np.argsort(corrected)[: np.isfinite(corrected).sum()]
    corrected[order] = np.minimum(1, np.maximum.accumulate(corrected[order] * np.arange(len(order), 0, -1)))
    return corrected


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


# A confidence sequence: intervals that hold at all sizes of the review at once, by betting.
#
# Waudby-Smith and Ramdas (2024); for labels drawn one by one with known probabilities and with predictions as a control
# variate, Shekhar and others (2023). For a share m the term of item t is
#
# .. math:: D_t(m) = \frac{1}{N} \Big[\frac{r_t(m)}{q_t} + \sum_{s < t} r_s(m)\Big], \quad
#    r_i(m) = y_i - m - c_t (p_i - \bar p),
#
# with the probability :math:`q_t` of the draw. If m is the true share, its expectation given all earlier items is zero
# whatever the model says, and a gambler's capital :math:`\prod_t (1 + \lambda_t D_t(m))` exceeds :math:`1 / \alpha` at
# any time with probability at most :math:`\alpha` (Ville 1939). The bet :math:`\lambda_t` and the weight :math:`c_t` of
# the model depend on earlier items only. The interval holds the shares that were never refuted.

SHARES = np.linspace(0, 1, 801) ** 2  # that are tested, closer to each other near zero
PRIOR_ITEMS = 10  # by hand: reviewed items that the model counts for in the bets
MAX_LOSS = 0.75  # by hand: of the capital in one bet
BLOCK = 1000  # items at once


def confidence_sequence(review: Review, level: float) -> tuple[float, float]:
    """The interval of the share of wrong labels that holds at all sizes of the review at once."""
    sample, known, size, mean = review.sample, review.known, len(review.known), float(review.known.mean())
    in_group = review.inside.astype(float)  # (items,)
    wrong = review.answers * in_group
    predicted = np.where(review.inside, review.probabilities[sample.items] - mean, 0.0)
    weights = 1 / (size * sample.chances)
    largest = sample.left / (size * sample.least[sample.draws])

    def before(values: np.ndarray) -> np.ndarray:
        return np.cumsum(values) - values

    prior = PRIOR_ITEMS * largest[0]
    tied = before(weights**2 * predicted * (wrong - mean * in_group)) + prior * known.var()
    weight = np.clip(tied / (before((weights * predicted) ** 2) + prior * known.var() + 1e-12), 0, 1)  # c_t
    residuals, past = wrong - weight * predicted, (before(wrong) - weight * before(predicted)) / size
    value, slope = weights * residuals + past, weights * in_group + before(in_group) / size  # D = value - m slope
    n_before = np.arange(len(value))
    guess = (PRIOR_ITEMS * mean + before(value)) / (PRIOR_ITEMS + n_before)
    spread = before((value - guess * slope) ** 2) + prior * (float((known * (1 - known)).mean()) + 0.005)
    spread /= PRIOR_ITEMS + n_before
    capital, best = np.zeros(len(SHARES)), np.zeros(len(SHARES))  # logarithms: now, and the largest so far
    for start in range(0, len(value), BLOCK):
        now = slice(start, start + BLOCK)
        gap = guess[now, None] - SHARES
        fixed = past[now, None] - SHARES * (before(in_group)[now, None] / size)
        least = fixed - largest[now, None] * (SHARES + weight[now, None] * (1 - mean))
        most = fixed + largest[now, None] * (1 - SHARES + weight[now, None] * mean)
        bets = gap / (spread[now, None] + gap**2)
        bets = np.clip(bets, -MAX_LOSS / np.maximum(most, 1e-9), MAX_LOSS / np.maximum(-least, 1e-9))
        path = capital + np.cumsum(np.log1p(bets * (value[now, None] - SHARES * slope[now, None])), axis=0)
        capital, best = path[-1], np.maximum(best, path.max(0))
    left = np.flatnonzero(best < -np.log1p(-level))
    left = left if len(left) else np.array([best.argmin()])
    found, right = wrong.sum() / size, (in_group - wrong).sum() / size  # are certain
    lower, upper = SHARES[max(left[0] - 1, 0)], SHARES[min(left[-1] + 1, len(SHARES) - 1)]
    return float(max(lower, found)), float(min(upper, 1 - right))


# Probabilities that labels are wrong, from an audit or as passed, and values that belong to labels.

CLOCK_BINS = 10  # by hand: of the clock, within each of which Q is taken as constant


def wrong_probabilities(audit_or_probabilities: LabelAudit | ArrayLike) -> np.ndarray:
    """The probability that each label is wrong, of 1, 2 or 3 axes; NaN where nothing was recorded."""
    quality = getattr(audit_or_probabilities, "quality", None)
    if quality is not None:
        return 1 - np.clip(quality, 0, 1)  # the posterior has rounding errors
    name = "Probabilities that labels are wrong"
    try:
        numbers = np.asarray(audit_or_probabilities, dtype=np.float64)
    except (TypeError, ValueError):
        kind = type(audit_or_probabilities).__name__
        raise ValueError(f"{name} must be an audit or numbers from 0 to 1. Got {kind}.") from None
    if numbers.ndim not in (1, 2, 3):
        raise ValueError(
            f"{name} must have shape (labels,), (n, steps) or (n, steps, annotators). Got shape {numbers.shape}."
        )
    recorded = numbers[~np.isnan(numbers)]
    if not recorded.size:
        raise ValueError(f"{name} must hold at least one number. Got none, or NaN (not recorded) alone.")
    if recorded.min() < 0 or recorded.max() > 1:
        raise ValueError(f"{name} must lie between 0 and 1. Got {recorded.min():g} to {recorded.max():g}.")
    return numbers


def _check_same_labels(sample: ReviewSample, shape: tuple[int, ...]) -> None:
    if sample.shape != shape:
        raise ValueError(f"The sample must be of these labels, of shape {shape}. Its labels have shape {sample.shape}.")


def broadcast(name: str, values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """A value for each label, from values for each row, each step or each label."""
    array = np.asarray(values)
    if array.ndim == 0 or array.shape != shape[: array.ndim]:
        raise ValueError(
            f"{name} must have the shape {shape} of the labels, or that of its first axes. Got shape {array.shape}."
        )
    return np.broadcast_to(array.reshape(array.shape + (1,) * (len(shape) - array.ndim)), shape)


def clock_bins(clock: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The bin of each step's moment, with edges at quantiles over all steps: int array of the clock's shape."""
    edges = np.unique(np.quantile(clock[mask], np.linspace(0, 1, CLOCK_BINS + 1)[1:-1]))
    return np.searchsorted(edges, clock, side="right")
