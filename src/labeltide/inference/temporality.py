"""Tests of the noise: does it change over the clock, in which class or annotator, is there any at all.

Tests of change are score tests or parametric bootstrap tests, by the design of the study (`change_test`); the other two
are parametric bootstrap tests (`likelihood_ratio_test`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from labeltide._clock import cells_of
from labeltide.chain.data import TrainingEvidence, same_data
from labeltide.chain.em import BURSTS, BURSTS_WORTH
from labeltide.chain.families import (
    SMOOTH_SHAPES,
    Family,
    constant_shape,
    family,
    hold_annotator,
    hold_class,
    pooled,
    sum_shape,
)
from labeltide.inference.bands import (
    Change,
    NoiseEstimate,
    ShareInterval,
    agree_change,
    estimate,
    presence_p,
    share_test,
    share_wrong,
)
from labeltide.inference.bootstrap import (
    BAND_REPLICATES,
    MIN_TEST_REPLICATES,
    OBSERVED_ITERATIONS,
    Replicates,
    bootstrap_noise,
    chosen_pooling,
    chosen_shape,
    coarsen,
    free_family,
    free_of,
    likelihood_ratio_test,
    p_value,
    refit,
    smooth,
    weighted_log_likelihood,
)
from labeltide.inference.display import TemporalityDisplay
from labeltide.inference.score_tests import (
    NUMBERS_AT_ONCE,
    ClockMoments,
    NullFit,
    Statistic,
    StudyDesign,
    clock_moments,
    compare_with_people,
    find_change,
    fit_null_families,
    flip_signs,
    lasting_causes,
    person_scores,
    rotate_people,
    score_of_moments,
    shuffle_rows,
    step_residuals,
    study_design,
)

TEST_REPLICATES = 199
PART_REPLICATES = 99  # for each class or annotator, for any noise at all, and for differences between classes
MAX_TESTED_CLASSES = 24  # that are tested by themselves, the commonest; each takes a fit with the Q of all classes
MIN_PART_REPLICATES = 24  # where replicates are expensive; p-values can still fall below .05
TEST_SMOOTHNESS = 10.0  # by hand: of the alternative (docs/decisions/015-tests-of-change.md)
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
        p-value is below 5 % (`bands.agree_change`).
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
    kind, _ = chosen_shape(training.families)
    unpooled = free_family(n_classes, grid, TEST_SMOOTHNESS, training.period, kind)
    free = _pool(unpooled, strength)
    static = _pool(family(n_classes, constant_shape(grid), "each"), strength)
    whole = change_test(training, static, free, n_replicates, seed)
    counts = torch.bincount(training.data.labels[training.data.labels >= 0].long(), minlength=n_classes)
    common = counts.argsort(descending=True, stable=True)[:MAX_TESTED_CLASSES].sort().values.tolist()
    nulls = {seed + 1 + i: hold_class(free, i) for i in common}  # under the null the noise of other classes may change
    of_common = dict(zip(common, change_tests(training, nulls, free, fewer, MIN_PART_REPLICATES), strict=True))
    untested = ChangeTest(np.nan, np.nan, "none", 0)
    class_tests = [of_common.get(i, untested) for i in range(n_classes)]
    shape = SMOOTH_SHAPES[kind](grid, TEST_SMOOTHNESS, training.period)
    alike, by_class = (_pool(family(n_classes, shape, sharing, sharing), strength) for sharing in ("alike", "by class"))
    differ = likelihood_ratio_test(training, alike, by_class, fewer, seed + 200, MIN_PART_REPLICATES)
    per_annotator: tuple[PartTemporality, ...] = ()
    if annotators > 1:  # likewise, the noise of other annotators
        weakly = pooled(unpooled, WEAK_POOLING)
        nulls = {seed + 400 + a: hold_annotator(weakly, a) for a in range(annotators)}
        annotator_tests = change_tests(training, nulls, weakly, fewer, MIN_PART_REPLICATES)
        per_annotator = _parts(annotator_tests, [of_one.change for of_one in annotator_estimates])
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
        per_annotator=per_annotator,
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


def _parts(tests: Sequence[ChangeTest], changes: Sequence[Change]) -> tuple[PartTemporality, ...]:
    """Tests with their effect sizes, whose intervals agree with them."""
    return tuple(
        PartTemporality(test.statistic, test.p_value, agree_change(change, test.p_value), test.method, test.n_units)
        for test, change in zip(tests, changes, strict=True)
    )


def allow_bursts(training: TrainingEvidence) -> TrainingEvidence:
    """Model bursts of errors where the likelihood asks for them; otherwise simulated labels vary too little.

    With one annotator the fit has made this choice by likelihood. With several it compares chains by
    leave-one-annotator-out prediction, which may leave bursts out.
    """
    data, chain = training.data, training.parameters
    if chain.matrices.shape[1] == 1 or (chain.bursts is not None and bool(chain.bursts.any())):
        return training
    kind, _ = chosen_shape(training.families)
    free = pooled(free_family(data.n_classes, training.grid, TEST_SMOOTHNESS, training.period, kind), WEAK_POOLING)
    single = same_data(torch.ones(1, data.labels.shape[1]))
    starts = [chain, chain._replace(bursts=torch.full_like(chain.power, BURSTS))]
    independent, bursty = (refit(data, single, [free], start, OBSERVED_ITERATIONS) for start in starts)
    gain = float(weighted_log_likelihood(bursty, single) - weighted_log_likelihood(independent, single))
    return training._replace(parameters=bursty.parameters) if gain > BURSTS_WORTH else training


def _pool(unpooled: Family, strength: float | None) -> Family:
    return unpooled if strength is None else pooled(unpooled, strength)


# Test of whether the noise changes over a clock, with a reference distribution that suits the design of the study.

# Power of slow waves over that of fast ones, above which rotations are not trusted to keep their size
# (docs/decisions/015-tests-of-change.md).
MAX_LASTING = 1.75  # by hand
ROUNDING = 1e-9  # relative difference of statistics that are equal but for the order of sums


class ChangeTest(NamedTuple):
    """A test of change: its statistic, its p-value, its reference distribution and the units behind it."""

    statistic: float  # NaN, like the p-value, where it cannot be told
    p_value: float
    method: str  # one of `score_tests.METHODS`
    n_units: int  # people, or rows where people are not known


def change_test(
    training: TrainingEvidence,
    null: Family,
    alternative: Family,
    n_replicates: int,
    seed: int,
    min_replicates: int = MIN_TEST_REPLICATES,
    clock: int = 0,
) -> ChangeTest:
    """Test whether the noise changes over a clock in the way that only the alternative allows.

    Labels of one person share causes that the chain does not model: illness, equipment, difficulty. Such causes can
    last for many windows. Labels drawn from the chain vary too little then, and shuffled windows lose what connects
    them; by both a cause that lasts passes for a change. The reference distribution is therefore chosen by design
    (`study_design`): a likelihood-ratio test by parametric bootstrap, or a score test by permuted moments or flipped
    signs of people. Where no reference keeps its size, the p-value is NaN and the method is "none".
    """
    (test,) = change_tests(training, {seed: null}, alternative, n_replicates, min_replicates, clock)
    return test


def change_tests(
    training: TrainingEvidence,
    nulls: Mapping[int, Family],
    alternative: Family,
    n_replicates: int,
    min_replicates: int = MIN_TEST_REPLICATES,
    clock: int = 0,
) -> list[ChangeTest]:
    """The same for several nulls, each under its seed, against one alternative; nulls of score tests run together."""
    moments = clock_moments(training, clock)
    designs = {seed: study_design(training, moments, tested_labels(training, null)) for seed, null in nulls.items()}
    scored = [seed for seed, design in designs.items() if design.method not in ("bootstrap", "none")]
    at_once = max(1, NUMBERS_AT_ONCE // (training.data.mask.numel() * training.data.n_classes))  # posteriors in memory
    tests = {}
    for first in range(0, len(scored), at_once):
        part = scored[first : first + at_once]
        for seed, fit in zip(part, fit_null_families(training, [nulls[seed] for seed in part]), strict=True):
            tests[seed] = score_test(fit, moments, designs[seed], nulls[seed], alternative, n_replicates, seed)
    for seed, design in designs.items():
        if design.method == "none":
            tests[seed] = ChangeTest(np.nan, np.nan, "none", design.n_units)
        elif design.method == "bootstrap":
            test = likelihood_ratio_test(training, nulls[seed], alternative, n_replicates, seed, min_replicates)
            used = training.for_bootstrap()
            units = np.flatnonzero(tested_labels(used, nulls[seed]).any(1))
            if used.clusters is not None:
                units = np.unique(used.clusters.numpy()[units])
            tests[seed] = ChangeTest(*test, "bootstrap", len(units))
    return [tests[seed] for seed in nulls]


def score_test(
    fit: NullFit,
    moments: ClockMoments,
    design: StudyDesign,
    null: Family,
    alternative: Family,
    n_replicates: int,
    seed: int,
) -> ChangeTest:
    """Score test of a fitted null, with people, rotations or permutations as its reference."""
    change = find_change(fit, moments, null, alternative)
    generator, statistic = np.random.default_rng([seed, 12]), Statistic.of(fit, change)
    if design.method == "people":
        of_people = person_scores(fit, change, moments, null, _person(design))
        scores = np.concatenate([of_people.sum(0)[None], flip_signs(of_people, n_replicates, generator)])
    else:
        residuals, index = step_residuals(fit, change), moments.axis_index
        if design.method == "permutations":
            moved = shuffle_rows(index, design.units, n_replicates, generator)
        elif lasting_causes(residuals, design.units) > MAX_LASTING:  # rotations would not keep their size
            return ChangeTest(np.nan, np.nan, "none", design.n_units)
        else:
            moved = rotate_people(index, design.mask, design.units, n_replicates, generator)
        scores = np.stack([score_of_moments(residuals, moments_of, change) for moments_of in (index, *moved)])
    observed, *replicates = statistic(scores).tolist()
    p = p_value(observed * (1 - ROUNDING), np.array(replicates))
    if design.method == "rotations":  # approximate; a change must also stand out from how people differ
        of_people = person_scores(fit, change, moments, null, _person(design))
        p = max(p, compare_with_people(of_people, statistic.inverses))
    return ChangeTest(observed, p, design.method, design.n_units)


def tested_labels(training: TrainingEvidence, null: Family) -> np.ndarray:
    """Which steps have labels that the test is about, those of one annotator or of all: (rows, steps)."""
    recorded = (training.data.labels[0] >= 0).numpy() & training.data.mask.numpy()[..., None]
    of_tested: np.ndarray = recorded[..., null.held] if null.held is not None else recorded.any(-1)
    return of_tested


def _person(design: StudyDesign) -> np.ndarray:
    """The number of the person of each row; rows without labels count for the first, to whom they add nothing."""
    person = np.zeros(len(design.mask), dtype=np.int64)
    for number, rows in enumerate(design.units):
        person[rows] = number
    return person


# Several clocks: partial dependence of Q on each clock with bands, and a test of each clock's effect.
#
# The effects of the clocks add up on the logit scale. Along one clock, Q is averaged over the marginal distribution of
# the others (partial dependence, Friedman 2001; direct standardisation).

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
        totals = replicates.totals[0] + EMPTY_CELL_LABELS  # (annotators, cells, classes)
        shape = (len(totals), *(len(axis) for axis in cells.axes), totals.shape[-1])
        marginal = np.broadcast_to(totals.reshape(shape).sum(1 + clock, keepdims=True), shape)
        weights = np.einsum("mc,aci->amci", in_cell, marginal.reshape(totals.shape))
        weights /= weights.sum(2, keepdims=True)
        along_clock = Replicates(
            matrices=np.einsum("amci,racij->ramij", weights, replicates.matrices),
            totals=smooth(in_cell @ replicates.totals, axis, period),
        )
        of_clock = estimate(axis, np.einsum("amci,acij->amij", weights, matrices), along_clock, training.weights())
        estimates.append(replace(of_clock, **found))
    return tuple(estimates)


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
    strength = chosen_pooling(training.families) if training.parameters.matrices.shape[1] > 1 else None

    def moving(held: int | None) -> Family:
        smoothness = [None if clock == held else TEST_SMOOTHNESS for clock in clocks]
        return _pool(free_of(training.data.n_classes, sum_shape(training.grid, smoothness, training.period)), strength)

    free = moving(None)
    tests = [change_test(training, moving(held), free, n_replicates, seed + 500 + held, clock=held) for held in clocks]
    return _parts(tests, [of_clock.change for of_clock in estimates])
