"""Restricted permutations of the clock: exchangeability within person, or of whole persons (Winkler and others 2015).

Under the null hypothesis the moments of exchangeable rows can be permuted without changing the distribution of the
labels. Rows of one person are exchangeable among themselves; where those lie at the same moments, people are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import cells_of, one_period
from labeltide.chain.data import TrainingEvidence

MIN_VARIANCE_SHARE = 0.5  # of the variance of moments that permutations must move; below it a test has little power
MIN_PERMUTATIONS = 1000


def exchangeable_units(training: TrainingEvidence, clock: int = 0) -> list[np.ndarray]:
    """Exchangeability blocks of shape (units, rows of a unit); empty where permuting them would have little power.

    A unit is one row, exchangeable with rows of the same person and length. Where these lie at the same moments, it is
    a whole person, exchangeable with people whose rows are as many and as long.
    """
    mask = training.data.mask.numpy()
    labelled = ((training.data.labels[0] >= 0).any(-1).numpy() & mask).any(1)
    rows, lengths = np.flatnonzero(labelled), mask.sum(1)
    person = np.zeros(len(mask), dtype=np.int64) if training.clusters is None else training.clusters.numpy()
    people = [rows[person[rows] == name] for name in np.unique(person[rows])]
    single_rows = [np.array([row]) for row in rows]
    moments, steps = _moments(training, clock), mask & labelled[:, None]
    total = float(moments[steps].var(0).sum() * steps.sum()) if len(rows) else 0.0
    for units, within_person in ((single_rows, True), (people, False)):
        blocks = defaultdict(list)
        for unit in units:
            blocks[person[unit[0]] if within_person else None, *lengths[unit]].append(unit)
        groups = [np.stack(block) for block in blocks.values() if len(block) > 1]
        between = sum(_variance_between(moments, mask, group) for group in groups)
        log_permutations = sum(math.lgamma(len(group) + 1) for group in groups)
        if between >= MIN_VARIANCE_SHARE * total > 0 and log_permutations >= math.log(MIN_PERMUTATIONS):
            return groups
    return []


def permute_moments(
    training: TrainingEvidence, groups: Sequence[np.ndarray], generator: np.random.Generator, clock: int = 0
) -> Tensor:
    """The place of each step on the grid, (rows, steps), after a random permutation; other clocks are not permuted."""
    order = np.arange(len(training.data.mask))
    for group in groups:
        order[group.ravel()] = generator.permutation(group).ravel()
    places = training.data.places()
    if training.grid.ndim == 1:
        return places[torch.from_numpy(order)]
    shape = tuple(len(axis) for axis in cells_of(training.grid, training.period).axes)
    place_on_clock = list(np.unravel_index(places.numpy(), shape))  # of each clock: (rows, steps)
    place_on_clock[clock] = place_on_clock[clock][order]
    return torch.from_numpy(np.ravel_multi_index(tuple(place_on_clock), shape))


def _moments(training: TrainingEvidence, clock: int) -> np.ndarray:
    """Moments of steps, (rows, steps, 1), or of a periodic clock as points on a circle, (rows, steps, 2)."""
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


def _variance_between(moments: np.ndarray, mask: np.ndarray, group: np.ndarray) -> float:
    """Sum of squares of moments between the units of a group."""
    real = mask[group][..., None]  # (units, rows, steps, 1)
    lengths = real.sum(2)  # (units, rows, 1), alike for all units
    means = (moments[group] * real).sum(2) / lengths
    return float((lengths * (means - means.mean(0)) ** 2).sum())
