"""Which rows may swap their moments of the clock with each other, and their moments once they have."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import cells_of, one_period
from labeltide.chain.data import TrainingEvidence

WORTH = 0.5  # share of the variance of moments that swaps must move, or a change would hardly show
ORDERS = 1000  # in which rows may stand, at least


def find_swaps(training: TrainingEvidence, clock: int = 0) -> list[np.ndarray]:
    """Groups of the shape (units, rows of a unit) whose units may swap moments; empty where that would tell little.

    A unit is one row, which swaps with rows of the same person and length. Where these lie at the same moments, it is
    a whole person, who swaps with people whose rows are as many and as long.
    """
    mask = training.data.mask.numpy()
    labelled = ((training.data.labels[0] >= 0).any(-1).numpy() & mask).any(1)
    rows, lengths = np.flatnonzero(labelled), mask.sum(1)
    whose = np.zeros(len(mask), dtype=np.int64) if training.clusters is None else training.clusters.numpy()
    people = [rows[whose[rows] == person] for person in np.unique(whose[rows])]
    alone = [np.array([row]) for row in rows]
    moments, steps = _moments(training, clock), mask & labelled[:, None]
    total = float(moments[steps].var(0).sum() * steps.sum()) if len(rows) else 0.0
    for units, bound in ((alone, True), (people, False)):
        kinds = defaultdict(list)
        for unit in units:
            kinds[whose[unit[0]] if bound else None, *lengths[unit]].append(unit)
        groups = [np.stack(same) for same in kinds.values() if len(same) > 1]
        moved = sum(_moved(moments, mask, group) for group in groups)
        orders = sum(math.lgamma(len(group) + 1) for group in groups)
        if moved >= WORTH * total > 0 and orders >= math.log(ORDERS):
            return groups
    return []


def swap_moments(
    training: TrainingEvidence, groups: Sequence[np.ndarray], generator: np.random.Generator, clock: int = 0
) -> Tensor:
    """The place of each step on the grid, (rows, steps), once units have swapped; other clocks stay as they are."""
    order = np.arange(len(training.data.mask))
    for group in groups:
        order[group.ravel()] = generator.permutation(group).ravel()
    places = training.data.places()
    if training.grid.ndim == 1:
        return places[torch.from_numpy(order)]
    shape = tuple(len(axis) for axis in cells_of(training.grid, training.period).axes)
    along = list(np.unravel_index(places.numpy(), shape))  # of each clock: (rows, steps)
    along[clock] = along[clock][order]
    return torch.from_numpy(np.ravel_multi_index(tuple(along), shape))


def _moments(training: TrainingEvidence, clock: int) -> np.ndarray:
    """Where steps lie along a clock, (rows, steps, 1), or on the circle of one that begins anew, (rows, steps, 2)."""
    grid = training.grid
    if grid.ndim == 1:
        axis, period = grid, one_period(training.period)
    else:
        axis, period = grid[:, clock], cells_of(grid, training.period).periods[clock]
    moments = axis[training.data.places().numpy()]
    if period is None:
        return moments[..., None]
    angle = 2 * np.pi * moments / period
    return np.stack([np.cos(angle), np.sin(angle)], -1)


def _moved(moments: np.ndarray, mask: np.ndarray, group: np.ndarray) -> float:
    """How much of the variance of moments lies between the units of a group."""
    real = mask[group][..., None]  # (units, rows, steps, 1)
    lengths = real.sum(2)  # (units, rows, 1), alike for all units
    middles = (moments[group] * real).sum(2) / lengths
    return float((lengths * (middles - middles.mean(0)) ** 2).sum())
