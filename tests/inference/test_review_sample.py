from __future__ import annotations

import numpy as np
import pytest

import labeltide as lt
from labeltide.inference.review import clock_bins


def probabilities(seed=0, shape=(20, 30)):
    values = np.random.default_rng(seed).beta(0.3, 3, shape)
    values[0, :5] = np.nan
    return values


def test_a_sample_names_rows_steps_and_annotators_that_were_recorded():
    p = probabilities(shape=(10, 12, 3))
    sample = lt.review_sample(p, 40, random_state=1)
    assert len(sample) == len(set(sample.items)) == 40
    assert np.isfinite(p[sample.rows, sample.steps, sample.annotators]).all()
    assert lt.review_sample(p[..., 0], 5).annotators is None
    assert lt.review_sample(p[1, :, 0], 5).steps is None


def test_uncertain_labels_are_drawn_more_often_and_none_never():
    p = np.where(np.arange(1000) < 100, 0.5, 0.001)
    sample = lt.review_sample(p, 100, floor=0.2)
    assert sample.inclusion[sample.items < 100].min() > 3 * sample.inclusion[sample.items >= 100].max()
    assert sample.smallest[0] >= 0.2 * 0.1 - 1e-3
    assert np.all(sample.chances <= sample.inclusion + 1e-12)


def test_the_same_seed_draws_the_same_labels():
    p = probabilities()
    first, again, other = (lt.review_sample(p, 30, random_state=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.items, again.items)
    assert set(first.items) != set(other.items)


def test_a_second_draw_is_from_the_rest_and_keeps_the_first():
    p = probabilities()
    first = lt.review_sample(p, 50)
    both = lt.review_sample(p, 30, earlier=first, random_state=1)
    np.testing.assert_array_equal(both.items[:50], first.items)
    assert len(set(both.items)) == 80
    np.testing.assert_array_equal(both.draws, [0] * 50 + [1] * 30)
    rest = np.isfinite(p).sum() - 50
    everything = lt.review_sample(p, rest, earlier=first)
    assert everything.chances[-1] == pytest.approx(1)
    assert len(set(everything.items)) == np.isfinite(p).sum()


def test_the_first_items_are_a_sample_with_known_probabilities():
    p = probabilities(shape=(2, 20))
    counts, expected = np.zeros(p.size), np.zeros(p.size)
    for seed in range(4000):
        part = lt.review_sample(p, 10, random_state=seed).first(4)
        counts[part.items] += 1
        expected[part.items] += 1 / 4000 / part.inclusion
    recorded = np.isfinite(p).ravel()
    np.testing.assert_allclose(expected[recorded], 1, atol=0.25)  # E[1 / inclusion over draws] is one
    assert counts[~recorded].sum() == 0
    both = lt.review_sample(p, 6, earlier=lt.review_sample(p, 10)).first(13)
    whole = lt.review_sample(p, 6, earlier=lt.review_sample(p, 10))
    np.testing.assert_array_equal(both.chances, whole.chances[:13])
    np.testing.assert_array_equal(both.inclusion[:10], whole.inclusion[:10])


def test_the_chance_of_every_item_given_those_before_is_exact():
    """The items before one say how much is left, and the next is drawn from that in proportion to its size."""
    p = np.array([0.5, 0.5, 0.1, 0.1, 0.01, 0.01])
    size = 0.3 + 0.7 * np.sqrt(p * (1 - p)) / np.sqrt(p * (1 - p)).mean()
    pairs = np.zeros((6, 6))
    for seed in range(6000):
        sample = lt.review_sample(p, 3, floor=0.3, random_state=seed)
        pairs[tuple(sample.items[:2])] += 1
        left = size.sum() - np.append(0, size[sample.items[:2]].cumsum())
        np.testing.assert_allclose(sample.chances, size[sample.items] / left)
        np.testing.assert_allclose(sample.left, left / size.sum())
    expected = size[:, None] / size.sum() * size / (size.sum() - size[:, None])
    np.fill_diagonal(expected, 0)
    error = (pairs / 6000 - expected)[expected > 0] / np.sqrt(expected[expected > 0] / 6000)
    assert np.abs(error).max() < 4


def test_equal_probabilities_include_every_label_alike():
    sample = lt.review_sample(np.full(50, 0.2), 20)
    np.testing.assert_allclose(sample.inclusion, 0.4)
    np.testing.assert_allclose(sample.smallest, 0.4)


def test_bins_of_the_clock_hold_equal_numbers_of_steps():
    clock = np.random.default_rng(0).random((10, 100)) ** 3
    assert set(np.bincount(clock_bins(clock, np.ones(clock.shape, bool)).ravel())) == {100}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n": 0}, r"n, the number of labels to draw from the 595 that are left, must be a whole number at least 1"),
        ({"n": 596}, r"at most 595. Got 596."),
        ({"floor": 0.0}, r"floor must be a number above 0 and at most 1. Got 0.0."),
        ({"random_state": -1}, r"random_state must be a whole number at least 0. Got -1."),
        ({"audit_or_probabilities": np.full((2, 3), 1.5)}, r"must lie between 0 and 1. Got 1.5 to 1.5."),
        ({"audit_or_probabilities": np.full((2, 3), np.nan)}, r"must hold at least one number"),
        ({"audit_or_probabilities": np.zeros((1, 1, 1, 1))}, r"Got shape \(1, 1, 1, 1\)."),
        ({"audit_or_probabilities": "audit"}, r"must be an audit or numbers from 0 to 1. Got str."),
    ],
)
def test_what_cannot_be_drawn_from_is_refused_in_a_sentence(changed, message):
    with pytest.raises(ValueError, match=message):
        lt.review_sample(**{"audit_or_probabilities": probabilities(), "n": 10, **changed})


def test_a_sample_of_other_labels_cannot_be_extended():
    with pytest.raises(ValueError, match=r"The sample must be of these labels, of shape \(20, 30\). Its labels have"):
        lt.review_sample(probabilities(), 5, earlier=lt.review_sample(np.full(9, 0.1), 3))
