"""Review of labels: probability samples, and design-based estimates of the share of wrong labels from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
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
    """Labels drawn for review, in random order within each draw.

    Attributes
    ----------
    items : int array of shape (items,)
        Indices of the labels in the flattened array of probabilities.
    inclusion : array of shape (items,)
        Probability with which each was drawn, given the draws before.
    draws : int array of shape (items,)
        Number of the draw, from 0.
    smallest : array of shape (draws,)
        The smallest inclusion probability of any label in each draw.
    shape : tuple of int, shape of the array of probabilities
    """

    items: np.ndarray
    inclusion: np.ndarray
    draws: np.ndarray
    smallest: np.ndarray
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

    def first(self, n: int) -> ReviewSample:
        """The first n items, for a review that ended early; their inclusion probabilities are reduced exactly.

        Items stand in random order. The first m of the k items of a draw are a simple random sample of them, which
        multiplies their probability by m / k.
        """
        _validation.check_number("n", n, 1, len(self), whole=True)
        draws = self.draws[:n]
        kept = np.bincount(draws) / np.bincount(self.draws)[: draws.max() + 1]  # (draws,)
        return replace(
            self,
            items=self.items[:n],
            inclusion=self.inclusion[:n] * kept[draws],
            draws=draws,
            smallest=self.smallest[: len(kept)] * kept,
        )


def review_sample(
    audit_or_probabilities: LabelAudit | ArrayLike,
    n: int,
    *,
    clusters: ArrayLike | None = None,
    strata: ArrayLike | str | None = None,
    earlier: ReviewSample | None = None,
    floor: float = FLOOR,
    random_state: int | np.random.Generator | None = 0,
) -> ReviewSample:
    r"""Draw labels for review with known inclusion probabilities, more where the model is uncertain.

    Label i is drawn with probability :math:`\pi_i \propto f + (1 - f)\, s_i / \bar s` and
    :math:`s_i = \sqrt{p_i (1 - p_i)}`, by randomised systematic sampling (Madow 1949; Hartley and Rao 1962), which
    has a fixed size and exact probabilities. The floor f bounds what a wrong model can cost: where few labels are
    wrong, the variance grows by at most 1 / f.

    Parameters
    ----------
    audit_or_probabilities : LabelAudit, or array of shape (labels,), (n, steps) or (n, steps, annotators)
        Probability that each label is wrong; NaN where nothing was recorded.
    n : int, number of labels to draw
    clusters : array of shape (rows,), optional
        Person, night or recording of each row. The sample is spread over them in proportion.
    strata : array that broadcasts to the labels, or "clock" for ten bins of an audit's clock, optional
        The sample is spread over strata in proportion, within each cluster.
    earlier : ReviewSample, optional
        What was drawn before. The new draw is from the rest, and the result holds both. Probabilities may have changed
        in between, also because of the answers (Zrnic and Candès 2024).
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
        _check_same_labels(earlier, probabilities)
        free[earlier.items] = False
    remaining = np.flatnonzero(free)
    _validation.check_number(
        f"n, the number of labels to draw from the {len(remaining)} that are left,", n, 1, len(remaining), whole=True
    )
    inclusion = inclusion_probabilities(probabilities.ravel()[remaining], n, floor)
    shape = probabilities.shape
    codes = np.zeros(shape, np.int64)  # one number for each label, equal within a stratum of a cluster
    if strata is not None:
        if isinstance(strata, str):
            _validation.check_choice("strata", strata, ("clock",))
            audit: Any = audit_or_probabilities
            if not hasattr(audit, "clock"):
                raise ValueError('strata="clock" needs an audit, which has a clock. Pass an array of strata instead.')
            strata = clock_bins(audit.clock, audit.mask)
        codes = np.unique(broadcast("strata", strata, shape), return_inverse=True)[1].reshape(shape)
    if clusters is not None:
        people = encode_clusters(clusters, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
        codes = codes + people * (codes.max() + 1)
    n_draws = 0 if earlier is None else len(earlier.smallest)
    if random_state is None or isinstance(random_state, np.random.Generator):
        generator = np.random.default_rng(random_state)
    else:
        _validation.check_number("random_state", random_state, 0, whole=True)
        generator = np.random.default_rng((random_state, n_draws))  # a later draw does not repeat an earlier one
    drawn = draw_systematic(inclusion, generator, codes.ravel()[remaining])
    items, draws = remaining[drawn], np.full(n, n_draws)
    inclusion, smallest = inclusion[drawn], inclusion.min(keepdims=True)
    if earlier is not None:
        items, draws = np.concatenate([earlier.items, items]), np.concatenate([earlier.draws, draws])
        inclusion = np.concatenate([earlier.inclusion, inclusion])
        smallest = np.concatenate([earlier.smallest, smallest])
    return ReviewSample(items, inclusion, draws, smallest, shape)


# Sampling with unequal inclusion probabilities that are exact and known: randomised systematic sampling.
#
# Labels are put in random order, their inclusion probabilities :math:`\pi_i` are added up, and a label is drawn
# wherever the running sum passes :math:`u, u + 1, u + 2, \ldots` with one uniform :math:`u` (Madow 1949; in random
# order Hartley and Rao 1962). The size is fixed, and label i is drawn with probability :math:`\pi_i` exactly. Within
# strata that follow each other the order is random, which spreads the sample over them in proportion (implicit
# stratification).


def inclusion_probabilities(uncertainty: np.ndarray, n: int, floor: float) -> np.ndarray:
    r"""Inclusion probabilities that add up to n: partly equal, partly in proportion to the uncertainty.

    :math:`\pi_i = \min(1, c\,(f + (1 - f)\, s_i / \bar s))` with :math:`s_i = \sqrt{p_i (1 - p_i)}` and the floor f.
    Without the floor this is Neyman's (1934) allocation for a model whose probabilities are right. The floor bounds
    what a wrong model can cost: no label's probability is below f n / N. `uncertainty` are the probabilities
    :math:`p_i` that labels are wrong.
    """
    spread = np.sqrt(uncertainty * (1 - uncertainty))
    mean = spread.mean()
    size = np.ones(len(spread)) if mean == 0 else floor + (1 - floor) * spread / mean
    certain = np.zeros(len(size), dtype=bool)
    while True:  # each turn gives probability one to all that would exceed it
        chosen = np.where(certain, 1.0, 0.0)
        rest = n - certain.sum()
        chosen[~certain] = size[~certain] * (rest / size[~certain].sum()) if rest else 0.0
        above = chosen > 1
        if not above.any():
            return chosen
        certain |= above


def draw_systematic(inclusion: np.ndarray, rng: np.random.Generator, strata: np.ndarray | None = None) -> np.ndarray:
    """The numbers of the drawn labels, in random order; `inclusion` (labels,) adds up to a whole number."""
    shuffled = rng.permutation(len(inclusion))
    order = shuffled if strata is None else shuffled[np.argsort(strata[shuffled], kind="stable")]
    return rng.permutation(order[passed_marks(inclusion[order], rng.random())])


def passed_marks(inclusion: np.ndarray, start: float) -> np.ndarray:
    """True where the running sum of the inclusion probabilities passes one of start, start + 1, ..."""
    sums = np.cumsum(inclusion)
    sums[-1] = np.rint(sums[-1])  # rounding errors never change the size
    return np.diff(np.floor(sums - start), prepend=np.floor(-start)) > 0


# The share of wrong labels as a review found it, with intervals that hold whatever the model got wrong.


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
    items: np.ndarray  # (items,), indices into `probabilities`
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

    The difference estimator with a tuned weight, which is prediction-powered inference (`estimate_rate`). Its
    interval is that of Clopper and Pearson with an effective sample size (`effective_count`). It needs the inclusion
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
    audit: Any = audit_or_probabilities
    if by is None or isinstance(by, Mapping):
        groupings = dict(by or {})
    else:
        groupings = {}
        for name in [by] if isinstance(by, str) else by:
            _validation.check_choice("grouping", name, GROUPINGS)
            if not hasattr(audit, "labels"):
                raise ValueError(
                    f"Grouping by {name!r} needs an audit. Pass by={{{name!r}: values}} with probabilities."
                )
            if name == "clock":
                groupings[name] = clock_bins(audit.clock, audit.mask)
            elif name == "annotator":
                annotators = np.arange(sample.shape[2]) if len(sample.shape) > 2 else 0
                groupings[name] = np.broadcast_to(annotators, sample.shape)
            else:
                groupings[name] = np.asarray(audit.classes)[audit.labels.reshape(sample.shape)]
    flat = {name: broadcast(f"The groups {name!r}", of, sample.shape).ravel() for name, of in groupings.items()}
    groups = {
        name: [
            _rate(review, values == value, level, value.item() if isinstance(value, np.generic) else value)
            for value in np.unique(values[np.isfinite(review.probabilities)])
        ]
        for name, values in flat.items()
    }
    return CheckedRates(_rate(review, everything, level), groups, level)


def read_review(
    source: LabelAudit | ArrayLike, sample: ReviewSample, wrong: ArrayLike, clusters: ArrayLike | None = None
) -> Review:
    """Check a reviewed sample and join it with the model's probabilities of all labels."""
    probabilities = wrong_probabilities(source)
    _check_same_labels(sample, probabilities)
    predicted = probabilities.ravel()[sample.items]
    if np.isnan(predicted).any():
        raise ValueError("Every label of the sample must have a probability. Some are NaN: was the audit another one?")
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
    shares = np.bincount(sample.draws, minlength=len(sample.smallest)) / len(sample)
    reviewed = Reviewed(
        wrong=answers.astype(float),
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


# An upper confidence bound on the share of labels that are still wrong after correction.

CURVE_POINTS = 40


@dataclass(frozen=True)
class RemainingRate:
    """What is still wrong: with confidence `level` at most `bound` of the labels."""

    rate: float  # estimated share of labels that are still wrong
    bound: float
    level: float
    n_labels: int
    n_reviewed: int
    n_found: int  # reviewed labels that the automatic correction alone would have left wrong
    count: EffectiveCount  # the simple random sample that would say as much about labels after automatic correction

    def predict_bound(self, more: ArrayLike) -> np.ndarray:
        """The expected bound after this many more items, if wrong labels are found at the rate estimated now."""
        reviewed = self.n_reviewed + np.atleast_1d(np.asarray(more, dtype=float))
        inside = reviewed < self.n_labels
        share, now = reviewed[inside] / self.n_labels, self.n_reviewed / self.n_labels
        growth = share / now * (1 - now) / (1 - share)  # of the effective size, with finite population correction
        wrong, size = self.count.wrong, self.count.size
        limits = np.array([upper_limit(EffectiveCount(g * wrong, g * size), self.level) for g in growth])
        bounds = np.zeros(reviewed.shape)
        bounds[inside] = (limits - self.n_found * share / self.n_reviewed).clip(0)
        return bounds

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of further items, and the bound to expect after each."""
        left = self.n_labels - self.n_reviewed
        more = np.unique(np.rint(np.geomspace(1, left + 1, CURVE_POINTS)).astype(np.int64)) - 1
        return more, self.predict_bound(more)

    def items_needed(self, target: float) -> int:
        """How many more items are expected to bring the bound to the target; at most all that are left."""
        _validation.check_number("target", target, 0, 1)
        low, high = 0, self.n_labels - self.n_reviewed
        while low < high:
            middle = (low + high) // 2
            if self.predict_bound(middle)[0] <= target:
                high = middle
            else:
                low = middle + 1
        return low


def remaining_rate(
    probabilities: ArrayLike, sample: ReviewSample, wrong_after: ArrayLike, *, level: float = 0.95
) -> RemainingRate:
    r"""Bound the share of labels that are still wrong after correction.

    Reviewed labels are taken as right from now on. All others stand as the automatic correction leaves them:
    :math:`z_i = 1` where that is wrong. The sample estimates :math:`\sum_U z_i` as `checked_rate` does. The
    bound is its one-sided Clopper-Pearson limit less the :math:`z_i` that the review found. Where the review found
    none, it holds whatever the model says: K wrong labels are all missed with probability about
    :math:`(1 - \min_i \pi_i)^K` at most.

    Parameters
    ----------
    probabilities : array of shape (labels,), (n, steps) or (n, steps, annotators)
        The model's probability that each label is wrong after automatic correction, as of `after_correction`.
    sample : ReviewSample
    wrong_after : bool array of shape (items,)
        For each reviewed label: would it be wrong after automatic correction, had nobody reviewed it?
    level : float
    """
    _validation.check_number("level", level, 0.5, 0.9999)
    review = read_review(probabilities, sample, wrong_after)
    part, population = review.part(np.ones(review.probabilities.size, dtype=bool))
    estimate = estimate_rate(part, population)
    count = review.count(part, population, estimate, 2 * level - 1)
    found = float(part.wrong.sum()) / population.size
    unreviewed = len(sample) < population.size
    return RemainingRate(
        rate=max(estimate.rate - found, 0.0) * unreviewed,
        bound=max(upper_limit(count, level) - found, 0.0) * unreviewed,
        level=level,
        n_labels=population.size,
        n_reviewed=len(sample),
        n_found=int(part.wrong.sum()),
        count=count,
    )


def after_correction(audit: LabelAudit, min_confidence: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Labels as `audit.corrected` leaves them, and the model's probability that each of them is wrong.

    Compare the first with the reviewers' labels to get `wrong_after`. Both have shape (n, steps[, annotators]).
    Codes are -1 and probabilities NaN where nothing was recorded.
    """
    codes = audit.corrected(min_confidence)
    flat = codes.reshape(*codes.shape[:2], -1)
    right = np.take_along_axis(audit.probabilities, flat.clip(0).astype(np.intp), -1).reshape(codes.shape)
    return codes, np.where(codes >= 0, np.clip(1 - right, 0, 1), np.nan)


# The share of wrong labels from a probability sample, with the model's probabilities as a helper.
#
# The difference estimator of survey sampling (Särndal, Swensson and Wretman 1992) with a tuned weight :math:`\lambda`,
# which is prediction-powered inference (Angelopoulos and others 2023; tuned: Angelopoulos, Duchi and Zrnic 2023):
#
# .. math:: \hat\theta = \frac{1}{N} \sum_{i \in U} \lambda p_i
#    + \frac{\sum_{i \in S} w_i (y_i - \lambda p_i)}{\sum_{i \in S} w_i}.
#
# U are all N labels, S the reviewed ones, :math:`y_i` is one where a label is wrong, :math:`p_i` the model's
# probability of that, and :math:`w_i = 1 / \pi_i`. Weighted sums are unbiased whatever the model says (Horvitz and
# Thompson 1952). The sum of the weights takes the place of N, so that the shares of wrong and of right labels add up to
# one (Hájek 1971). The model changes the width of the interval alone.
#
# Later draws come from the labels that are left. Draw k estimates the total by what was found before plus the weighted
# sum of its own labels (Des Raj 1956). Given the earlier draws that is unbiased. The errors of draws are therefore
# uncorrelated, and a draw may depend on earlier answers (Zrnic and Candès 2024). The estimate is the mean of the draws,
# weighted by their sizes.


@dataclass(frozen=True)
class Reviewed:
    """Reviewed labels of one population or of one group of it."""

    wrong: np.ndarray  # float (items,), one where the label is wrong
    predicted: np.ndarray  # (items,), the model's probability that the label is wrong
    inclusion: np.ndarray  # (items,), probability of being drawn, given the draws before
    draws: np.ndarray  # int (items,), number of the draw
    shares: np.ndarray  # (draws,), share of each draw in the estimate
    clusters: np.ndarray | None = None  # int (items,)

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
    sizes, expected = population.cluster_sizes, population.cluster_predicted
    n_clusters = 0 if sizes is None else np.count_nonzero(sizes)
    if sizes is None or n_clusters < 2:
        wrong_scores = design_scores(reviewed, reviewed.wrong - wrong) / weights.sum()
        model_scores = design_scores(reviewed, reviewed.predicted - predicted) / weights.sum()
        degrees = max(len(weights) - 1.0, 1.0)
    else:  # scores of whole clusters, whose squares add up to a cluster-robust variance
        assert reviewed.clusters is not None
        assert expected is not None
        total = partial(np.bincount, reviewed.clusters, minlength=len(sizes))  # sums of weights by cluster
        counted = total(weights)  # (clusters,)

        def centred(totals: np.ndarray, counts: np.ndarray) -> np.ndarray:
            return (totals - totals.sum() * counts / counts.sum()) / counts.sum()

        scale = np.sqrt(n_clusters / (n_clusters - 1))
        wrong_scores = scale * centred(total(weights * reviewed.wrong), counted)
        model_scores = scale * (centred(total(weights * reviewed.predicted), counted) - centred(expected, sizes))
        # The number of equally large clusters that would say as much (Carter, Schnepel and Steigerwald 2017).
        n_effective = float(float(sizes.sum()) ** 2 / (sizes.astype(float) ** 2).sum())
        degrees = max(n_effective - 1, 1.0)
    weight, variance = tune_weight(wrong_scores, model_scores, degrees)
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


# Intervals of a small share from a weighted sample: Clopper and Pearson (1934) with an effective sample size.
#
# As Korn and Graubard (1998): the effective size is :math:`\tilde n = \hat\theta (1 - \hat\theta) / \hat V`, corrected
# for the degrees of freedom of :math:`\hat V`, and the interval is that of :math:`\tilde n \hat\theta` wrong among
# :math:`\tilde n`. Where few wrong labels were found, :math:`\hat V` says little. The design effect
# :math:`n / \tilde n` is then drawn towards the largest that the design allows, that of wrong labels which all have
# the smallest inclusion probability. With no wrong label found, the upper limit therefore holds for every model.

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


# Probabilities that labels are wrong, from an audit or as passed, and values that belong to labels.

CLOCK_BINS = 10  # by hand: of the clock, within each of which Q is taken as constant


def wrong_probabilities(audit_or_probabilities: LabelAudit | ArrayLike) -> np.ndarray:
    """The probability that each label is wrong: shape (labels,), (n, steps) or (n, steps, annotators).

    NaN where nothing was recorded.
    """
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


def _check_same_labels(sample: ReviewSample, probabilities: np.ndarray) -> None:
    if sample.shape != probabilities.shape:
        raise ValueError(
            f"The sample must be of these labels, of shape {probabilities.shape}. Its labels have shape {sample.shape}."
        )


def broadcast(name: str, values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """A value for each label, from values for each row, each step or each label."""
    array = np.asarray(values)
    if array.ndim == 0 or array.shape != shape[: array.ndim]:
        raise ValueError(
            f"{name} must have the shape {shape} of the labels, or that of its first axes. Got shape {array.shape}."
        )
    return np.broadcast_to(array.reshape(array.shape + (1,) * (len(shape) - array.ndim)), shape)


def clock_bins(clock: np.ndarray, mask: np.ndarray, n_bins: int = CLOCK_BINS) -> np.ndarray:
    """The bin of each step's moment, with edges at quantiles over all steps: int array of the clock's shape."""
    edges = np.unique(np.quantile(clock[mask], np.linspace(0, 1, n_bins + 1)[1:-1]))
    return np.searchsorted(edges, clock, side="right")
