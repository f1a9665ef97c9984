"""Tests of the noise: does it change over the clock, in which class or annotator, is there any at all.

Tests of change are score tests or parametric bootstrap tests, by the design of the study (`change.py`); the other two
are parametric bootstrap tests (`likelihood_ratio.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from labeltide.chain.data import TrainingEvidence
from labeltide.chain.families import Family, constant_shape, family, hold_annotator, hold_class, pooled, spline_shape
from labeltide.chain.start import BURSTS, BURSTS_WORTH
from labeltide.inference.budget import coarsen
from labeltide.inference.change import ChangeTest, change_test, change_tests
from labeltide.inference.cluster_bootstrap import chosen_pooling, free_family
from labeltide.inference.displays import TemporalityDisplay
from labeltide.inference.likelihood_ratio import OBSERVED_ITERATIONS, likelihood_ratio_test
from labeltide.inference.noise_estimate import Change, NoiseEstimate
from labeltide.inference.reconcile import agree_change, presence_p
from labeltide.inference.warm_start import refit, same_data, weighted_log_likelihood

TEST_REPLICATES = 199
PART_REPLICATES = 99  # for each class or annotator, for any noise at all, and for differences between classes
MAX_TESTED_CLASSES = 24  # that are tested by themselves, the commonest; each takes a fit with the Q of all classes
MIN_PART_REPLICATES = 24  # where replicates are expensive; p-values can still fall below .05
TEST_SMOOTHNESS = 10.0  # by hand: of the spline of the alternative (docs/decisions/015-tests-of-change.md)
WEAK_POOLING = 0.1  # by hand: of annotators where one of them is tested, so that the others hardly pull that one


class PartTemporality(NamedTuple):
    """Test of whether the noise of one true class, of one annotator or over one of several clocks changes."""

    statistic: float
    p_value: float  # NaN where it cannot be told
    change: Change
    method: str = "bootstrap"  # the reference distribution, see Temporality
    n_units: int = 0  # people, or rows where people are not known


@dataclass(frozen=True, repr=False)
class Temporality(TemporalityDisplay):
    """Tests of static against temporal noise, with effect sizes.

    Attributes
    ----------
    statistic : float
        The score statistic of a change over the clock; by parametric bootstrap twice the gain in log-likelihood.
    p_value : float
        Of the null that the noise does not change over the clock; NaN where it cannot be told.
    method : str
        The reference distribution of the test, chosen by the design of the study. "people": the signs of people's
        contributions are flipped, and nothing is assumed about the windows of one person. "rotations": the windows of
        each of few people are rotated against their moments. "permutations": rows without known people swap their
        moments. "bootstrap": labels are drawn from noise that does not change, where every row runs through the clock.
        "none": people are too few, or causes last too long, for a test that keeps its size; or a class is not among
        the 24 commonest, which alone are tested by themselves.
    n_units : int
        How many people stand behind the test; rows, where people are not known.
    change, change_lower, change_upper : float
        The largest change of the error rate over the clock, with a 95 % interval that excludes zero if and only if the
        p-value is below 5 % (`reconcile.py`).
    worst_at, best_at, worst_rate, best_rate : float
        When labels are worst and best, and how often they are wrong then.
    per_class : tuple of PartTemporality
        The same for the labels of each true class; under the null the noise of the others may change.
    is_noisy_p : float
        p-value of the null that no label is wrong: the larger of that of the likelihood-ratio test, which holds the
        exponent of the evidence fixed, and that of the profile likelihood, which does not. Zero where annotators differ
        on a step, of whom one at least must be wrong.
    classes_differ_p : float
        p-value of the null that all classes have the same noise.
    per_annotator : tuple of PartTemporality
        As for classes, for the labels of each annotator; empty with one annotator.
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
    method: str = "bootstrap"
    n_units: int = 0


def judge_temporality(
    training: TrainingEvidence,
    estimate: NoiseEstimate,
    annotator_estimates: Sequence[NoiseEstimate] = (),
    *,
    is_noisy_p: float | None = None,
    n_replicates: int = TEST_REPLICATES,
    seed: int = 0,
) -> Temporality:
    """Run all tests of one fitted chain; the effect sizes are those of the estimates with bands.

    The test of "no label is wrong" is made here where its p-value is left out.

    Annotators with a Q of their own are pooled with the strength that the fit chose.
    """
    if is_noisy_p is None:
        tested = judge_presence(training, n_replicates=min(n_replicates, PART_REPLICATES), seed=seed)
        is_noisy_p = presence_p(tested, estimate.total_p, training)
    training = allow_bursts(coarsen(training))
    n_classes, grid, annotators = training.data.n_classes, training.grid, training.parameters.matrices.shape[1]
    fewer = min(n_replicates, PART_REPLICATES)
    strength = chosen_pooling(training.families) if annotators > 1 else None
    unpooled = free_family(n_classes, grid, TEST_SMOOTHNESS, training.period)
    free = _pool(unpooled, strength)
    static = _pool(family(n_classes, constant_shape(grid), "each"), strength)
    whole = change_test(training, static, free, n_replicates, seed)
    class_tests = _test_classes(training, free, fewer, seed)
    spline = spline_shape(grid, TEST_SMOOTHNESS, training.period)
    alike, by_class = (
        _pool(family(n_classes, spline, sharing, sharing), strength) for sharing in ("alike", "by class")
    )
    differ = likelihood_ratio_test(training, alike, by_class, fewer, seed + 200, MIN_PART_REPLICATES)
    annotator_tests = _test_annotators(training, unpooled, fewer, seed) if annotators > 1 else []
    annotator_changes = [of_one.change for of_one in annotator_estimates] if annotators > 1 else []
    change = agree_change(estimate.change, whole.p_value)
    return Temporality(
        statistic=whole.statistic,
        p_value=whole.p_value,
        change=change.value,
        change_lower=change.lower,
        change_upper=change.upper,
        worst_at=change.worst_at,
        best_at=change.best_at,
        worst_rate=change.worst_rate,
        best_rate=change.best_rate,
        per_class=_parts(class_tests, estimate.class_change),
        is_noisy_p=is_noisy_p,
        classes_differ_p=differ.p_value,
        per_annotator=_parts(annotator_tests, annotator_changes),
        method=whole.method,
        n_units=whole.n_units,
    )


def judge_presence(training: TrainingEvidence, *, n_replicates: int = PART_REPLICATES, seed: int = 0) -> float:
    """p-value of the null that no label is wrong, by a likelihood-ratio test, with one clock or several."""
    training = allow_bursts(coarsen(training))
    annotators = training.parameters.matrices.shape[1]
    strength = chosen_pooling(training.families) if annotators > 1 else None
    static = _pool(family(training.data.n_classes, constant_shape(training.grid), "each"), strength)
    return likelihood_ratio_test(training, None, static, n_replicates, seed + 300, MIN_PART_REPLICATES).p_value


def _test_classes(training: TrainingEvidence, free: Family, n_replicates: int, seed: int) -> list[ChangeTest]:
    """Test for each of the commonest classes whether its noise changes; under the null the noise of others may."""
    counts = torch.bincount(training.data.labels[training.data.labels >= 0].long(), minlength=training.data.n_classes)
    common = counts.argsort(descending=True, stable=True)[:MAX_TESTED_CLASSES].sort().values.tolist()
    nulls = {seed + 1 + i: hold_class(free, i) for i in common}
    tests = dict(zip(common, change_tests(training, nulls, free, n_replicates, MIN_PART_REPLICATES), strict=True))
    untested = ChangeTest(np.nan, np.nan, "none", 0)
    return [tests.get(i, untested) for i in range(training.data.n_classes)]


def _test_annotators(training: TrainingEvidence, unpooled: Family, n_replicates: int, seed: int) -> list[ChangeTest]:
    """Test for each annotator whether the noise changes; under the null the noise of the others may change."""
    free = pooled(unpooled, WEAK_POOLING)
    annotators = range(training.parameters.matrices.shape[1])
    nulls = {seed + 400 + a: hold_annotator(free, a) for a in annotators}
    return change_tests(training, nulls, free, n_replicates, MIN_PART_REPLICATES)


def part_of(test: ChangeTest, change: Change) -> PartTemporality:
    """A test with its effect size, whose interval agrees with it."""
    return PartTemporality(test.statistic, test.p_value, agree_change(change, test.p_value), test.method, test.n_units)


def _parts(tests: Sequence[ChangeTest], changes: Sequence[Change]) -> tuple[PartTemporality, ...]:
    return tuple(part_of(test, change) for test, change in zip(tests, changes, strict=True))


def allow_bursts(training: TrainingEvidence) -> TrainingEvidence:
    """Model bursts of errors where the likelihood asks for them; otherwise simulated labels vary too little.

    With one annotator the fit has made this choice by likelihood. With several it compares chains by
    leave-one-annotator-out prediction, which may leave bursts out.
    """
    data, chain = training.data, training.parameters
    if chain.matrices.shape[1] == 1 or (chain.bursts is not None and bool(chain.bursts.any())):
        return training
    free = pooled(free_family(data.n_classes, training.grid, TEST_SMOOTHNESS, training.period), WEAK_POOLING)
    single = same_data(1, torch.ones(1, data.labels.shape[1]))
    starts = [chain, chain._replace(bursts=torch.full_like(chain.power, BURSTS))]
    independent, bursty = (refit(data, single, [free], start, OBSERVED_ITERATIONS) for start in starts)
    gain = float(weighted_log_likelihood(bursty, single) - weighted_log_likelihood(independent, single))
    return training._replace(parameters=bursty.parameters) if gain > BURSTS_WORTH else training


def _pool(unpooled: Family, strength: float | None) -> Family:
    return unpooled if strength is None else pooled(unpooled, strength)
