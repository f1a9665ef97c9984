from __future__ import annotations

import numpy as np
import pytest

from labeltide.chain.passes import cat_parameters
from labeltide.inference.audit import QUALITY_GRID, averaged_share, false_alarm_curve, flag_bound, profile_weights
from labeltide.inference.bands import share_test
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

STEPS = 5


def fit(n, sharpness):
    noise = np.tile([[0.8, 0.2], [0.2, 0.8]], (STEPS, 1, 1))
    simulated = simulate(SimulatedStudy(noise, n, sharpness=sharpness), 1, 0)
    ((training, _),) = fit_studies(simulated.data, choose=False)
    return training


def test_a_profile_of_one_point_says_what_the_fitted_chain_says():
    training = fit(60, 2.0)
    twice = cat_parameters([training.parameters] * 2)
    curve = false_alarm_curve(training.data, twice, np.array([0.5, 0.5]), 0)
    assert (curve <= QUALITY_GRID + 1e-6).all()
    assert flag_bound(curve, 0.1) == 0.1


def test_doubt_about_the_noise_lowers_the_bound_and_more_labels_raise_it():
    few, many = (flag_bound(share_test(fit(n, 1.5)).false_alarms, 0.1) for n in (30, 600))
    assert 0 <= few < 0.09 < many <= 0.1


def test_flags_at_the_bound_keep_the_false_discovery_rate():
    curve = np.minimum(2 * QUALITY_GRID, 1.0)
    bound = flag_bound(curve, 0.1)
    assert bound == pytest.approx(0.05, abs=1e-3)
    assert averaged_share(curve, bound) <= 0.1
    assert flag_bound(None, 0.1) == 0.1
    assert averaged_share(None, 0.03) == 0.03


def test_weights_of_a_profile_follow_its_likelihood_and_the_spread_of_clusters():
    shares, roots = np.linspace(0.1, 0.3, 5), np.array([-4.0, -2.0, 0.0, 2.0, 4.0])
    by_model, by_clusters = (profile_weights(shares, roots, critical, 2.0) for critical in (2.0, 4.0))
    assert by_model.sum() == pytest.approx(1)
    assert by_model[2] > by_clusters[2] > by_clusters[1] > by_model[1]
    assert profile_weights(np.zeros(3), np.zeros(3), 2.0, 2.0).tolist() == [0, 1, 0]
