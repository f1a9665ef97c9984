"""Several clocks at once: the noise along each of them, with bands, and whether it changes over it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from labeltide._clock import Cells, cells_of
from labeltide.chain.data import TrainingEvidence
from labeltide.chain.families import Family, pooled, sum_shape
from labeltide.inference.bands import NoiseEstimate, estimate, share_wrong
from labeltide.inference.bootstrap import REPLICATES, Replicates, chosen_pooling, draw, free_of, smooth
from labeltide.inference.ratio import change_test, ratio_test
from labeltide.inference.temporality import (
    CLASS_LEAST,
    CLASS_REPLICATES,
    SMOOTHNESS,
    PartTemporality,
    allow_runs,
)
from labeltide.inference.temporality import REPLICATES as TEST_REPLICATES

LITTLE = 1e-6  # labels in every cell, so that those without any have an average too


def estimate_clocks(
    training: TrainingEvidence, families: Mapping[str, float], *, n_replicates: int = REPLICATES, seed: int = 0
) -> tuple[NoiseEstimate, ...]:
    """Q along each clock, averaged over the others alike at every moment, with bands.

    Averaged as the labels of each moment lie, a clock without effect of its own would show that of the others: in 12
    simulated studies of 100 sequences its error rates moved by 7.5 points that way, and by 3.1 this way. Pointwise
    bands held the truth at 97 % of moments and more in both; in 24 earlier studies, as labels lie, at 92 and 91 %.
    """
    own = training.parameters.matrices[0].double().numpy()  # (annotators or 1, cells, classes, classes)
    found = draw(training, families, n_replicates, seed)
    cells = cells_of(training.grid, training.period)
    total, lower, upper = share_wrong(own, found)  # of labels as they lie
    estimates = []
    for clock, (axis, period) in enumerate(zip(cells.axes, cells.periods, strict=True)):
        member = (training.grid[:, clock] == axis[:, None]).astype(float)  # (moments, cells)
        weights = np.einsum("mc,aci->amci", member, _spread_alike(found.totals[0] + LITTLE, cells, clock))
        weights /= weights.sum(2, keepdims=True)
        drawn = np.einsum("amci,racij->ramij", weights, found.matrices)
        totals = smooth(member @ found.totals, axis, period)
        along = np.einsum("amci,acij->amij", weights, own)
        one = estimate(axis, along, Replicates(drawn, totals), training.weights())
        estimates.append(replace(one, total=total, total_lower=lower, total_upper=upper))
    return tuple(estimates)


def _spread_alike(totals: np.ndarray, cells: Cells, clock: int) -> np.ndarray:
    """Labels (annotators, cells, classes) that lie over the other clocks alike at every moment of one."""
    shape = (len(totals), *(len(axis) for axis in cells.axes), totals.shape[-1])
    spread = totals.reshape(shape).sum(1 + clock, keepdims=True)
    return np.broadcast_to(spread, shape).reshape(totals.shape)


def judge_clocks(
    training: TrainingEvidence,
    estimates: Sequence[NoiseEstimate],
    families: Mapping[str, float],
    *,
    n_replicates: int = TEST_REPLICATES,
    seed: int = 0,
) -> tuple[PartTemporality, ...]:
    """Whether the noise changes over each clock, while it may change over the others as it likes."""
    training = allow_runs(training)
    clocks = range(training.grid.shape[1])
    free = _moving(training, families, clocks)
    tests = [
        change_test(
            training, _moving(training, families, {*clocks} - {held}), free, n_replicates, seed + 500 + held, clock=held
        )
        for held in clocks
    ]
    return tuple(PartTemporality(*one, own.change) for one, own in zip(tests, estimates, strict=True))


def judge_presence(
    training: TrainingEvidence, families: Mapping[str, float], *, n_replicates: int = CLASS_REPLICATES, seed: int = 0
) -> float:
    """Whether there is any noise: how often labels without mistakes look as noisy."""
    training = allow_runs(training)
    static = _moving(training, families, ())
    return ratio_test(training, None, static, n_replicates, seed + 300, CLASS_LEAST).p_value


def _moving(training: TrainingEvidence, families: Mapping[str, float], over: Collection[int]) -> Family:
    """Noise that may change over some of the clocks."""
    smoothness = [SMOOTHNESS if clock in over else None for clock in range(training.grid.shape[1])]
    kind = free_of(training.data.n_classes, sum_shape(training.grid, smoothness, training.period))
    several = training.parameters.matrices.shape[1] > 1
    return pooled(kind, chosen_pooling(families)) if several else kind
