"""Change-point detection by binary segmentation (Scott and Knott 1974) of the expected counts of Q."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

# At least twenty labels on either side of a change point (docs/decisions/007-families-of-q.md). Expected counts sum to
# whole numbers up to rounding, which differs with the size of the fleet: a threshold between two whole numbers is not
# affected.
MIN_COUNT = 19.5  # by hand
TIE = 1e-5  # gains in log-likelihood that differ by less are ties, and the first is taken


def find_pieces(counts: np.ndarray, n_pieces: int) -> np.ndarray:
    """Split the clock greedily, each time where two constant matrices gain the most log-likelihood.

    Parameters
    ----------
    counts : array of shape (points, true, recorded)

    Returns
    -------
    array of shape (points,), the number of each point's piece, from 0; fewer pieces where no split gains
    """
    edges = [0, len(counts)]
    for _ in range(n_pieces - 1):
        gains = [(_best_split(counts[low:high]), low) for low, high in pairwise(edges)]
        (gain, at), low = max(gains, key=lambda split: round(split[0][0] / TIE))
        if gain <= TIE:
            break
        edges = sorted([*edges, low + at])
    return np.searchsorted(edges[1:-1], np.arange(len(counts)), side="right")


def _best_split(counts: np.ndarray) -> tuple[float, int]:
    """The gain in log-likelihood of the best split, and the first point after it."""
    left = counts.cumsum(0)[:-1]  # (points - 1, true, recorded)
    right = counts.sum(0) - left
    gain = _fit(left) + _fit(right) - _fit(counts.sum(0)[None])
    enough = (left.sum((1, 2)) >= MIN_COUNT) & (right.sum((1, 2)) >= MIN_COUNT)
    if not enough.any():
        return 0.0, 0
    best = int(np.where(enough, np.round(gain / TIE), -np.inf).argmax())
    return float(gain[best]), best + 1


def _fit(counts: np.ndarray) -> np.ndarray:
    """Maximised multinomial log-likelihood of counts: (splits, true, recorded) → (splits,)."""
    totals = counts.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nansum(np.where(counts > 0, counts * np.log(counts / totals), 0.0), (1, 2))
