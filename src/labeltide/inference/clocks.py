"""Several clocks: partial dependence of Q on each clock with bands, and a test of each clock's effect.

The effects of the clocks add up on the logit scale. Along one clock, Q is averaged over the marginal distribution of
the others (partial dependence, Friedman 2001; direct standardisation).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labeltide._clock import Cells, cells_of
from labeltide.chain.data import TrainingEvidence
from labeltide.chain.families import Family, pooled, sum_shape
from labeltide.inference.bands import NoiseEstimate, estimate, share_wrong
from labeltide.inference.change import change_test
from labeltide.inference.cluster_bootstrap import (
    BAND_REPLICATES,
    Replicates,
    bootstrap_noise,
    chosen_pooling,
    free_of,
    smooth,
)
from labeltide.inference.profile_likelihood import ShareInterval, share_test
from labeltide.inference.temporality import (
    TEST_REPLICATES,
    TEST_SMOOTHNESS,
    PartTemporality,
    allow_bursts,
    part_of,
)

EMPTY_CELL_LABELS = 1e-6  # labels added to every cell, so that cells without any have an average


def estimate_clocks(
    training: TrainingEvidence,
    tested: ShareInterval | None = None,
    *,
    n_replicates: int = BAND_REPLICATES,
    seed: int = 0,
) -> tuple[NoiseEstimate, ...]:
    """Q along each clock with bands, averaged over the marginal distribution of the other clocks.

    Averaged over the conditional distribution at each moment, a clock without effect would show that of the others
    (docs/decisions/014-bands.md).
    """
    matrices = training.parameters.matrices[0].double().numpy()  # (annotators or 1, cells, classes, classes)
    replicates = bootstrap_noise(training, n_replicates, seed)
    cells = cells_of(training.grid, training.period)
    total = share_wrong(matrices, replicates)[0]  # over labels as observed
    tested = tested or share_test(training)
    lower, upper = tested.around(total)
    found: dict[str, Any] = {
        "total": total,
        "total_lower": lower,
        "total_upper": upper,
        "total_p": tested.p_value,
        "false_alarms": tested.false_alarms,
    }
    estimates = []
    for clock, (axis, period) in enumerate(zip(cells.axes, cells.periods, strict=True)):
        in_cell = (training.grid[:, clock] == axis[:, None]).astype(float)  # (moments, cells)
        marginal = _marginal_labels(replicates.totals[0] + EMPTY_CELL_LABELS, cells, clock)
        weights = np.einsum("mc,aci->amci", in_cell, marginal)
        weights /= weights.sum(2, keepdims=True)
        along_clock = Replicates(
            matrices=np.einsum("amci,racij->ramij", weights, replicates.matrices),
            totals=smooth(in_cell @ replicates.totals, axis, period),
        )
        of_clock = estimate(axis, np.einsum("amci,acij->amij", weights, matrices), along_clock, training.weights())
        estimates.append(replace(of_clock, **found))
    return tuple(estimates)


def _marginal_labels(totals: np.ndarray, cells: Cells, clock: int) -> np.ndarray:
    """Labels (annotators, cells, classes) with the marginal distribution of the other clocks at every moment of one."""
    shape = (len(totals), *(len(axis) for axis in cells.axes), totals.shape[-1])
    marginal = totals.reshape(shape).sum(1 + clock, keepdims=True)
    return np.broadcast_to(marginal, shape).reshape(totals.shape)


def judge_clocks(
    training: TrainingEvidence,
    estimates: Sequence[NoiseEstimate],
    *,
    n_replicates: int = TEST_REPLICATES,
    seed: int = 0,
) -> tuple[PartTemporality, ...]:
    """Test for each clock whether the noise changes over it; under the null it may still change over the others."""
    training = allow_bursts(training)
    clocks = range(training.grid.shape[1])
    free = _moving(training, clocks)
    tests = [
        change_test(training, _moving(training, {*clocks} - {held}), free, n_replicates, seed + 500 + held, clock=held)
        for held in clocks
    ]
    return tuple(part_of(test, of_clock.change) for test, of_clock in zip(tests, estimates, strict=True))


def _moving(training: TrainingEvidence, over: Collection[int]) -> Family:
    """The family of noise that may change over some of the clocks."""
    smoothness = [TEST_SMOOTHNESS if clock in over else None for clock in range(training.grid.shape[1])]
    unpooled = free_of(training.data.n_classes, sum_shape(training.grid, smoothness, training.period))
    several = training.parameters.matrices.shape[1] > 1
    return pooled(unpooled, chosen_pooling(training.families)) if several else unpooled
