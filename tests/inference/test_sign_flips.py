"""Sign flips: people add up to the score, and what the null explains is taken out of their contributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labeltide.chain.families import constant_shape, family
from labeltide.inference.bootstrap import free_family
from labeltide.inference.score_tests import (
    clock_moments,
    effective_design,
    find_alternative,
    fit_nulls,
    flip_signs,
    person_scores,
    score_of_moments,
    step_residuals,
)
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate
from oracles import family_design

PERSON = np.arange(40) // 4


@pytest.fixture(scope="module")
def study():
    """The fit of a static null to noise that grows, and what is tested."""
    noise = make_noise("growth", 2, 12, 0.3).at(np.linspace(0, 1, 12))
    ((training, _),) = fit_studies(simulate(SimulatedStudy(noise, 40, sharpness=2.0), 1, 0).data, choose=False)
    training = training._replace(clusters=torch.from_numpy(PERSON))
    null = family(2, constant_shape(training.grid), "each")
    (fit,), moments = fit_nulls(training, [null]), clock_moments(training, 0)
    return fit, find_alternative(fit, moments, null, free_family(2, training.grid, 10.0)), moments, null


def test_people_add_up_to_the_score_of_all(study):
    fit, change, moments, null = study
    people = person_scores(fit, change, moments, null, PERSON)
    score = score_of_moments(step_residuals(fit, change), moments.axis_index, change)
    assert people.shape == (10, *score.shape)
    np.testing.assert_allclose(people.sum(0), score, atol=0.5)  # levels are at their estimates but for the ridge


def test_flipped_sums_vary_as_independent_people_do(study):
    people = person_scores(*study, PERSON)
    flipped = flip_signs(people, 4000, np.random.default_rng(0))
    assert flipped.shape == (4000, *people.shape[1:])
    n = len(people)
    np.testing.assert_allclose((flipped**2).mean(0), n / (n - 1) * (people**2).sum(0), rtol=0.1)


def test_levels_are_taken_out_of_the_design(study):
    fit, change, moments, null = study
    effective = effective_design(fit, change, moments, null, 0)
    diagonal, root = (each.reshape(len(null.basis), -1) for each in fit.weights(0))  # two classes: blocks of one number
    of_levels = np.einsum("pea,pe,peb->ab", family_design(null), diagonal - root**2, effective)
    assert np.abs(of_levels).max() < 0.1  # the ridge penalty leaves a little


def test_labels_of_a_person_count_for_that_person_alone(study):
    fit, change, moments, null = study
    more = fit._replace(labels=np.where((PERSON == 3)[:, None, None], 1 - fit.labels, fit.labels))
    before, after = (person_scores(one, change, moments, null, PERSON) for one in (fit, more))
    changed = np.abs(after - before).max((1, 2, 3))
    assert changed[3] > 0
    assert (np.delete(changed, 3) == 0).all()
