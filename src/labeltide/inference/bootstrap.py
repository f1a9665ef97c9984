"""Draw sequences again and again, and learn Q(t) from each draw: how far the estimate could have fallen elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from labeltide.chain.data import TrainingEvidence
from labeltide.chain.families import Family, family, spline_shape
from labeltide.chain.passes import expect
from labeltide.inference.coarse import MANY, affordable, coarsen, refine
from labeltide.inference.refit import refit, same_data

REPLICATES, LEAST = 200, 100
ITERATIONS = 20  # of EM for each: spreads of Q are then within 4 % of those after 50, where features help at all
SMOOTHNESS = (1000.0, 100.0, 10.0, 1.0, 0.1)  # as chain.select tries them
ROUGHER = 1  # steps by which bands are smoothed less than the likelihood of sequences left out asks for
NARROW = 0.05  # of the clock, over which shares of classes are averaged


class Replicates(NamedTuple):
    """Q and the labels of each true class over the clock; the first of each is learned from all sequences."""

    matrices: np.ndarray  # (1 + replicates, points, classes, classes)
    totals: np.ndarray  # (1 + replicates, points, classes), smoothed over the clock


def draw(training: TrainingEvidence, families: Mapping[str, float], n_replicates: int, seed: int) -> Replicates:
    """Learn Q anew from sequences drawn with replacement, all replicates as one fleet of chains."""
    data, parameters, _, grid = coarsen(training)
    rows = data.labels.shape[1]
    kind = rough_family(data.n_classes, grid, families)
    count = affordable(data, kind, ITERATIONS, n_replicates, LEAST)
    counts = np.random.default_rng([seed, 6]).multinomial(rows, np.full(rows, 1 / rows), count)
    weights = torch.from_numpy(np.concatenate([np.ones((1, rows)), counts])).float()
    members = same_data(len(weights), weights)
    fitted = refit(data, members, [kind] * len(weights), parameters, ITERATIONS).parameters
    totals = expect(data, members, fitted).counts[:, 0].sum(-1).double().numpy()
    totals *= data.n_points / len(training.grid)  # of one moment, where several were joined
    found = (fitted.matrices[:, 0].double().numpy(), smooth(totals, grid))
    return Replicates(*(refine(values, grid, training.grid) for values in found))


def rough_family(n_classes: int, grid: np.ndarray, families: Mapping[str, float]) -> Family:
    """A spline that is rougher than the best one, so that what smoothing hides is small beside the spread."""
    weights = [
        sum(weight for name, weight in families.items() if name.startswith(f"spline {value:g},"))
        for value in SMOOTHNESS
    ]
    best = int(np.argmax(weights)) if max(weights) > 0 else len(SMOOTHNESS) - 1
    smoothness = SMOOTHNESS[min(best + ROUGHER, len(SMOOTHNESS) - 1)]
    return free_family(n_classes, grid, smoothness)


def free_family(n_classes: int, grid: np.ndarray, smoothness: float) -> Family:
    """A spline for each entry of Q, or with more than three classes for each row."""
    movement = "each" if n_classes <= MANY else "by class"
    return family(n_classes, spline_shape(grid, smoothness), "each", movement)


def smooth(totals: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Average (..., points, classes) over neighbouring moments, so that shares of classes do not jump by chance."""
    width = NARROW * (grid[-1] - grid[0]) or 1.0
    kernel = np.exp(-0.5 * ((grid[:, None] - grid) / width) ** 2)
    return (kernel / kernel.sum(1, keepdims=True)) @ totals
