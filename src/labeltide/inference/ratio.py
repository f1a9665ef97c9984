"""Likelihood ratios of two families of noise, and how rare they are: among drawn labels, or among swapped moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from labeltide.chain.data import ChainData, ChainParameters, Members, TrainingEvidence
from labeltide.chain.families import Family, constant_shape, family
from labeltide.inference.coarse import affordable
from labeltide.inference.refit import ITERATIONS, reached, refit, same_data
from labeltide.inference.resample import resample_labels

LEAST = 39  # replicates where they cost much; p-values can still fall below .05
OBSERVED_ITERATIONS = 30
FORGETTING = 60  # iterations of EM after which a chain no longer leans to the moments with which it was fitted
SOME = 0.2  # of the labels wrong: where EM starts to look for mistakes
PART = 1 / 3  # of the clock that rows may run through, on average, for their moments to be swapped
FEWEST = 10  # rows that can swap


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

    Labels of one row share more than a chain knows: who was ill, what was recorded, how hard it was. Where each row
    runs through a small part of the clock, that alone makes some moments look worse than others, and labels drawn from
    a chain vary too little. The moments of rows are then swapped, which leaves everything else as it is.
    """
    groups = swap_groups(training, clock)
    if not groups:
        return ratio_test(training, null, alternative, n_replicates, seed, least)
    data = training.data
    n_replicates = affordable(data, alternative, 2 * ITERATIONS, n_replicates, least)
    alone, places = same_data(1, torch.ones(1, len(data.mask))), data.places()
    static = family(data.n_classes, constant_shape(np.arange(data.n_points)), "each")  # which knows no moments
    start = refit(data, alone, [static], training.parameters, FORGETTING).parameters
    generator = np.random.default_rng([seed, 12])

    def ratio(order: np.ndarray) -> float:
        moved = replace(data, points=places[torch.from_numpy(order)])
        return float(_ratios(moved, alone, start, null, alternative, [start])[0])

    orders = [swap(len(places), groups, generator) for _ in range(n_replicates)]
    own, swapped = ratio(np.arange(len(places))), np.array([ratio(order) for order in orders])
    return Result(own, float((1 + (swapped >= own).sum()) / (1 + n_replicates)))


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


def swap_groups(training: TrainingEvidence, clock: int = 0) -> list[np.ndarray]:
    """Rows as long as each other that may swap moments, those of one person among themselves; empty where none may.

    Where the rows of a person lie at the same moments, all rows swap with each other.
    """
    moments = training.grid if training.grid.ndim == 1 else training.grid[:, clock]
    axis, place = np.unique(moments, return_inverse=True)
    mask = training.data.mask.numpy()
    moment = place[training.data.places().numpy()]  # (rows, steps), places along this clock
    runs = [len(np.unique(own[real])) for own, real in zip(moment, mask, strict=True)]
    if np.mean(runs) > PART * len(axis):
        return []
    middle = (moment * mask).sum(1) / mask.sum(1).clip(1)
    whose = np.zeros(len(mask), dtype=np.int64)
    if training.clusters is not None:
        people = np.unique(training.clusters.numpy(), return_inverse=True)[1]
        own = np.bincount(people, middle) / np.bincount(people)
        if np.var(middle - own[people]) > np.var(own[people]):
            whose = people
    groups = np.unique(np.stack([whose, mask.sum(1)]), axis=1, return_inverse=True)[1].reshape(-1)
    found = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]
    found = [rows for rows in found if len(rows) > 1]
    swapped = np.concatenate([*found, np.zeros(0, dtype=np.int64)])
    enough = len(swapped) >= FEWEST and mask[swapped].sum() > mask.sum() / 2
    return found if enough else []


def swap(count: int, groups: Sequence[np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """An order of so many rows in which those of each group have swapped places."""
    order = np.arange(count)
    for rows in groups:
        order[rows] = generator.permutation(rows)
    return order


def _ratios(
    data: ChainData,
    members: Members,
    under_null: ChainParameters,
    null: Family | None,
    alternative: Family,
    starts: Sequence[ChainParameters],
) -> np.ndarray:
    """Twice the gain in log-likelihood of each member; recorded and drawn labels go through the very same steps."""
    count = len(members.labels)
    lower = reached(refit(data, members, _each(null, count), under_null, learn_power=null is not None), members)
    fits = [refit(data, members, [alternative] * count, one, learn_power=null is not None) for one in starts]
    upper = [reached(fitted, members) for fitted in fits]
    return (2 * (torch.stack(upper).amax(0) - lower)).clamp_min(0.0).numpy()


def _each(null: Family | None, count: int) -> list[Family] | None:
    return None if null is None else [null] * count
