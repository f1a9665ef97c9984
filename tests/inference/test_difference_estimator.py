from __future__ import annotations

import numpy as np
import pytest

import labeltide as lt
from labeltide.inference.review import Review, ReviewSample, estimate_rate, tune_weight
from samples import all_samples

WRONG = np.array([1.0, 0.0, 1.0, 0.0, 0.0])
PREDICTED = np.array([0.1, 0.9, 0.3, 0.05, 0.4])
INCLUSION = np.array([0.9, 0.2, 0.45, 0.25, 0.2])


def drawn(items, inclusion, draws=None):
    """A sample whose items have these inclusion probabilities."""
    draws = np.zeros(len(items), int) if draws is None else draws
    sample = ReviewSample(items, inclusion, draws, np.ones(draws.max() + 1), (len(items),))
    sample.__dict__["inclusion"] = inclusion  # a cached property
    return sample


def reviewed(wrong, predicted, inclusion, total, n_labels, draws=None, **more):
    """A review of the first of `n_labels` labels, whose model probabilities sum up to `total`."""
    rest = n_labels - len(wrong)
    others = np.full(rest, (total - predicted.sum()) / max(rest, 1))
    return Review(np.append(predicted, others), drawn(np.arange(len(wrong)), inclusion, draws), wrong, **more)


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_the_difference_estimate_is_unbiased_over_all_samples_whatever_the_model_says(weight):
    mean = 0.0
    for probability, items in all_samples(INCLUSION):
        sample = drawn(items, INCLUSION[items])
        estimate = weight * PREDICTED.sum() + sample.weights @ (WRONG[items] - weight * PREDICTED[items])
        mean += probability * estimate / 5
    assert mean == pytest.approx(WRONG.mean())


def test_two_draws_are_unbiased_even_if_the_second_depends_on_what_the_first_found():
    first, mean = INCLUSION, 0.0
    for probability, items in all_samples(first):
        rest = np.setdiff1d(np.arange(5), items)
        size = 1 + 2 * (rest < 2) + WRONG[items].sum() * np.arange(3)  # depends on the answers
        second = size / size.sum()
        for chance, more in all_samples(second):
            both = np.concatenate([items, rest[more]])
            sample = drawn(both, np.concatenate([first[items], second[more]]), np.array([0, 0, 1]))
            mean += probability * chance * (sample.weights @ WRONG[both]) / 5
    assert mean == pytest.approx(WRONG.mean())


def test_the_variance_is_that_of_a_simple_random_sample_with_equal_probabilities():
    rng = np.random.default_rng(0)
    wrong = (rng.random(40) < 0.3).astype(float)
    estimate = estimate_rate(reviewed(wrong, 0 * wrong, np.full(40, 0.1), 0.0, 400))
    assert estimate.variance == pytest.approx(0.9 * wrong.var(ddof=1) / 40)


def test_the_variance_is_right_on_average():
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 3, 2000)
    wrong = (rng.random(2000) < p).astype(float)
    rates, variances = [], []
    for _ in range(1500):
        sample = lt.review_sample(p, 100, floor=0.5, random_state=rng)
        estimate = estimate_rate(Review(p, sample, wrong[sample.items]))
        rates.append(estimate.rate)
        variances.append(estimate.variance)
    assert np.mean(rates) == pytest.approx(wrong.mean(), abs=4 * np.std(rates) / 1500**0.5 + 0.001)
    assert np.mean(variances) == pytest.approx(np.var(rates), rel=0.15)


def test_the_model_never_makes_the_variance_larger():
    rng = np.random.default_rng(2)
    for _ in range(200):
        wrong, predicted = rng.normal(size=(2, 12))
        weight, variance = tune_weight(wrong, predicted, 11.0)
        assert 0 <= weight <= 1
        assert variance <= wrong @ wrong


def test_a_model_that_predicts_all_wrong_labels_gets_full_weight_and_one_without_information_none():
    scores = np.random.default_rng(3).normal(size=100)
    assert tune_weight(scores, scores, 99.0) == pytest.approx((1, 0))
    assert tune_weight(scores, np.zeros(100), 99.0) == (0.0, pytest.approx(scores @ scores))
    assert tune_weight(scores, -scores, 99.0)[0] == 0


def test_clusters_of_one_label_give_the_variance_between_labels():
    rng = np.random.default_rng(4)
    wrong = (rng.random(50) < 0.3).astype(float)
    review = reviewed(wrong, 0 * wrong, np.ones(50), 0.0, 50, clusters=np.arange(50))
    assert estimate_rate(review).variance == pytest.approx(wrong.var(ddof=1) / 50)


def test_wrong_and_right_labels_add_up_to_one():
    rng = np.random.default_rng(5)
    p, inclusion = rng.random((2, 60))
    wrong = (rng.random(60) < p).astype(float)
    draws = np.arange(60) // 30
    one = estimate_rate(reviewed(wrong, p, inclusion, 240.0, 500, draws))
    other = estimate_rate(reviewed(1 - wrong, 1 - p, inclusion, 260.0, 500, draws))
    assert one.rate + other.rate == pytest.approx(1)
    assert (one.variance, one.weight) == pytest.approx((other.variance, other.weight))
