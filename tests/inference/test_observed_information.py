"""Scores of one annotator that do not depend on the Q of the others."""

import numpy as np
import pytest
import torch

from labeltide.chain.families import hold_annotator, pooled
from labeltide.inference.bootstrap import free_family
from labeltide.inference.score_tests import (
    Directions,
    clock_moments,
    find_alternative,
    fit_nulls,
    observed_scores,
    person_scores,
)
from labeltide.inference.temporality import TEST_SMOOTHNESS, WEAK_POOLING
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

PERSON = np.arange(40) // 4


@pytest.fixture(scope="module")
def study():
    """Three annotators, of whom the first is held by the null."""
    noise = make_noise("static", 2, 12, 0.2).at(np.linspace(0, 1, 12))
    drawn = simulate(SimulatedStudy(np.stack([noise] * 3), 40), 1, 0).data
    ((training, _),) = fit_studies(drawn, choose=False)
    training = training._replace(clusters=torch.from_numpy(PERSON))
    free = pooled(free_family(2, training.grid, TEST_SMOOTHNESS), WEAK_POOLING)
    null = hold_annotator(free, 0)
    (fit,), moments = fit_nulls(training, [null]), clock_moments(training, 0)
    return fit, find_alternative(fit, moments, null, free), moments, null


def test_scores_of_people_take_the_observed_information(study):
    fit, change, moments, null = study
    expected = observed_scores(fit, change, moments, PERSON)
    assert expected.shape == (10, 1, change.functions.shape[1], change.shares.shape[1])
    np.testing.assert_array_equal(person_scores(fit, change, moments, null, PERSON), expected)


def test_a_small_error_of_the_others_moves_the_plain_score_but_not_the_effective_one(study):
    fit, change, moments, _ = study
    slope = change.functions[moments.of_point][:, :1]
    others = Directions([1, 2], slope, np.ones((2, 1)))
    moved = next(fit.with_noise(others.moved(fit.noise)[:, 0]))
    plain = Directions(change.groups, change.functions[moments.of_point], change.shares)
    everyone = np.zeros(40, dtype=int)
    shift = np.abs(plain.scores(moved, everyone, 1) - plain.scores(fit, everyone, 1)).max()
    effective = [observed_scores(one, change, moments, PERSON).sum(0) for one in (fit, moved)]
    assert np.abs(effective[1] - effective[0]).max() < 0.25 * shift


def test_many_entries_move_together(study, monkeypatch):
    fit, change, moments, _ = study
    monkeypatch.setattr("labeltide.inference.score_tests.MAX_DIRECTIONS", 5)
    assert observed_scores(fit, change, moments, PERSON).shape == (10, 1, 4, 2)
