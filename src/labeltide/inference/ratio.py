"""Likelihood ratios of two families of noise, and how rare they are: among drawn labels, or among swapped moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members, TrainingEvidence
from labeltide.chain.families import Family, constant_shape, family
from labeltide.inference.coarse import affordable
from labeltide.inference.refit import ITERATIONS, reached, refit, same_data
from labeltide.inference.resample import resample_labels
from labeltide.inference.swaps import find_swaps, swap_moments

LEAST = 39  # replicates where they cost much; p-values can still fall below .05
OBSERVED_ITERATIONS = 30
FORGETTING = 60  # iterations of EM after which a chain no longer leans to the moments with which it was fitted
ONE_BY_ONE = 2  # times what a replicate costs among many, where each is fitted alone
SOME = 0.2  # of the labels wrong: where EM starts to look for mistakes


class Result(NamedTuple):
    """A likelihood ratio and how rare it is."""

    statistic: float
    p_value: float


def change_test(
    training: TrainingEvidence,
    null: Family,
    alternative: Family,
    n_replicates: int,
    seed: int,
    least: int = LEAST,
    clock: int = 0,
) -> Result:
    """Whether the noise changes over a clock in the way that only the alternative allows.

    Labels of one row share more than a chain knows: who was ill, what was recorded, how hard it was. Where rows lie at
    different moments, that alone makes some moments look worse than others, and labels drawn from a chain vary too
    little. The moments of rows are then swapped, which leaves everything else as it is. Neighbouring rows that have
    something in common are torn apart: where a cause lasts for many rows of few people, it may still pass for a change.
    """
    groups = find_swaps(training, clock)
    if not groups:
        return ratio_test(training, null, alternative, n_replicates, seed, least)
    data, alone = training.data, same_data(1, torch.ones(1, len(training.data.mask)))
    stays = not np.ptp(null.design, axis=0).any()
    iterations = ONE_BY_ONE * ITERATIONS * (1 if stays else 3)
    n_replicates = affordable(data, alternative, iterations, n_replicates, least)
    static = family(data.n_classes, constant_shape(np.arange(data.n_points)), "each")  # which knows no moments
    start = refit(data, alone, [static], training.parameters, FORGETTING).parameters
    generator = np.random.default_rng([seed, 12])
    if stays:
        lower = reached(refit(data, alone, [null], start), alone)  # the same whatever moments rows have

    def ratio(points: Tensor) -> float:
        moved = replace(data, points=points)
        if stays:
            return max(0.0, 2 * float(reached(refit(moved, alone, [alternative], start), alone) - lower))
        begin = refit(moved, alone, [null], start).parameters
        return float(_ratios(moved, alone, begin, null, alternative, [begin])[0])

    own = ratio(data.places())
    swapped = [ratio(swap_moments(training, groups, generator, clock)) for _ in range(n_replicates)]
    return Result(own, float((1 + (np.array(swapped) >= own).sum()) / (1 + n_replicates)))


def ratio_test(
    training: TrainingEvidence,
    null: Family | None,
    alternative: Family,
    n_replicates: int,
    seed: int,
    least: int = LEAST,
) -> Result:
    """Fit both families to the recorded labels and to labels drawn from the null; None means no mistakes at all.

    Without mistakes, the power of the evidence is held at its fitted value: a chain that may doubt its networks
    takes every mistake for an honest surprise.

    Drawn labels keep the evidence, the gaps and the trusted labels. The p-value counts the recorded labels among
    the drawn ones, so it is never zero.
    """
    n_replicates = affordable(training.data, alternative, 2 * ITERATIONS, n_replicates, least)
    data, rows = training.data, torch.ones(1, training.data.labels.shape[1])
    alone = same_data(1, rows)
    under_null = refit(data, alone, _each(null, 1), training.parameters, OBSERVED_ITERATIONS, null is not None)
    starts = [under_null.parameters]
    if null is None:  # EM would never leave a Q without mistakes, so it starts from Qs with some
        some = (1 - SOME) * under_null.parameters.matrices + SOME / data.n_classes
        starts = [under_null.parameters._replace(matrices=some), training.parameters]
    own = _ratios(data, alone, under_null.parameters, null, alternative, starts)
    drawn = replace(data, labels=resample_labels(data, under_null.parameters, n_replicates, seed))
    each = torch.arange(n_replicates)
    members = Members(each, torch.zeros_like(each), rows.expand(n_replicates, -1))
    ratios = _ratios(drawn, members, under_null.parameters, null, alternative, starts)
    return Result(float(own[0]), float((1 + (ratios >= own[0]).sum()) / (1 + n_replicates)))


def _ratios(
    data: ChainData,
    members: Members,
    under_null: ChainParameters,
    null: Family | None,
    alternative: Family,
    starts: Sequence[ChainParameters],
) -> np.ndarray:
    """Twice the gain in log-likelihood of each member; replicates go through the very same steps as the recorded."""
    count = len(members.labels)
    lower = reached(refit(data, members, _each(null, count), under_null, learn_power=null is not None), members)
    fits = [refit(data, members, [alternative] * count, one, learn_power=null is not None) for one in starts]
    upper = [reached(fitted, members) for fitted in fits]
    return (2 * (torch.stack(upper).amax(0) - lower)).clamp_min(0.0).numpy()


def _each(null: Family | None, count: int) -> list[Family] | None:
    return None if null is None else [null] * count
