from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from labeltide.inference.review import (
    EffectiveCount,
    Estimate,
    Review,
    ReviewSample,
    clopper_pearson,
    effective_count,
    upper_limit,
)


def reviewed(n, found, worst=1.0):
    """A review of equal probabilities of n labels, with the largest design effect `worst`."""
    sample = ReviewSample(np.arange(n), np.ones(n), np.zeros(n, int), np.ones(1), (n,))
    sample.__dict__["smallest"] = np.array([1 / worst])  # a cached property
    return Review(np.zeros(n), sample, (np.arange(n) < found).astype(float))


@pytest.mark.parametrize(("wrong", "n"), [(0, 20), (1, 50), (2, 50), (30, 30)])
def test_limits_are_those_of_the_exact_binomial_test(wrong, n):
    exact = stats.binomtest(wrong, n).proportion_ci(0.95)
    assert clopper_pearson(EffectiveCount(wrong, n), 0.95) == pytest.approx(tuple(exact))


def test_no_wrong_label_found_bounds_the_share_as_the_rule_of_three_does():
    assert upper_limit(EffectiveCount(0, 300), 0.95) == pytest.approx(1 - 0.05 ** (1 / 300))


def test_without_wrong_labels_the_largest_design_effect_counts():
    count = effective_count(Estimate(0.0, 0.0, 0.0, 49.0), reviewed(50, 0, 1.25), level=0.95)
    assert count == pytest.approx((0, 40))
    assert effective_count(Estimate(1.0, 0.0, 0.0, 49.0), reviewed(50, 50, 1.25), 0.95) == pytest.approx((40, 40))


def test_with_many_wrong_labels_the_interval_is_the_normal_one():
    estimate = Estimate(0.3, 0.3 * 0.7 / 20_000, 0.0, 1e6)
    low, high = clopper_pearson(effective_count(estimate, reviewed(20_000, 6000), 0.95), 0.95)
    half = 1.96 * estimate.variance**0.5
    assert (low, high) == pytest.approx((0.3 - half, 0.3 + half), abs=1e-4)


def test_few_clusters_widen_the_interval():
    counts = [effective_count(Estimate(0.2, 0.001, 0.0, d), reviewed(200, 40), 0.95).size for d in (4.0, 20.0, 1e6)]
    assert counts == sorted(counts)
    assert np.isfinite(counts).all()
