r"""Errors near class boundaries: Q(t) that also depends on how clearly the features of a step speak.

The margin of a step is the difference of the two largest likelihood ratios of its evidence. Steps are grouped by the
quantiles of the margin, and the logits of Q are the sum of a spline over the clock and one over these groups
(boundary-consistent noise, Menon, van Rooyen and Natarajan 2018).
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

GROUPS = 8  # of steps, by their margin
MARGIN_MOMENTS = 10  # of the clock, for which Q is estimated
CLOCK_SMOOTHNESS, MARGIN_SMOOTHNESS = 10.0, 1.0  # roughness penalties of the two splines


class MarginCells(NamedTuple):
    """Every combination of a moment of the clock and a group of margins; cells of one moment stand together."""

    thresholds: Tensor  # (GROUPS - 1,), margins between the groups
    moments: np.ndarray  # of the clock

    def places(self, points: Tensor, margins: Tensor, n_points: int) -> Tensor:
        """The cell of each step, from its place among `n_points` of the clock: (rows, steps)."""
        moment = points * len(self.moments) // n_points
        return moment * (len(self.thresholds) + 1) + torch.bucketize(margins.contiguous(), self.thresholds)

    def family(self, n_classes: int, period: Period) -> Family:
        """Multinomial logits that are a spline over the clock plus one over the groups."""
        levels = np.linspace(0, 1, len(self.thresholds) + 1)
        grid = np.stack([np.repeat(self.moments, len(levels)), np.tile(levels, len(self.moments))], 1)
        shape = sum_shape(grid, (CLOCK_SMOOTHNESS, MARGIN_SMOOTHNESS), (one_period(period), None))
        return family(n_classes, shape, "each", "each" if n_classes == 2 else "by class")


def find_margins(ratios: Tensor) -> Tensor:
    """The largest less the second largest of (..., classes) likelihood ratios."""
    top = ratios.topk(2, -1).values
    return top[..., 0] - top[..., 1]


def margin_cells(data: ChainData, grid: np.ndarray) -> tuple[ChainData, MarginCells]:
    """The data of one fit with cells in place of points of the clock, and the cells."""
    assert data.evidence is not None
    margins = find_margins(data.evidence[0])
    levels = torch.linspace(0, 1, GROUPS + 1, device=margins.device)[1:-1]
    thresholds = torch.quantile(_few(margins[data.mask]), levels)
    count = min(MARGIN_MOMENTS, data.n_points)
    moment = np.arange(data.n_points) * count // data.n_points
    cells = MarginCells(thresholds, np.bincount(moment, grid) / np.bincount(moment))
    places = cells.places(data.places(), margins, data.n_points)
    return replace(data, points=places, n_points=count * GROUPS), cells


def _few(values: Tensor, most: int = 2**20) -> Tensor:
    """Evenly spread values; quantiles of more are not computed by torch."""
    return values[:: -(-len(values) // most)]
