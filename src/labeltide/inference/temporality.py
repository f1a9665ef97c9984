"""Does the noise change over the clock, whose, is there any, do classes differ: ratios judged by replicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from labeltide.chain.data import TrainingEvidence
from labeltide.chain.families import Family, constant_shape, family, hold_annotator, pooled, spline_shape
from labeltide.chain.start import BURSTS, BURSTS_WORTH
from labeltide.inference.bands import Change, NoiseEstimate
from labeltide.inference.bootstrap import chosen_pooling, free_family
from labeltide.inference.coarse import coarsen
from labeltide.inference.ratio import OBSERVED_ITERATIONS, change_test, ratio_test
from labeltide.inference.refit import reached, refit, same_data

REPLICATES = 199
CLASS_LEAST = 24  # where replicates cost much; p-values can still fall below .05
CLASS_REPLICATES = 99  # for each class, and for the two side questions
SMOOTHNESS = 10.0  # of the noise that may change
OWN_POOLING = 0.1  # of annotators, where one of them is asked about: they hardly lean on each other


class PartTemporality(NamedTuple):
    """Whether the noise of one true class, or of one annotator, changes over the clock."""

    statistic: float
    p_value: float
    change: Change


@dataclass(frozen=True)
class Temporality:
    """Static against temporal noise.

    Attributes
    ----------
    statistic : float
        Twice the gain in log-likelihood when Q may change over the clock.
    p_value : float
        How often noise that does not change gives as large a gain; small means that it changes. Where rows lie at
        different moments, it is how often as much is gained once they have swapped them, in an audit those of one
        person among themselves: rows that differ for reasons of their own do not pass for a change, unless the reasons
        last for many rows of few people.
    change, change_lower, change_upper : float
        The largest change of the error rate over the clock, with a 95 % interval.
    worst_at, best_at, worst_rate, best_rate : float
        When labels are worst and best, and how often they are wrong then.
    per_class : tuple of PartTemporality
        The same for the labels of each true class, while the others may change as they like.
    is_noisy_p : float
        How often labels without mistakes look as noisy.
    classes_differ_p : float
        How often noise that is alike for all classes looks as different between them.
    per_annotator : tuple of PartTemporality
        As for classes, for the labels of each annotator; empty where there is but one.
    """

    statistic: float
    p_value: float
    change: float
    change_lower: float
    change_upper: float
    worst_at: float
    best_at: float
    worst_rate: float
    best_rate: float
    per_class: tuple[PartTemporality, ...]
    is_noisy_p: float
    classes_differ_p: float
    per_annotator: tuple[PartTemporality, ...] = ()


def judge_temporality(
    training: TrainingEvidence,
    estimate: NoiseEstimate,
    own: Sequence[NoiseEstimate] = (),
    families: Mapping[str, float] | None = None,
    *,
    n_replicates: int = REPLICATES,
    seed: int = 0,
) -> Temporality:
    """Ask all questions of one fitted chain; the effect sizes are those of the estimates with bands.

    Annotators with a Q of their own are pooled as the families ask for; `own` are their estimates.
    """
    training = allow_runs(coarsen(training))
    n_classes, grid, annotators = training.data.n_classes, training.grid, training.parameters.matrices.shape[1]
    fewer = min(n_replicates, CLASS_REPLICATES)
    strength = chosen_pooling(families or {}) if annotators > 1 else None
    alone = free_family(n_classes, grid, SMOOTHNESS, training.period)
    free = _pool(alone, strength)
    static = _pool(family(n_classes, constant_shape(grid), "each"), strength)
    whole = change_test(training, static, free, n_replicates, seed)
    by_class = [
        change_test(training, hold_class(free, n_classes, i), free, fewer, seed + 1 + i, CLASS_LEAST)
        for i in range(n_classes)
    ]
    spline = spline_shape(grid, SMOOTHNESS, training.period)
    alike, differing = (_pool(family(n_classes, spline, how, how), strength) for how in ("alike", "by class"))
    differ = ratio_test(training, alike, differing, fewer, seed + 200, CLASS_LEAST)
    noisy = ratio_test(training, None, static, fewer, seed + 300, CLASS_LEAST)
    by_annotator = []
    if annotators > 1:
        loose = pooled(alone, OWN_POOLING)
        by_annotator = [
            change_test(training, hold_annotator(loose, a), loose, fewer, seed + 400 + a, CLASS_LEAST)
            for a in range(annotators)
        ]
    return Temporality(
        whole.statistic,
        whole.p_value,
        *estimate.change,
        tuple(PartTemporality(*one, change) for one, change in zip(by_class, estimate.class_change, strict=True)),
        noisy.p_value,
        differ.p_value,
        tuple(PartTemporality(*one, his.change) for one, his in zip(by_annotator, own, strict=annotators > 1)),
    )


def allow_runs(training: TrainingEvidence) -> TrainingEvidence:
    """Let errors come in runs where labels are likelier so, or drawn labels would vary too little.

    With one annotator the fit has asked this; several it judges by how well they foretell each other.
    """
    data, chain = training.data, training.parameters
    if chain.matrices.shape[1] == 1 or (chain.bursts is not None and bool(chain.bursts.any())):
        return training
    kind = pooled(free_family(data.n_classes, training.grid, SMOOTHNESS, training.period), OWN_POOLING)
    alone = same_data(1, torch.ones(1, data.labels.shape[1]))
    starts = [chain, chain._replace(bursts=torch.full_like(chain.power, BURSTS))]
    single, runs = (refit(data, alone, [kind], start, OBSERVED_ITERATIONS) for start in starts)
    worth = float(reached(runs, alone) - reached(single, alone))
    return training._replace(parameters=runs.parameters) if worth > BURSTS_WORTH else training


def hold_class(free: Family, n_classes: int, held: int) -> Family:
    """The same family, but the entries of one true class do not change over the clock."""
    of_held = np.repeat(np.arange(n_classes) == held, n_classes - 1)  # (entries,)
    moves = np.ptp(free.design, axis=0) > 0  # (entries, coefficients)
    dropped = moves[of_held].any(0)
    kept = ~dropped
    return Family(f"{free.name}, class {held} held", free.design[:, :, kept], free.penalty[np.ix_(kept, kept)])


def _pool(one: Family, strength: float | None) -> Family:
    return one if strength is None else pooled(one, strength)
