"""Draw sequences again and again, and learn Q(t) from each draw: how far the estimate could have fallen elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, one_period
from labeltide.chain.data import TrainingEvidence
from labeltide.chain.families import Family, Shape, family, pooled, spline_shape
from labeltide.chain.passes import expect
from labeltide.chain.select import STRENGTHS
from labeltide.chain.start import POOLING
from labeltide.inference.coarse import MANY, affordable, coarsen, refine
from labeltide.inference.refit import refit, same_data

REPLICATES, LEAST = 200, 100
ITERATIONS = 20  # of EM for each: spreads of Q are then within 4 % of those after 50, where features help at all
SMOOTHNESS = (1000.0, 100.0, 10.0, 1.0, 0.1)  # as chain.select tries them
ROUGHER = 1  # steps by which bands are smoothed less than the likelihood of sequences left out asks for
WEAKER = 1  # steps by which annotators are pooled less for bands
NARROW = 0.05  # of the clock, over which shares of classes are averaged


class Replicates(NamedTuple):
    """Q and the labels of each true class over the clock; the first of each is learned from all sequences."""

    matrices: np.ndarray  # (1 + replicates, annotators or 1, points, classes, classes)
    totals: np.ndarray  # (1 + replicates, annotators or 1, points, classes), smoothed over the clock


def draw(training: TrainingEvidence, families: Mapping[str, float], n_replicates: int, seed: int) -> Replicates:
    """Learn Q anew from sequences drawn with replacement, all replicates as one fleet of chains.

    Of several clocks, in every cell, with labels as they were counted.
    """
    coarse = coarsen(training)
    data, grid = coarse.data, coarse.grid
    kind = rough_family(data.n_classes, grid, families, training.period)
    if coarse.parameters.matrices.shape[1] > 1:
        kind = pooled(kind, weaker_pooling(families))
    count = affordable(data, kind, ITERATIONS, n_replicates, LEAST)
    counts = draw_rows(data.labels.shape[1], coarse.clusters, count, seed)
    weights = torch.from_numpy(np.concatenate([np.ones((1, counts.shape[1])), counts])).float()
    members = same_data(len(weights), weights)
    fitted = refit(data, members, [kind] * len(weights), coarse.parameters, ITERATIONS).parameters
    totals = expect(data, members, fitted).counts.sum(-1).double().numpy()  # (members, annotators, points, classes)
    matrices = fitted.matrices.double().numpy()
    if grid.ndim == 2:
        return Replicates(matrices, totals)
    totals *= data.n_points / len(training.grid)  # of one moment, where several were joined
    found = (matrices, smooth(totals, grid, one_period(training.period)))
    return Replicates(*(_refine(values, grid, training) for values in found))


def draw_rows(rows: int, clusters: Tensor | None, count: int, seed: int) -> np.ndarray:
    """How often each row is drawn, (count, rows); rows that belong together are drawn together.

    Rows of one cluster alone could not be drawn otherwise; each then stands for itself.
    """
    generator = np.random.default_rng([seed, 6])
    if clusters is not None:
        names, own = np.unique(clusters.numpy(), return_inverse=True)
        if len(names) > 1:
            return generator.multinomial(len(names), np.full(len(names), 1 / len(names)), count)[:, own]
    return generator.multinomial(rows, np.full(rows, 1 / rows), count)


def rough_family(n_classes: int, grid: np.ndarray, families: Mapping[str, float], period: Period = None) -> Family:
    """A spline that is rougher than the best one, so that what smoothing hides is small beside the spread."""
    weights = [
        sum(weight for name, weight in families.items() if name.startswith(f"spline {value:g},"))
        for value in SMOOTHNESS
    ]
    best = int(np.argmax(weights)) if max(weights) > 0 else len(SMOOTHNESS) - 1
    smoothness = SMOOTHNESS[min(best + ROUGHER, len(SMOOTHNESS) - 1)]
    return free_family(n_classes, grid, smoothness, period)


def chosen_pooling(families: Mapping[str, float]) -> float:
    """The strength of pooling that the likelihood of sequences left out asks for."""
    weights = {
        value: sum(weight for name, weight in families.items() if name.endswith(f"pooling {value:g}"))
        for value in (POOLING, *STRENGTHS)
    }
    return max(weights, key=weights.__getitem__)


def weaker_pooling(families: Mapping[str, float]) -> float:
    """Weaker pooling than the best, so that what the common Q hides of an annotator's own is small."""
    strengths = sorted((POOLING, *STRENGTHS))
    return strengths[max(strengths.index(chosen_pooling(families)) - WEAKER, 0)]


def free_family(n_classes: int, grid: np.ndarray, smoothness: float, period: Period = None) -> Family:
    """A spline for each entry of Q, or with more than three classes for each row."""
    return free_of(n_classes, spline_shape(grid, smoothness, period))


def free_of(n_classes: int, shape: Shape) -> Family:
    """The same with any shape in time."""
    return family(n_classes, shape, "each", "each" if n_classes <= MANY else "by class")


def smooth(totals: np.ndarray, grid: np.ndarray, period: float | None = None) -> np.ndarray:
    """Average (..., points, classes) over neighbouring moments, so that shares of classes do not jump by chance."""
    width = NARROW * (period or grid[-1] - grid[0]) or 1.0
    apart = np.abs(grid[:, None] - grid)
    if period is not None:
        apart = np.minimum(apart, period - apart)  # the shorter way round
    kernel = np.exp(-0.5 * (apart / width) ** 2)
    return (kernel / kernel.sum(1, keepdims=True)) @ totals


def _refine(values: np.ndarray, coarse: np.ndarray, training: TrainingEvidence) -> np.ndarray:
    """The same for (replicates, annotators, coarse points, ...) values."""
    flat = refine(values.reshape(-1, *values.shape[2:]), coarse, training.grid, one_period(training.period))
    return flat.reshape(*values.shape[:2], *flat.shape[1:])
