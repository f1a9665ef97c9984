from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import labeltide as lt
from labeltide.inference.review import remaining_rate


def bound(p, wrong_after, n=200, seed=0, **options):
    sample = lt.review_sample(p, n, random_state=seed, **options)
    return remaining_rate(p, sample, wrong_after[sample.index]), sample


def test_nothing_found_among_equal_probabilities_is_the_exact_binomial_bound():
    p = np.full((50, 100), 0.05)
    result, _ = bound(p, np.zeros(p.shape, bool), n=300)
    assert result.bound == pytest.approx(1 - 0.05 ** (1 / 300))
    assert result.rate == 0


def test_nothing_left_is_wrong_after_all_labels_were_reviewed():
    p = np.random.default_rng(0).random((10, 20)) * 0.3
    wrong = np.random.default_rng(1).random(p.shape) < p
    result, _ = bound(p, wrong, n=200)
    assert result.rate == result.bound == 0
    assert result.items_needed(0.0) == 0


@pytest.mark.parametrize("n_wrong", [0, 10, 40, 100])
@pytest.mark.parametrize("reversed_model", [False, True])
def test_the_bound_holds_where_few_or_no_wrong_labels_are_found(n_wrong, reversed_model):
    """Of 2,000 labels 0 to 5 % are wrong, so that 50 reviewed ones hold 0 to 3 of them."""
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 6, 2000)
    wrong = np.zeros(2000, bool)
    wrong[np.argsort(p)[:n_wrong] if reversed_model else np.argsort(-p + rng.normal(0, 0.1, 2000))[:n_wrong]] = True
    held = []
    for seed in range(300):
        result, sample = bound(p, wrong, n=50, seed=seed)
        held.append((wrong.sum() - wrong[sample.items].sum()) / 2000 <= result.bound)
    assert np.mean(held) >= 0.93


def test_more_items_lower_the_bound_until_all_are_reviewed():
    p = np.full((50, 100), 0.05)
    wrong = np.random.default_rng(0).random(p.shape) < 0.01
    result, _ = bound(p, wrong, n=300)
    more, bounds = result.curve()
    assert more[0] == 0
    assert more[-1] == 4700
    assert bounds[0] == pytest.approx(result.bound)
    assert bounds[-1] == 0
    assert np.all(np.diff(bounds) <= 1e-12)


def test_items_needed_is_the_first_place_of_the_curve_within_the_target():
    p = np.full((50, 100), 0.0005)
    result, _ = bound(p, np.zeros(p.shape, bool), n=100)
    needed = result.items_needed(0.01)
    assert result.predict_bound([needed - 1, needed]).tolist() == pytest.approx([0.01, 0.01], rel=0.01)
    assert result.predict_bound(needed)[0] <= 0.01 < result.predict_bound(needed - 1)[0]
    assert needed < stats.nbinom.ppf(0.95, 1, 0.01)  # as without a finite population
    assert result.items_needed(1.0) == 0
    with pytest.raises(ValueError, match="target must be a number at least 0 and at most 1"):
        result.items_needed(-1)


def test_the_expected_bound_is_near_the_one_that_comes():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 6, (40, 500))
    wrong = rng.random(p.shape) < p
    ratios = []
    for seed in range(20):
        now, _ = bound(p, wrong, n=200, seed=seed)
        later, _ = bound(p, wrong, n=800, seed=seed + 100)
        ratios.append(now.predict_bound(600)[0] / later.bound)
    assert np.median(ratios) == pytest.approx(1, abs=0.15)


def test_a_forecast_after_few_items_shrinks_to_the_model():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 6, (40, 500))
    wrong = rng.random(p.shape) < p
    sample = lt.review_sample(p, 30, random_state=3)
    unlucky = np.arange(30) < 5  # 5 of 30, where the model says 5 %
    forecast = remaining_rate(p, sample, unlucky).forecast(0.1)
    assert forecast["low"] < forecast["items"] < 600
    assert forecast["items"] < forecast["high"]
    assert remaining_rate(p, sample, unlucky).anytime_bound > remaining_rate(p, sample, unlucky).bound
    assert wrong.mean() < 0.06
