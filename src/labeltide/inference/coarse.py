"""Keep inference affordable: fewer moments of the clock, and fewer replicates where one costs much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from labeltide.chain.data import ChainData, TrainingEvidence
from labeltide.chain.families import Family

MOMENTS, MOMENTS_OF_MANY = 50, 24  # up to three classes, and beyond
MANY = 3
WORK = 4e10  # multiplications that the replicates of one question may take: seconds on two cores
PASS = 30  # multiplications of one pass for each step and pair of classes


def coarsen(training: TrainingEvidence) -> TrainingEvidence:
    """Join neighbouring moments of the clock, so that Q is learned at no more than some dozens of them."""
    data, parameters, grid = training.data, training.parameters, training.grid
    most = MOMENTS if data.n_classes <= MANY else MOMENTS_OF_MANY
    if len(grid) <= most or grid.ndim == 2:  # cells of several clocks are few enough
        return training
    cell = np.arange(len(grid)) * most // len(grid)
    average = np.eye(most)[:, cell] / np.bincount(cell)[:, None]  # (cells, points)
    matrices = torch.einsum("cp,map...->mac...", torch.from_numpy(average).to(parameters.matrices), parameters.matrices)
    points = torch.from_numpy(cell)[data.places()]
    coarse = replace(data, points=points, n_points=most)
    return training._replace(data=coarse, parameters=parameters._replace(matrices=matrices), grid=average @ grid)


def refine(values: np.ndarray, coarse: np.ndarray, grid: np.ndarray, period: float | None = None) -> np.ndarray:
    """Straight lines between (replicates, coarse points, ...) values, at all points of the grid."""
    if len(coarse) == len(grid):
        return values
    if period is not None:  # beyond either end lies the other
        coarse = np.concatenate([coarse[-1:] - period, coarse, coarse[:1] + period])
        values = np.concatenate([values[:, -1:], values, values[:, :1]], 1)
    right = np.searchsorted(coarse, grid).clip(1, len(coarse) - 1)
    share = ((grid - coarse[right - 1]) / (coarse[right] - coarse[right - 1])).clip(0, 1)
    share = share.reshape(-1, *(1,) * (values.ndim - 2))
    return values[:, right - 1] * (1 - share) + values[:, right] * share


def affordable(data: ChainData, family: Family, iterations: int, wanted: int, least: int) -> int:
    """How many replicates to draw: those wanted, or as many as cost no more than `WORK`, but never fewer than least."""
    newton = family.design.size * family.design.shape[2] * (1 if family.pooling is None else data.labels.shape[-1])
    one = iterations * (newton + PASS * int(data.mask.sum()) * data.n_classes**2)
    return max(min(wanted, least), min(wanted, int(WORK // one)))
