from __future__ import annotations

import numpy as np
import pytest

import labeltide as lt
from labeltide.inference.review import (
    Population,
    Reviewed,
    design_scores,
    estimate_rate,
    tune_weight,
)
from samples import all_samples

WRONG = np.array([1.0, 0.0, 1.0, 0.0, 0.0])
PREDICTED = np.array([0.1, 0.9, 0.3, 0.05, 0.4])
INCLUSION = np.array([0.9, 0.2, 0.45, 0.25, 0.2])


def reviewed(items, inclusion, draws=None, shares=(1.0,), wrong=WRONG):
    draws = np.zeros(len(items), int) if draws is None else draws
    return Reviewed(wrong[items], PREDICTED[items], inclusion, draws, np.array(shares))


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_the_difference_estimate_is_unbiased_over_all_samples_whatever_the_model_says(weight):
    mean = 0.0
    for probability, items in all_samples(INCLUSION):
        part = reviewed(items, INCLUSION[items])
        estimate = weight * PREDICTED.sum() + part.weights @ (part.wrong - weight * part.predicted)
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
            part = reviewed(both, np.concatenate([first[items], second[more]]), np.array([0, 0, 1]), (2 / 3, 1 / 3))
            mean += probability * chance * (part.weights @ part.wrong) / 5
    assert mean == pytest.approx(WRONG.mean())


def test_the_variance_is_that_of_a_simple_random_sample_with_equal_probabilities():
    rng = np.random.default_rng(0)
    wrong = (rng.random(40) < 0.3).astype(float)
    part = Reviewed(wrong, wrong, np.full(40, 0.1), np.zeros(40, int), np.ones(1))
    scores = design_scores(part, wrong - wrong.mean()) / 400
    assert scores @ scores == pytest.approx(0.9 * wrong.var(ddof=1) / 40)


def test_the_variance_is_right_on_average():
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 3, 2000)
    wrong = (rng.random(2000) < p).astype(float)
    population = Population(2000, float(p.sum()))
    rates, variances = [], []
    for _ in range(1500):
        sample = lt.review_sample(p, 100, floor=0.5, random_state=rng)
        items = sample.items
        part = Reviewed(wrong[items], p[items], sample.inclusion, np.zeros(100, int), np.ones(1))
        estimate = estimate_rate(part, population)
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
    codes, ones = np.arange(50), np.ones(50)
    part = Reviewed(wrong, 0 * wrong, ones, np.zeros(50, int), ones[:1], codes)
    population = Population(50, 0.0, ones, 0 * ones)
    assert estimate_rate(part, population).variance == pytest.approx(wrong.var(ddof=1) / 50)


def test_wrong_and_right_labels_add_up_to_one():
    rng = np.random.default_rng(5)
    p, inclusion = rng.random((2, 60))
    wrong = (rng.random(60) < p).astype(float)
    draws, shares = np.arange(60) // 30, np.array([0.5, 0.5])
    one = estimate_rate(Reviewed(wrong, p, inclusion, draws, shares), Population(500, 240.0))
    other = estimate_rate(Reviewed(1 - wrong, 1 - p, inclusion, draws, shares), Population(500, 260.0))
    assert one.rate + other.rate == pytest.approx(1)
    assert (one.variance, one.weight) == pytest.approx((other.variance, other.weight))
