"""Computational budget of inference: a coarser grid of the clock, and fewer replicates where one is expensive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from labeltide.chain.data import ChainData, TrainingEvidence
from labeltide.chain.families import Family

FEW_CLASSES = 3
GRID_POINTS, GRID_POINTS_OF_MANY_CLASSES = 50, 24  # with at most FEW_CLASSES, and with more
MAX_OPERATIONS = 4e10  # multiplications for all replicates of one test or band: seconds on two cores
OPERATIONS_PER_STEP = 30  # multiplications of one forward-backward pass per step and pair of classes, or annotator
POOLED_SOLVES = 6  # products of blocks in a Newton step of pooled annotators


def coarsen(training: TrainingEvidence) -> TrainingEvidence:
    """Join neighbouring points of the clock grid, so that Q is estimated at no more than 50, or 24, points."""
    data, parameters, grid = training.data, training.parameters, training.grid
    n_points = GRID_POINTS if data.n_classes <= FEW_CLASSES else GRID_POINTS_OF_MANY_CLASSES
    if len(grid) <= n_points or grid.ndim == 2:
        return training
    cell = np.arange(len(grid)) * n_points // len(grid)
    average = np.eye(n_points)[:, cell] / np.bincount(cell)[:, None]  # (cells, points)
    matrices = torch.einsum("cp,map...->mac...", torch.from_numpy(average).to(parameters.matrices), parameters.matrices)
    points = torch.from_numpy(cell)[data.places()]
    coarse = replace(data, points=points, n_points=n_points)
    return training._replace(data=coarse, parameters=parameters._replace(matrices=matrices), grid=average @ grid)


def refine(values: np.ndarray, coarse: np.ndarray, grid: np.ndarray, period: float | None = None) -> np.ndarray:
    """Linear interpolation of (replicates, coarse points, ...) values at all points of the grid."""
    if len(coarse) == len(grid):
        return values
    if period is not None:  # a periodic clock continues at either end
        coarse = np.concatenate([coarse[-1:] - period, coarse, coarse[:1] + period])
        values = np.concatenate([values[:, -1:], values, values[:, :1]], 1)
    right = np.searchsorted(coarse, grid).clip(1, len(coarse) - 1)
    share = ((grid - coarse[right - 1]) / (coarse[right] - coarse[right - 1])).clip(0, 1)
    share = share.reshape(-1, *(1,) * (values.ndim - 2))
    return values[:, right - 1] * (1 - share) + values[:, right] * share


def affordable(data: ChainData, family: Family, iterations: int, wanted: int, minimum: int) -> int:
    """Number of replicates: those wanted, or as many as `MAX_OPERATIONS` allow, but at least the minimum."""
    annotators = data.labels.shape[-1]
    solves, groups = (1, 1) if family.pooling is None else (POOLED_SOLVES, annotators)
    newton = groups * family.n_classes * family.of_class**2 * (len(family.basis) + solves * family.of_class)
    passed = int(data.mask.sum()) * data.n_classes * (data.n_classes + annotators)
    per_replicate = iterations * (newton + OPERATIONS_PER_STEP * passed)
    return max(min(wanted, minimum), min(wanted, int(MAX_OPERATIONS // per_replicate)))
