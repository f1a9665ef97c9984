from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import beta

from labeltide.chain.passes import ChainData
from labeltide.inference.bands import (
    Profile,
    critical_root,
    dispersion,
    invert,
    profile_share,
    share_test,
    stretch_share,
)
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

STEPS = 20


def share_interval(training):
    return share_test(training)[:2]


def fit(rate, n, studies=1, seed=0, sharpness=5.0, stay=None):
    noise = np.tile([[1 - rate, rate], [rate, 1 - rate]], (STEPS, 1, 1))
    simulated = simulate(SimulatedStudy(noise, n, stay=stay, sharpness=sharpness), studies, seed)
    wrong = simulated.data.labels[..., 0].numpy() != simulated.clean
    return [training for training, _ in fit_studies(simulated.data, choose=False)], wrong


def test_of_labels_that_are_surely_right_the_upper_end_is_below_twice_the_rule_of_three():
    (training,), wrong = fit(0.0, 25)
    lower, upper = share_interval(training)
    assert lower == 0
    assert 1.5 / wrong.size < upper < 2 * 3 / wrong.size


def test_with_sure_evidence_the_interval_is_close_to_the_binomial_one():
    (training,), wrong = fit(0.2, 100)
    n, k = wrong.size, wrong.sum()
    lower, upper = share_interval(training)
    binomial = beta.ppf([0.025, 0.975], [k, k + 1], [n - k + 1, n - k])
    assert lower < k / n < upper
    assert upper - lower == pytest.approx(np.ptp(binomial), rel=0.35)


def test_weak_features_widen_the_interval():
    sure, weak = (fit(0.2, 40, sharpness=sharpness)[0][0] for sharpness in (5.0, 1.5))
    assert np.ptp(share_interval(weak)) > 1.3 * np.ptp(share_interval(sure))


def test_evidence_that_saw_earlier_steps_does_not_shrink_the_interval_below_the_truth():
    stay, steps, separation = 0.96, 100, 1.0
    noise = np.tile([[0.8, 0.2], [0.2, 0.8]], (steps, 1, 1))
    drawn = simulate(SimulatedStudy(noise, 200, stay=stay, sharpness=separation), 1, 5)
    ahead = filter_labels(drawn.data.evidence.flip(2), stay).flip(2)  # p(label | features of this and later steps)
    both = ((filter_labels(drawn.data.evidence, stay) + ahead) / 2).log_softmax(-1)
    ((training, _),) = fit_studies(drawn.data.with_evidence(both), choose=False)
    told = training._replace(data=training.data.with_evidence(both, None, ahead))
    assert share_interval(training)[1] < 0.2
    lower, upper = share_interval(told)
    assert lower < 0.2 < upper


def filter_labels(evidence, stay):
    """Forward filter of two equally common classes: log p(label | features up to its step)."""
    transition = torch.tensor([[stay, 1 - stay], [1 - stay, stay]])
    filtered = [evidence[:, :, 0]]
    for step in range(1, evidence.shape[2]):
        filtered.append(((filtered[-1].exp() @ transition).log() + evidence[:, :, step]).log_softmax(-1))
    return torch.stack(filtered, 2)


def test_few_labels_do_not_hide_a_share_of_a_fifth():
    trainings, _ = fit(0.2, 8, studies=10, seed=3, sharpness=2.0, stay=0.9)
    covered = [lower <= 0.2 <= upper for lower, upper in map(share_interval, trainings)]
    assert sum(covered) >= 8


def test_the_profile_has_its_maximum_in_the_middle_and_falls_on_both_sides():
    (training,), _ = fit(0.2, 40, sharpness=2.0)
    profile = profile_share(training)
    totals, centre = profile.log_likelihood.sum(1), len(profile.shares) // 2
    assert totals.argmax() in (centre - 1, centre, centre + 1)
    assert np.all(np.diff(profile.shares) > 0)
    assert profile.shares[0] < 0.1 < 0.3 < profile.shares[-1]


def test_a_quadratic_profile_gives_the_normal_interval():
    shares = np.linspace(0.1, 0.3, 41)
    profile = Profile(shares, -0.5 * ((shares - 0.2) / 0.03)[:, None] ** 2)
    assert invert(profile, 1.96) == pytest.approx((0.2 - 1.96 * 0.03, 0.2 + 1.96 * 0.03), abs=2e-4)
    assert invert(profile, 1.96, 0.5) == pytest.approx((0.2 - 1.46 * 0.03, 0.2 + 2.46 * 0.03), abs=2e-4)
    assert invert(profile, 1.0, 1.5)[0] == pytest.approx(0.2)


def test_clusters_that_differ_widen_the_interval_and_few_of_them_more():
    away = np.linspace(-1, 1, 21)
    effects = np.random.default_rng(0).standard_normal(40)
    effects -= effects.mean()
    profile = Profile(0.2 + away / 10, effects * away[:, None] * np.sqrt(1 / 40) - 0.5 * away[:, None] ** 2 / 40)
    rows, fours = np.arange(40), effects.argsort().argsort() // 10  # alike within four clusters
    assert dispersion(profile, rows) == pytest.approx(1, abs=0.4)
    assert dispersion(profile, fours) > 4
    assert critical_root(profile, fours, 50) > 3.18 * 2 > critical_root(profile, rows, 50) >= 1.95


def test_the_spread_of_people_counts_only_where_they_have_wrong_labels():
    (clean,), _ = fit(0.0, 39)
    people = torch.arange(39) // 13
    alone, together = (share_interval(clean._replace(clusters=who)) for who in (None, people))
    assert together == alone
    profile = Profile(np.linspace(0, 0.02, 5), np.random.default_rng(0).normal(0, 1, (5, 9)).cumsum(0))
    threes = np.arange(9) // 3
    assert critical_root(profile, threes, 2.99) == critical_root(profile, np.zeros(9), 2.99)
    assert critical_root(profile, threes, 3.01) > critical_root(profile, threes, 2.99)


def test_one_cluster_leaves_the_quantile_of_the_rows():
    profile = Profile(np.linspace(0, 1, 5), np.zeros((5, 600)))
    assert critical_root(profile, np.zeros(600, dtype=int), 50) == pytest.approx(1.964, abs=1e-3)


def test_people_whose_error_rates_differ_widen_the_interval():
    (training,), _ = fit(0.2, 40)
    labels = training.data.labels.clone()
    labels[:, :8] = 1 - labels[:, :8]  # the labels of one of five people are mostly wrong
    data = type(training.data)(**{**vars(training.data), "labels": labels})
    people = torch.arange(40) // 8
    alone, together = (share_interval(training._replace(data=data, clusters=who)) for who in (None, people))
    assert np.ptp(together) > np.ptp(alone)


def test_a_stretch_ends_with_another_label_a_gap_a_row_and_padding():
    rows = [[0, 0, 1, 1, 1, 0], [1, 1, -1, 1, 1, 1]]  # three stretches, and two of which the last is padded
    mask = torch.tensor([[True] * 6, [True] * 5 + [False]])
    data = ChainData(torch.tensor(rows, dtype=torch.int8)[None, ..., None], mask, None, 6, 2)
    assert stretch_share(data) == pytest.approx(1 / 5)
