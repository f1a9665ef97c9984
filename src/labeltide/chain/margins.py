r"""Errors near class boundaries: Q(t) that also depends on the features of a step (instance-dependent noise).

Steps are grouped by the quantiles of a level, and the logits of Q are the sum of a spline over the clock and one over
these groups. There are two levels. The margin is the difference of the two largest likelihood ratios of the step's own
features (boundary-consistent noise, Menon, van Rooyen and Natarajan 2018). The networks' log-odds hold what networks
have learned of the errors themselves: where errors follow the features, networks learn them as if they were the truth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, one_period
from labeltide.chain.data import ChainData
from labeltide.chain.families import Family, family, sum_shape

GROUPS = 40  # of steps, by their level; with 8, held-out likelihood was lower by 20 and 45 on two data sets
MARGIN_MOMENTS = 10  # of the clock, for which Q is estimated
SMOOTHNESS = 10.0  # roughness penalty of both splines


class MarginCells(NamedTuple):
    """Every combination of a moment of the clock and a group of levels; cells of one moment stand together."""

    thresholds: Tensor  # (GROUPS - 1,), levels between the groups
    levels: np.ndarray  # (GROUPS,), the mean level of each
    moments: np.ndarray  # of the clock

    def places(self, points: Tensor, levels: Tensor, n_points: int) -> Tensor:
        """The cell of each step, from its place among `n_points` of the clock: (rows, steps)."""
        moment = points * len(self.moments) // n_points
        return moment * (len(self.thresholds) + 1) + torch.bucketize(levels.contiguous(), self.thresholds)

    def family(self, n_classes: int, period: Period) -> Family:
        """Multinomial logits that are a spline over the clock plus one over the groups."""
        moments = np.repeat(self.moments, len(self.levels))
        grid = np.stack([moments, np.tile(self.levels, len(self.moments))], 1)
        shape = sum_shape(grid, (SMOOTHNESS, SMOOTHNESS), (one_period(period), None))
        return family(n_classes, shape, "each", "each" if n_classes == 2 else "by class")


def find_margins(ratios: Tensor) -> Tensor:
    """The largest less the second largest of (..., classes) likelihood ratios."""
    top = ratios.topk(2, -1).values
    return top[..., 0] - top[..., 1]


def find_log_odds(log_probs: Tensor) -> Tensor:
    """Of the second of two classes: (..., 2) to (...)."""
    return log_probs[..., 1] - log_probs[..., 0]


def margin_cells(data: ChainData, grid: np.ndarray, levels: Tensor) -> tuple[ChainData, MarginCells]:
    """The data of one fit with cells in place of points of the clock, and the cells.

    Parameters
    ----------
    grid : the moments of the clock
    levels : Tensor of shape (rows, steps), by which steps are grouped
    """
    shares = torch.linspace(0, 1, GROUPS + 1, device=levels.device)[1:-1].to(levels)
    thresholds = torch.quantile(_few(levels[data.mask]), shares)
    means = _group_means(levels[data.mask], thresholds)
    count = min(MARGIN_MOMENTS, data.n_points)
    moment = np.arange(data.n_points) * count // data.n_points
    cells = MarginCells(thresholds, means, np.bincount(moment, grid) / np.bincount(moment))
    places = cells.places(data.places(), levels, data.n_points)
    return replace(data, points=places, n_points=count * GROUPS), cells


def _group_means(levels: Tensor, thresholds: Tensor) -> np.ndarray:
    """The mean level of each group; of an empty one, where levels tie, that of the group before."""
    group = torch.bucketize(levels.contiguous(), thresholds).cpu().numpy()
    values = levels.double().cpu().numpy()
    counts = np.bincount(group, minlength=len(thresholds) + 1)
    means = np.bincount(group, values, len(counts)) / counts.clip(1)
    return np.maximum.accumulate(np.where(counts > 0, means, values.min()))


def _few(values: Tensor, most: int = 2**20) -> Tensor:
    """Evenly spread values; quantiles of more are not computed by torch."""
    return values[:: -(-len(values) // most)]
