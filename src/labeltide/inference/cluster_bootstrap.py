r"""Cluster bootstrap of Q(t) (Efron and Tibshirani 1993; Davison and Hinkley 1997, section 3.8; Field and Welsh 2007).

A replicate draws people with replacement, :math:`w^* \sim \mathrm{Multinomial}(G, 1/G)`, gives each row the weight of
its person, and refits the hidden Markov model by a few iterations of EM. The networks' evidence is held fixed. All
replicates are fitted as one fleet of chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, one_period
from labeltide.chain.data import TrainingEvidence
from labeltide.chain.families import Family, Shape, WeightedFamily, family, pooled, spline_shape
from labeltide.chain.passes import expect
from labeltide.chain.select import OTHER_SMOOTHNESS, POOLING_STRENGTHS, SHARING_SMOOTHNESS
from labeltide.chain.start import POOLING
from labeltide.inference.budget import FEW_CLASSES, affordable, coarsen, refine
from labeltide.inference.warm_start import refit, same_data

# docs/decisions/014-bands.md
BAND_REPLICATES, MIN_BAND_REPLICATES = 200, 100
BOOTSTRAP_ITERATIONS = 20  # by hand: of EM for a replicate
SMOOTHNESS_LADDER = tuple(sorted((SHARING_SMOOTHNESS, *OTHER_SMOOTHNESS), reverse=True))  # smoothest first
UNDERSMOOTHING = 1  # by hand: rungs of the ladder by which replicates are rougher than the chosen spline (Hall 1992)
WEAKER_POOLING = 1  # by hand: rungs by which annotators are pooled less in replicates
KERNEL_WIDTH = 0.05  # by hand: standard deviation of the kernel that smooths class counts, as a share of the clock


class Replicates(NamedTuple):
    """Q and the expected labels of each true class over the clock; index 0 is the fit to all rows with weight one."""

    matrices: np.ndarray  # (1 + replicates, annotators or 1, points, classes, classes)
    totals: np.ndarray  # (1 + replicates, annotators or 1, points, classes), smoothed over the clock


def bootstrap_noise(training: TrainingEvidence, n_replicates: int, seed: int) -> Replicates:
    """Refit Q to bootstrap samples of people, all replicates as one fleet of chains.

    With several clocks the result is on their cells, and class counts are not smoothed.
    """
    coarse = coarsen(training)
    data, grid = coarse.data, coarse.grid
    replicate_family = rough_family(data.n_classes, grid, training.families, training.period)
    if coarse.parameters.matrices.shape[1] > 1:
        replicate_family = pooled(replicate_family, weaker_pooling(training.families))
    count = affordable(data, replicate_family, BOOTSTRAP_ITERATIONS, n_replicates, MIN_BAND_REPLICATES)
    drawn = draw_rows(data.labels.shape[1], coarse.clusters, count, seed)
    weights = torch.from_numpy(np.concatenate([np.ones((1, drawn.shape[1])), drawn])).float()
    members = same_data(len(weights), weights)
    fitted = refit(data, members, [replicate_family] * len(weights), coarse.parameters, BOOTSTRAP_ITERATIONS).parameters
    totals = expect(data, members, fitted).counts.sum(-1).double().numpy()  # (members, annotators, points, classes)
    matrices = fitted.matrices.double().numpy()
    if grid.ndim == 2:
        return Replicates(matrices, totals)
    totals *= data.n_points / len(training.grid)  # from a coarse point to one of the points joined in it
    smoothed = smooth(totals, grid, one_period(training.period))
    return Replicates(_refine(matrices, grid, training), _refine(smoothed, grid, training))


def draw_rows(rows: int, clusters: Tensor | None, count: int, seed: int) -> np.ndarray:
    """How often each row is drawn, (count, rows); all rows of a cluster are drawn together.

    With a single cluster, or none known, rows are the units that are drawn.
    """
    generator = np.random.default_rng([seed, 6])
    if clusters is not None:
        names, cluster_of_row = np.unique(clusters.numpy(), return_inverse=True)
        if len(names) > 1:
            return generator.multinomial(len(names), np.full(len(names), 1 / len(names)), count)[:, cluster_of_row]
    return generator.multinomial(rows, np.full(rows, 1 / rows), count)


def rough_family(n_classes: int, grid: np.ndarray, families: Sequence[WeightedFamily], period: Period = None) -> Family:
    """An undersmoothed spline: its smoothing bias is small beside its spread (Hall 1992)."""
    return chosen_spline(n_classes, grid, families, period, UNDERSMOOTHING)


def chosen_spline(
    n_classes: int, grid: np.ndarray, families: Sequence[WeightedFamily], period: Period = None, rougher: int = 0
) -> Family:
    """The spline whose smoothness has the largest weight by held-out likelihood, or one some rungs rougher."""
    weights = [sum(tried.weight for tried in families if tried.smoothness == value) for value in SMOOTHNESS_LADDER]
    best = int(np.argmax(weights)) if max(weights) > 0 else len(SMOOTHNESS_LADDER) - 1
    return free_family(n_classes, grid, SMOOTHNESS_LADDER[min(best + rougher, len(SMOOTHNESS_LADDER) - 1)], period)


def chosen_pooling(families: Sequence[WeightedFamily]) -> float:
    """The strength of partial pooling with the largest weight by held-out likelihood."""
    weights = {
        value: sum(tried.weight for tried in families if tried.pooling == value)
        for value in (POOLING, *POOLING_STRENGTHS)
    }
    return max(weights, key=weights.__getitem__)


def weaker_pooling(families: Sequence[WeightedFamily]) -> float:
    """Weaker pooling than the chosen one, so that shrinkage to the common Q biases an annotator's Q little."""
    strengths = sorted((POOLING, *POOLING_STRENGTHS))
    return strengths[max(strengths.index(chosen_pooling(families)) - WEAKER_POOLING, 0)]


def free_family(n_classes: int, grid: np.ndarray, smoothness: float, period: Period = None) -> Family:
    """A penalised spline for each entry of Q; with more than three classes, one for each row of Q."""
    return free_of(n_classes, spline_shape(grid, smoothness, period))


def free_of(n_classes: int, shape: Shape) -> Family:
    """The same with any shape over the clock."""
    return family(n_classes, shape, "each", "each" if n_classes <= FEW_CLASSES else "by class")


def smooth(totals: np.ndarray, grid: np.ndarray, period: float | None = None) -> np.ndarray:
    """Gaussian kernel smoother of (..., points, classes) counts over the clock (Nadaraya 1964; Watson 1964)."""
    width = KERNEL_WIDTH * (period or grid[-1] - grid[0]) or 1.0
    distance = np.abs(grid[:, None] - grid)
    if period is not None:
        distance = np.minimum(distance, period - distance)  # the shorter way round
    kernel = np.exp(-0.5 * (distance / width) ** 2)
    return (kernel / kernel.sum(1, keepdims=True)) @ totals


def _refine(values: np.ndarray, coarse: np.ndarray, training: TrainingEvidence) -> np.ndarray:
    """`refine` for (replicates, annotators, coarse points, ...) values."""
    flat = refine(values.reshape(-1, *values.shape[2:]), coarse, training.grid, one_period(training.period))
    return flat.reshape(*values.shape[:2], *flat.shape[1:])
