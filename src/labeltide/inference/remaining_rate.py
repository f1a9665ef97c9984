"""An upper confidence bound on the share of labels that are still wrong after correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide.inference.checked_rate import read_review
from labeltide.inference.difference_estimator import estimate_rate
from labeltide.inference.rate_interval import EffectiveCount, upper_limit
from labeltide.inference.review_sample import ReviewSample

if TYPE_CHECKING:
    from labeltide.inference.audit import LabelAudit

CURVE_POINTS = 40


@dataclass(frozen=True)
class RemainingRate:
    """What is still wrong: with confidence `level` at most `bound` of the labels.

    Attributes
    ----------
    rate : float
        Estimated share of labels that are still wrong.
    bound : float
    level : float
    n_labels, n_reviewed : int
    n_found : int
        Reviewed labels that the automatic correction alone would have left wrong.
    count : EffectiveCount
        The simple random sample that would say as much about labels after automatic correction.
    """

    rate: float
    bound: float
    level: float
    n_labels: int
    n_reviewed: int
    n_found: int
    count: EffectiveCount

    def predict_bound(self, more: ArrayLike) -> np.ndarray:
        """The bound to expect after so many more items, if wrong labels are found at the rate estimated now."""
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
