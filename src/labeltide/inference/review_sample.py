"""A probability sample of labels for review: every label has a known and positive probability of being drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._display import ShortRepr
from labeltide.data.clusters import encode_clusters
from labeltide.inference.unequal_sampling import draw_systematic, inclusion_probabilities
from labeltide.inference.wrong_probabilities import broadcast, check_same_labels, clock_bins, wrong_probabilities

if TYPE_CHECKING:
    from labeltide.inference.audit import LabelAudit

FLOOR = 0.8  # by hand: a model that is wrong then widens intervals by at most 12 % (docs/decisions/020-review.md)


@dataclass(frozen=True, repr=False)
class ReviewSample(ShortRepr):
    """Labels drawn for review, in random order within each draw.

    Attributes
    ----------
    items : int array of shape (items,)
        Places of the labels in the flattened array of probabilities.
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
        check_same_labels(earlier.shape, probabilities.shape)
        free[earlier.items] = False
    places = np.flatnonzero(free)
    _validation.check_number(
        f"n, the number of labels to draw from the {len(places)} that are left,", n, 1, len(places), whole=True
    )
    inclusion = inclusion_probabilities(probabilities.ravel()[places], n, floor)
    order = _strata_codes(audit_or_probabilities, clusters, strata, probabilities.shape)
    codes = None if order is None else order.ravel()[places]
    drawn = draw_systematic(inclusion, _generator(random_state, earlier), codes)
    new = ReviewSample(
        places[drawn], inclusion[drawn], np.zeros(n, np.int64), inclusion.min(keepdims=True), probabilities.shape
    )
    return new if earlier is None else _join(earlier, new)


def _generator(random_state: int | np.random.Generator | None, earlier: ReviewSample | None) -> np.random.Generator:
    """A generator of random numbers that a later draw with the same seed does not repeat."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    _validation.check_number("random_state", random_state, 0, whole=True)
    return np.random.default_rng((random_state, 0 if earlier is None else len(earlier.smallest)))


def _strata_codes(
    source: LabelAudit | ArrayLike, clusters: ArrayLike | None, strata: ArrayLike | str | None, shape: tuple[int, ...]
) -> np.ndarray | None:
    """One number for each label, equal within a stratum of a cluster; None where nothing was asked for."""
    if clusters is None and strata is None:
        return None
    codes = np.zeros(shape, np.int64)
    if strata is not None:
        if isinstance(strata, str):
            _validation.check_choice("strata", strata, ("clock",))
            strata = _clock_strata(source)
        codes = np.unique(broadcast("strata", strata, shape), return_inverse=True)[1].reshape(shape)
    if clusters is not None:
        people = encode_clusters(clusters, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
        codes = codes + people * (codes.max() + 1)
    return codes


def _clock_strata(source: Any) -> np.ndarray:
    if not hasattr(source, "clock"):
        raise ValueError('strata="clock" needs an audit, which has a clock. Pass an array of strata instead.')
    return clock_bins(source.clock, source.mask)


def _join(earlier: ReviewSample, new: ReviewSample) -> ReviewSample:
    fields = ("items", "inclusion", "smallest")
    joined = {name: np.concatenate([getattr(earlier, name), getattr(new, name)]) for name in fields}
    draws = np.concatenate([earlier.draws, new.draws + len(earlier.smallest)])
    return ReviewSample(draws=draws, shape=new.shape, **joined)
