"""Do neighbouring rows look alike? A permutation test of serial dependence (Wald and Wolfowitz 1943), on ranks.

Windows of one person that follow each other have similar features. The statistic is the mean squared distance between
adjacent rows, in ranks of the mean of each feature over a row, divided by that between random pairs. For one feature
it is the rank version of von Neumann's ratio (Bartels 1982). Rows that are independent and drawn alike are as likely
in any other order.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

MOST_ROWS = 512  # that are compared; of more rows, pairs of neighbours at even distances
PERMUTATIONS = 1999  # none may bring neighbours as close together: level 1 in 2,000
# Of the distance of random pairs; weaker dependence matters little (docs/decisions/019-people-are-the-unit.md).
FAR_CLOSER = 0.8  # by hand


def neighbours_look_alike(features: np.ndarray, mask: np.ndarray) -> bool:
    """Whether adjacent rows are far closer than random pairs, beyond chance at a level of 1 in 2,000.

    Parameters
    ----------
    features : array of shape (rows, steps, features)
    mask : bool array of shape (rows, steps), False on padding
    """
    rows, first = _choose_pairs(len(features))
    if not len(first):
        return False
    ranks = _ranks_of_means(features[rows], mask[rows])
    squares = (ranks**2).sum(1)
    distances = squares[:, None] + squares - 2 * ranks @ ranks.T  # (rows, rows)
    n = len(rows)
    expected = distances.sum() / (n * (n - 1))
    observed = distances[first, first + 1].mean()
    if observed >= FAR_CLOSER * expected:
        return False
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(n), (PERMUTATIONS, 1)), axis=1)
    permuted = distances[orders[:, first], orders[:, first + 1]].mean(1)
    return bool(np.all(permuted > observed * (1 + 1e-9)))


def _choose_pairs(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows to compare, and the places among them that are followed by their neighbour."""
    if n <= MOST_ROWS:
        return np.arange(n), np.arange(n - 1)
    starts = np.linspace(0, n - 2, MOST_ROWS // 2).astype(np.int64)
    return np.stack([starts, starts + 1], 1).ravel(), np.arange(0, 2 * len(starts), 2)


def _ranks_of_means(features: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Ranks of each feature's mean over the steps of a row, with mean zero and variance one: (rows, features)."""
    real = mask[..., None]
    ranks = rankdata((features * real).sum(1, dtype=np.float64) / real.sum(1), axis=0)
    ranks -= ranks.mean(0)
    return ranks / np.where(ranks.any(0), ranks.std(0), 1.0)
