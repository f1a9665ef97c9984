from __future__ import annotations

import numpy as np
import pytest

from labeltide.inference.review import draw_systematic, inclusion_probabilities
from samples import all_samples


@pytest.mark.parametrize("floor", [0.2, 0.8, 1.0])
def test_inclusion_probabilities_add_up_and_respect_the_floor(floor):
    p = np.random.default_rng(0).beta(0.3, 2, 1000)
    inclusion = inclusion_probabilities(p, 100, floor)
    assert inclusion.sum() == pytest.approx(100)
    assert inclusion.max() <= 1
    assert inclusion.min() >= floor * 0.1 - 1e-12


def test_labels_that_would_exceed_one_are_drawn_for_sure():
    p = np.array([0.5] * 3 + [0.0] * 97)
    inclusion = inclusion_probabilities(p, 20, 0.1)
    np.testing.assert_allclose(inclusion[:3], 1)
    np.testing.assert_allclose(inclusion[3:], 17 / 97)


def test_a_certain_model_draws_with_equal_probabilities():
    np.testing.assert_allclose(inclusion_probabilities(np.array([0.0, 1.0, 1.0, 0.0]), 2, 0.5), 0.5)
    np.testing.assert_allclose(inclusion_probabilities(np.full(4, 0.3), 4, 0.5), 1)


def test_inclusion_probabilities_are_exact_over_all_samples():
    inclusion = np.array([0.9, 0.2, 0.45, 0.25, 0.2])
    frequency, total = np.zeros(5), 0.0
    for probability, chosen in all_samples(inclusion):
        assert len(chosen) == 2
        frequency[chosen] += probability
        total += probability
    assert total == pytest.approx(1)
    np.testing.assert_allclose(frequency, inclusion, atol=1e-9)


@pytest.mark.parametrize("strata", [None, np.arange(30) // 10])
def test_empirical_frequencies_are_the_inclusion_probabilities(strata):
    rng = np.random.default_rng(1)
    inclusion = inclusion_probabilities(rng.random(30), 7, 0.3)
    counts = np.bincount(np.concatenate([draw_systematic(inclusion, rng, strata) for _ in range(8000)]), minlength=30)
    error = (counts / 8000 - inclusion) / np.sqrt(inclusion * (1 - inclusion) / 8000)
    assert np.abs(error).max() < 4


def test_strata_get_their_share_up_to_one_label():
    rng = np.random.default_rng(2)
    strata = np.repeat(np.arange(8), 50)
    for _ in range(20):
        drawn = draw_systematic(np.full(400, 0.1), rng, strata)
        np.testing.assert_array_equal(np.bincount(strata[drawn]), 5)


def test_a_million_probabilities_never_lose_a_draw_to_rounding():
    rng = np.random.default_rng(3)
    inclusion = inclusion_probabilities(rng.random(1_000_000), 777, 0.8)
    assert len({len(draw_systematic(inclusion, rng)) for _ in range(3)} | {777}) == 1
