from __future__ import annotations

import numpy as np
import pytest

from labeltide.chain.families import family, hold_class, pooled, spline_shape
from labeltide.inference.bands import estimate_annotators
from labeltide.inference.bootstrap import free_family
from labeltide.inference.temporality import allow_bursts, judge_temporality
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate
from oracles import family_design

CLOCK = np.linspace(0, 1, 25)


def judge(matrices, **more):
    training, _ = fit_studies(simulate(SimulatedStudy(matrices, n=60, **more), 1, 0).data)[0]
    return judge_temporality(training, estimate_annotators(training, n_replicates=30)[0], n_replicates=39)


@pytest.fixture(scope="module")
def growing():
    return judge(make_noise("growth", 2, 25, 0.3).at(CLOCK))


@pytest.fixture(scope="module")
def one_class():
    """The first class is recorded well at first and badly at the end, the second always alike."""
    matrices = np.tile([[0.8, 0.2], [0.2, 0.8]], (25, 1, 1))
    rate = np.linspace(0.02, 0.48, 25)
    matrices[:, 0] = np.stack([1 - rate, rate], 1)
    return judge(matrices, sharpness=3.0)


def test_noise_that_grows_is_found_to_change(growing):
    assert growing.p_value == 1 / 40
    assert growing.change_lower > 0.1
    assert growing.worst_at > growing.best_at
    assert growing.is_noisy_p == 1 / 40


def test_noise_that_does_not_change_is_not_found_to():
    static = judge(make_noise("static", 2, 25, 0.3).at(CLOCK), sharpness=2.0)
    assert static.p_value > 0.05
    assert static.classes_differ_p > 0.05


def test_only_the_class_whose_noise_changes_is_named(one_class):
    changing, steady = one_class.per_class
    assert changing.p_value == 1 / 40
    assert steady.p_value > 0.05
    assert changing.change.value > steady.change.value


def test_classes_with_different_noise_differ(one_class):
    assert one_class.classes_differ_p == 1 / 40


def test_labels_without_mistakes_are_not_called_noisy():
    clean = judge(np.tile(np.eye(2), (25, 1, 1)), sharpness=2.0)
    assert clean.is_noisy_p > 0.05


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_a_held_class_has_no_coefficient_that_moves_it(n_classes):
    free = free_family(n_classes, CLOCK, 10.0)
    held = family_design(hold_class(free, 1)).reshape(25, n_classes, n_classes - 1, -1)
    assert np.ptp(held[:, 1], axis=0).max() == 0
    assert np.ptp(held[:, 0], axis=0).max() > 0
    assert held.shape[-1] < family_design(free).shape[-1]


def test_holding_a_class_leaves_levels_alone():
    free = family(2, spline_shape(CLOCK, 10.0), "each", "each")
    held = hold_class(free, 0)
    assert family_design(held).shape[-1] == 2 + (family_design(free).shape[-1] - 2) // 2


def test_holding_a_class_keeps_the_pooling_of_annotators():
    free = pooled(free_family(2, CLOCK, 10.0), 0.5)
    assert hold_class(free, 0).pooling == 0.5


def test_only_the_annotator_who_drifts_is_named():
    rates = np.stack([np.full(25, 0.15), np.linspace(0.05, 0.4, 25), np.full(25, 0.3)])
    noise = np.stack([[1 - rates, rates], [rates, 1 - rates]]).transpose(2, 3, 0, 1)
    ((training, _),) = fit_studies(simulate(SimulatedStudy(noise, n=50, sharpness=2.0), 1, 2).data, choose=False)
    common, annotators = estimate_annotators(training, n_replicates=20)
    result = judge_temporality(training, common, annotators, n_replicates=39)
    assert result.p_value == 1 / 40
    steady, drifting, poor = result.per_annotator
    assert drifting.p_value == 1 / 40
    assert min(steady.p_value, poor.p_value) > 0.05
    assert drifting.change.value > 0.2 > steady.change.value
    assert result.is_noisy_p == 0.0  # annotators contradict each other


def test_one_annotator_is_not_asked_about_again(growing):
    assert growing.per_annotator == ()


@pytest.mark.parametrize("bursts", [0.0, 0.7])
def test_errors_may_come_in_runs_in_tests_where_they_do(bursts):
    noise = np.stack([make_noise("static", 2, 25, rate).at(CLOCK) for rate in (0.2, 0.3)])
    ((training, _),) = fit_studies(simulate(SimulatedStudy(noise, n=40, bursts=bursts), 1, 0).data, choose=False)
    single = training._replace(parameters=training.parameters._replace(bursts=None))
    fitted = allow_bursts(single).parameters.bursts
    assert (fitted is not None and float(fitted) > 0.4) == bool(bursts)
