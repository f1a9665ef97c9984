"""Likelihood-ratio tests by parametric bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from labeltide.chain.families import constant_shape, family
from labeltide.inference.bootstrap import free_family, likelihood_ratio_test, p_value
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

CLOCK = np.linspace(0, 1, 20)


@pytest.mark.parametrize(("replicates", "expected"), [([1.0, 2.0, 3.0], 0.25), ([4.0, 5.0, 1.0], 0.75), ([], 1.0)])
def test_the_observed_statistic_counts_as_one_of_them(replicates, expected):
    assert p_value(4.0, np.array(replicates)) == expected


def p_values(shape, studies):
    study = SimulatedStudy(make_noise(shape, 2, 20, 0.3).at(CLOCK), 60, stay=None, sharpness=3.0)
    tests = []
    for training, _ in fit_studies(simulate(study, studies, 0).data, choose=False):
        static, free = family(2, constant_shape(training.grid), "each"), free_family(2, training.grid, 10.0)
        tests.append(likelihood_ratio_test(training, static, free, 39, 0))
    assert all(test.statistic >= 0 for test in tests)
    return [test.p_value for test in tests]


def test_noise_that_changes_is_called_temporal():
    assert p_values("linear", 2) == [1 / 40, 1 / 40]


def test_p_values_of_noise_that_does_not_change_are_spread_out():
    assert np.median(p_values("static", 6)) > 0.2
