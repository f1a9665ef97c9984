import math

import numpy as np
import pytest

from labeltide.inference.bands import (
    Change,
    agree_change,
    agree_share,
    estimate_annotators,
    least_share,
    null_p_value,
    presence_p,
    profile_share,
    share_test,
)
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

CHANGE = Change(0.12, 0.064, 0.161, 1.0, 0.0, 0.2, 0.08)


@pytest.mark.parametrize("lower", [0.0, 0.064])
@pytest.mark.parametrize("p_value", [0.001, 0.02, 0.0499, 0.05, 0.15, 1.0, math.nan])
def test_the_interval_of_a_change_excludes_zero_where_its_test_rejects(lower, p_value):
    agreed = agree_change(CHANGE._replace(lower=lower), p_value)
    assert (agreed.lower > 0) == (p_value < 0.05)
    assert agreed.lower <= CHANGE.value
    assert agreed.upper == CHANGE.upper


def test_an_interval_that_agrees_is_not_changed():
    assert agree_change(CHANGE, 0.01) == CHANGE


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.03, 0.2])
def test_the_interval_of_the_share_excludes_zero_where_its_test_rejects(rate):
    matrices = make_noise("static", 2, 15, rate).at(np.linspace(0, 1, 15)) if rate else np.tile(np.eye(2), (15, 1, 1))
    for training, _ in fit_studies(simulate(SimulatedStudy(matrices, n=20), 3, 0).data):
        interval = share_test(training)
        assert (interval.lower > 0) == (interval.p_value < 0.05)
        assert interval.lower <= interval.upper


def test_a_share_above_the_estimate_is_no_evidence_against_the_null():
    matrices = make_noise("static", 2, 15, 0.1).at(np.linspace(0, 1, 15))
    (training, _), *_ = fit_studies(simulate(SimulatedStudy(matrices, n=20), 1, 0).data)
    profile = profile_share(training)
    assert null_p_value(profile, np.arange(20), 0.9) == 1.0


def test_annotators_who_differ_show_wrong_labels_without_a_test():
    matrices = make_noise("static", 2, 15, 0.2).at(np.linspace(0, 1, 15))
    ((alone, _),) = fit_studies(simulate(SimulatedStudy(matrices, n=20), 1, 0).data)
    ((both, _),) = fit_studies(simulate(SimulatedStudy(np.stack([matrices] * 2), n=20), 1, 0).data)
    labels = both.data.labels[0].numpy()
    differ = int((labels[..., 0] != labels[..., 1]).sum())
    assert least_share(alone.data.labels[0].numpy()) == 0.0
    assert 0.8 * differ / 600 < least_share(labels) < differ / 600
    assert presence_p(0.01, 0.3, alone) == 0.3  # both tests must reject
    assert presence_p(0.01, math.nan, alone) == 0.01
    assert math.isnan(presence_p(math.nan, math.nan, alone))
    assert presence_p(0.01, 0.3, both) == 0.0
    estimate = estimate_annotators(both, n_replicates=20)[0]
    assert 0.1 < agree_share(estimate, 1.0, both).total_lower < differ / 600
    assert agree_share(estimate, 1.0, alone).total_lower == 0.0
