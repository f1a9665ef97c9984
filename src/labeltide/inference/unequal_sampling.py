r"""Sampling with unequal inclusion probabilities that are exact and known: randomised systematic sampling.

Labels are put in random order, their inclusion probabilities :math:`\pi_i` are added up, and a label is drawn wherever
the running sum passes :math:`u, u + 1, u + 2, \ldots` with one uniform :math:`u` (Madow 1949; in random order Hartley
and Rao 1962). The size is fixed, and label i is drawn with probability :math:`\pi_i` exactly. Within strata that follow
each other the order is random, which spreads the sample over them in proportion (implicit stratification).
"""

from __future__ import annotations

import numpy as np


def inclusion_probabilities(uncertainty: np.ndarray, n: int, floor: float) -> np.ndarray:
    r"""Inclusion probabilities that add up to n: partly equal, partly in proportion to the uncertainty.

    :math:`\pi_i = \min(1, c\,(f + (1 - f)\, s_i / \bar s))` with :math:`s_i = \sqrt{p_i (1 - p_i)}` and the floor f.
    Without the floor this is Neyman's (1934) allocation for a model whose probabilities are right. The floor bounds
    what a wrong model can cost: no label's probability is below f n / N.

    Parameters
    ----------
    uncertainty : array of shape (labels,)
        Probability that each label is wrong.
    n : int, at most the number of labels
    floor : float in (0, 1]
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
    """The numbers of the drawn labels, in random order.

    Parameters
    ----------
    inclusion : array of shape (labels,), adding up to a whole number
    strata : int array of shape (labels,), optional
    """
    shuffled = rng.permutation(len(inclusion))
    order = shuffled if strata is None else shuffled[np.argsort(strata[shuffled], kind="stable")]
    chosen = order[passed_marks(inclusion[order], rng.random())]
    return rng.permutation(chosen)


def passed_marks(inclusion: np.ndarray, start: float) -> np.ndarray:
    """True where the running sum of the inclusion probabilities passes one of start, start + 1, ...

    The last sum is rounded to the whole number it stands for, so that rounding errors never change the size.
    """
    sums = np.cumsum(inclusion)
    sums[-1] = np.rint(sums[-1])
    marks = np.floor(sums - start)
    return np.diff(marks, prepend=np.floor(-start)) > 0
