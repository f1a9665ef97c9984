"""Tests of change: what windows or people share does not pass for a change over the clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeltide.chain.families import constant_shape, family, hold_class
from labeltide.inference.bootstrap import coarsen, free_family, likelihood_ratio_test
from labeltide.inference.score_tests import change_tests
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import Differences, SimulatedStudy, fit_studies, record_windows, simulate

PEOPLE, WINDOWS, STEPS = 10, 6, 30
STATIC = make_noise("static", 2, STEPS, 0.2).at(np.linspace(0, 1, STEPS))


@pytest.fixture(scope="module")
def study():
    def make(**differences):
        drawn = simulate(SimulatedStudy(STATIC, PEOPLE * WINDOWS, stay=None, sharpness=3.0), 1, 0)
        data, whose = record_windows(drawn, PEOPLE, 0.2, Differences(**differences), 2)
        ((training, _),) = fit_studies(data, choose=False)
        return coarsen(training._replace(clusters=whose))

    return make


@pytest.fixture(scope="module")
def windows(study):
    return study(windows=1.5)


def families(training):
    return family(2, constant_shape(training.grid), "each"), free_family(2, training.grid, 10.0)


def change_test(training, null, free):
    (test,) = change_tests(training, {0: null}, free, 39)
    return test


def test_windows_that_differ_are_no_change_over_the_clock(windows):
    assert (
        likelihood_ratio_test(windows, *families(windows), 39, 0).p_value == 1 / 40
    )  # drawn labels know nothing of windows
    for clusters in (windows.clusters, None):
        test = change_test(windows._replace(clusters=clusters), *families(windows))
        assert test.p_value > 0.05
        assert (test.method, test.n_units) == (
            ("permutations", PEOPLE * WINDOWS) if clusters is None else ("people", PEOPLE)
        )


def test_a_change_is_found_although_windows_differ(study):
    training = study(windows=0.5, drift=2.0)
    for clusters in (training.clusters, None):
        test = change_test(training._replace(clusters=clusters), *families(training))
        assert test.p_value == 1 / 40
        assert test == change_test(training._replace(clusters=clusters), *families(training))


def test_rows_that_run_through_the_whole_clock_are_tested_by_parametric_bootstrap():
    noise = make_noise("linear", 2, 25, 0.3).at(np.linspace(0, 1, 25))
    ((training, _),) = fit_studies(
        simulate(SimulatedStudy(noise, 80, stay=None, sharpness=3.0), 1, 0).data, choose=False
    )
    test = change_test(training, *families(training))
    assert test[:2] == likelihood_ratio_test(training, *families(training), 39, 0)[:2]
    assert (test.method, test.n_units) == ("bootstrap", 80)


def few_people(each, seed=2, **differences):
    """Five people with `each` windows of 20 steps, and their test."""
    static = make_noise("static", 2, 20, 0.2).at(np.linspace(0, 1, 20))
    drawn = simulate(SimulatedStudy(static, 5 * each, stay=None, sharpness=3.0), 1, 0)
    data, whose = record_windows(drawn, 5, 0.2, Differences(**differences), seed)
    ((training, _),) = fit_studies(data, choose=False)
    training = coarsen(training._replace(clusters=whose))
    return change_test(training, *families(training))


def test_it_cannot_be_told_with_few_people():
    test = few_people(8, drift=2.0)
    assert np.isnan(test.p_value)
    assert (test.method, test.n_units) == ("none", 5)


def test_one_class_that_changes_is_not_taken_for_the_other():
    drawn = simulate(SimulatedStudy(STATIC, PEOPLE * WINDOWS, stay=None, sharpness=3.0), 1, 0)
    data, whose = record_windows(drawn, PEOPLE, 0.2, Differences(), 2)
    rising = np.linspace(0.05, 0.45, data.n_points)[data.grid_index().numpy()]
    wrong = np.random.default_rng(0).random(drawn.clean.shape) < np.where(drawn.clean == 0, rising, 0.2)
    labels = torch.from_numpy(np.where(wrong, 1 - drawn.clean, drawn.clean).astype(np.int8))
    ((training, _),) = fit_studies(replace(data, labels=labels[..., None]), choose=False)
    training = coarsen(training._replace(clusters=whose))
    free = families(training)[1]
    changing, steady = (change_test(training, hold_class(free, i), free).p_value for i in range(2))
    assert changing == 1 / 40
    assert steady > 0.05
