"""Test of whether the noise changes over a clock, with a reference distribution that suits the design of the study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from labeltide.chain.data import TrainingEvidence
from labeltide.chain.families import Family
from labeltide.inference.likelihood_ratio import MIN_TEST_REPLICATES, likelihood_ratio_test, p_value
from labeltide.inference.permutation import (
    lasting_causes,
    rotate_people,
    score_of_moments,
    shuffle_rows,
    step_residuals,
)
from labeltide.inference.score import (
    NUMBERS_AT_ONCE,
    Alternative,
    ClockMoments,
    NullFit,
    Statistic,
    clock_moments,
    find_change,
    fit_null_families,
)
from labeltide.inference.sign_flips import compare_with_people, flip_signs, person_scores
from labeltide.inference.study_design import StudyDesign, study_design

# Power of slow waves over that of fast ones, above which rotations are not trusted to keep their size
# (docs/decisions/015-tests-of-change.md).
MAX_LASTING = 1.75  # by hand
ROUNDING = 1e-9  # relative difference of statistics that are equal but for the order of sums


class ChangeTest(NamedTuple):
    """A test of change: its statistic, its p-value, its reference distribution and the units behind it."""

    statistic: float  # NaN, like the p-value, where it cannot be told
    p_value: float
    method: str  # one of METHODS of study_design.py
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
    (`study_design.py`): a likelihood-ratio test by parametric bootstrap, or a score test by permuted moments or flipped
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
    fits = zip(scored, _fit_in_parts(training, [nulls[seed] for seed in scored]), strict=True)
    tests = {
        seed: score_test(fit, moments, designs[seed], nulls[seed], alternative, n_replicates, seed)
        for seed, fit in fits
    }
    for seed, design in designs.items():
        if design.method == "none":
            tests[seed] = ChangeTest(np.nan, np.nan, "none", design.n_units)
        elif design.method == "bootstrap":
            test = likelihood_ratio_test(training, nulls[seed], alternative, n_replicates, seed, min_replicates)
            tests[seed] = ChangeTest(*test, "bootstrap", _bootstrap_units(training, nulls[seed]))
    return [tests[seed] for seed in nulls]


def _fit_in_parts(training: TrainingEvidence, nulls: Sequence[Family]) -> Iterator[NullFit]:
    """Fits of nulls, of which as many run together as have their posteriors in memory."""
    at_once = max(1, NUMBERS_AT_ONCE // (training.data.mask.numel() * training.data.n_classes))
    for first in range(0, len(nulls), at_once):
        yield from fit_null_families(training, nulls[first : first + at_once])


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
        scores = _moved(fit, change, moments, design, n_replicates, generator)
    if not len(scores):
        return ChangeTest(np.nan, np.nan, "none", design.n_units)
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


def _bootstrap_units(training: TrainingEvidence, null: Family) -> int:
    """The number of people, or of rows, whose labels a parametric bootstrap test is about."""
    part = training.for_bootstrap()
    rows = np.flatnonzero(tested_labels(part, null).any(1))
    return len(rows) if part.clusters is None else len(np.unique(part.clusters.numpy()[rows]))


def _person(design: StudyDesign) -> np.ndarray:
    """The number of the person of each row; rows without labels count for the first, to whom they add nothing."""
    person = np.zeros(len(design.mask), dtype=np.int64)
    for number, rows in enumerate(design.units):
        person[rows] = number
    return person


def _moved(
    fit: NullFit,
    change: Alternative,
    moments: ClockMoments,
    design: StudyDesign,
    n_replicates: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """The observed score, then scores with moved moments; none where rotations would not keep their size."""
    residuals = step_residuals(fit, change)
    if design.method == "permutations":
        moved = shuffle_rows(moments.places, design.units, n_replicates, generator)
    elif lasting_causes(residuals, design.units) > MAX_LASTING:
        return np.empty(0)
    else:
        moved = rotate_people(moments.places, design.mask, design.units, n_replicates, generator)
    return np.stack([score_of_moments(residuals, index, change) for index in (moments.places, *moved)])
