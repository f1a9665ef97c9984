from __future__ import annotations

import numpy as np
import pytest
import torch

from labeltide.chain.families import WeightedFamily
from labeltide.inference.bands import estimate_annotators, find_change, make_band
from labeltide.inference.bootstrap import (
    SMOOTHNESS_LADDER,
    UNDERSMOOTHING,
    chosen_family,
    chosen_pooling,
    draw_row_counts,
    smooth,
    weaker_pooling,
)
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

CLOCK = np.linspace(0, 1, 30)


def matrices(shape, n_classes=2, rate=0.3):
    return make_noise(shape, n_classes, 30, rate).at(CLOCK)


@pytest.fixture(scope="module")
def fits():
    return fit_studies(simulate(SimulatedStudy(matrices("growth"), n=80), 4, 0).data)


@pytest.fixture(scope="module")
def estimates(fits):
    return [estimate_annotators(training, n_replicates=60)[0] for training, _ in fits]


def test_bands_hold_the_estimate_and_stay_between_zero_and_one(estimates):
    for estimate in estimates:
        for name in ("", "class_rate_", "rate_"):
            mean = getattr(estimate, name.removesuffix("_") or "mean")
            ends = [
                getattr(estimate, name + end) for end in ("simultaneous_lower", "lower", "upper", "simultaneous_upper")
            ]
            assert np.all(np.diff([ends[0], ends[1], mean, ends[2], ends[3]], axis=0) >= 0)
            assert np.all(ends[0] >= 0)
            assert np.all(ends[3] <= 1)


def test_bands_cover_the_true_noise_most_of_the_time(estimates):
    truth = matrices("growth")
    inside = [(estimate.lower <= truth) & (truth <= estimate.upper) for estimate in estimates]
    assert np.mean(inside) > 0.85


def test_the_total_lies_in_its_interval_and_near_the_truth(estimates):
    for estimate in estimates:
        assert estimate.total_lower < estimate.total < estimate.total_upper
        assert estimate.total == pytest.approx(0.3, abs=0.05)


def test_one_moment_is_known_no_better_than_the_share_of_all_wrong_labels(estimates):
    for estimate in estimates:
        weights = estimate.labels.sum(1) / estimate.labels.sum()
        assert weights @ estimate.rate_lower <= estimate.total_lower + 1e-6
        assert weights @ estimate.rate_upper >= estimate.total_upper - 1e-6


def test_the_change_is_that_of_the_error_rate(estimates):
    for estimate in estimates:
        assert estimate.change.value == pytest.approx(np.ptp(estimate.rate))
        assert estimate.change.lower > 0.1
        assert estimate.change.worst_rate == estimate.rate[np.searchsorted(estimate.clock, estimate.change.worst_at)]
        assert estimate.change.worst_at > 0.5 > estimate.change.best_at


def test_class_rates_are_the_other_side_of_the_diagonal(estimates):
    for estimate in estimates:
        np.testing.assert_allclose(estimate.class_rate_lower, 1 - np.diagonal(estimate.upper, axis1=1, axis2=2))


def test_the_same_seed_gives_the_same_bands(fits):
    first, again, other = (estimate_annotators(fits[0][0], n_replicates=10, seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.lower, again.lower)
    assert not np.array_equal(first.lower, other.lower)


def test_more_sequences_narrow_the_bands():
    few, many = (
        estimate_annotators(
            fit_studies(simulate(SimulatedStudy(matrices("static"), n=n), 1, 3).data)[0][0], n_replicates=40
        )[0]
        for n in (40, 400)
    )
    assert (many.upper - many.lower).mean() < 0.6 * (few.upper - few.lower).mean()


def test_normal_replicates_give_normal_bands():
    generator = np.random.default_rng(0)
    centre = np.full(5, 0.3)
    drawn = np.concatenate([np.zeros((1, 5)), 0.2 * generator.standard_normal((4000, 5))])
    logits = np.log(0.3 / 0.7) + drawn
    band = make_band(centre, 1 / (1 + np.exp(-logits)))
    np.testing.assert_allclose(np.log(band.upper / (1 - band.upper)), np.log(0.3 / 0.7) + 1.96 * 0.2, atol=0.02)
    inside = np.all((logits[1:] <= np.log(band.simultaneous_upper / (1 - band.simultaneous_upper))), axis=1)
    assert inside.mean() == pytest.approx(0.975, abs=0.02)


def test_labels_that_are_never_wrong_may_be_never_wrong():
    band = make_band(np.full(4, 2e-4), np.full((50, 4), 2e-4))
    assert np.all(band.lower == 0)
    assert np.all(band.upper < 0.01)
    assert np.all(band.simultaneous_upper < 0.05)


def test_a_gap_between_rough_and_chosen_estimate_widens_the_band():
    drawn = np.full((50, 4), 0.3) + 0.01 * np.random.default_rng(0).standard_normal((50, 4))
    close, far = make_band(np.full(4, 0.3), drawn), make_band(np.full(4, 0.4), drawn)
    assert np.all(far.upper - far.lower > close.upper - close.lower)


def test_chance_alone_is_no_change():
    generator = np.random.default_rng(0)
    flat = np.full(20, 0.3)
    noise = 0.02 * generator.standard_normal((200, 20))
    change = find_change(np.arange(20.0), flat + noise[0] * 0.2, flat + noise)
    assert change.lower == 0


def test_bands_are_rougher_than_the_best_spline():
    weights = [WeightedFamily("chosen", 0.9, smoothness=100.0), WeightedFamily("other", 0.1, smoothness=10.0)]
    assert chosen_family(2, CLOCK, weights, rougher=UNDERSMOOTHING).shape.smoothness == 10
    assert chosen_family(2, CLOCK, [WeightedFamily("static", 1.0)]).shape.smoothness == 0.1


def test_a_fit_keeps_the_numbers_of_the_families_it_compared(fits):
    training, weights = fits[0]
    assert {tried.name: tried.weight for tried in training.families} == weights
    splines = [tried for tried in training.families if tried.name.startswith("spline")]
    assert {tried.smoothness for tried in splines} == set(SMOOTHNESS_LADDER)
    assert all(tried.name.startswith(f"spline {tried.smoothness:g},") for tried in splines)
    assert {tried.pooling for tried in training.families} == {None}


def test_smoothing_keeps_what_is_constant():
    np.testing.assert_allclose(smooth(np.full((30, 2), 7.0), CLOCK), 7.0)


RATES = np.stack([np.full(30, 0.1), np.linspace(0.05, 0.4, 30), np.full(30, 0.25)])  # of three annotators


@pytest.fixture(scope="module")
def several():
    """Three annotators, of whom the last labels a tenth of the sequences."""
    noise = np.stack([[1 - RATES, RATES], [RATES, 1 - RATES]]).transpose(2, 3, 0, 1)
    data = simulate(SimulatedStudy(noise, n=100, sharpness=2.0), 1, 4).data
    data.labels[:, 10:, :, 2] = -1
    ((training, _),) = fit_studies(data)
    return training, estimate_annotators(training, n_replicates=60)


def test_bands_of_each_annotator_cover_their_own_noise(several):
    _, (_, annotators) = several
    inside = []
    for estimate, rate in zip(annotators, RATES, strict=True):
        inside.append((estimate.class_rate_lower <= rate[:, None]) & (rate[:, None] <= estimate.class_rate_upper))
        assert estimate.total == pytest.approx(rate.mean(), abs=0.04)
    assert np.mean(inside) > 0.85  # one curve in one study may well lie beside its band for a while
    assert annotators[1].change.lower > 0.2
    width = [(estimate.rate_upper - estimate.rate_lower).mean() for estimate in annotators]
    assert width[2] > 1.5 * width[0]  # few labels


def test_the_common_noise_weighs_annotators_by_their_labels(several):
    training, (common, annotators) = several
    weights = np.array([10, 10, 1]) / 21
    np.testing.assert_allclose(training.weights(), weights)
    np.testing.assert_allclose(
        common.mean, np.einsum("a,atij->tij", weights, [estimate.mean for estimate in annotators])
    )
    np.testing.assert_allclose(common.labels, np.sum([estimate.labels for estimate in annotators], 0), rtol=1e-3)
    assert common.total == pytest.approx(weights @ [estimate.total for estimate in annotators], abs=1e-4)


def test_one_annotator_has_the_common_estimate(fits):
    common, annotators = estimate_annotators(fits[0][0], n_replicates=10)
    assert annotators == (common,)


def test_rows_of_one_person_are_drawn_together():
    clusters = torch.tensor([4, 4, 9, 7, 9, 4])
    counts = draw_row_counts(6, clusters, 500, 0)
    assert (counts[:, [0, 2]] == counts[:, [1, 4]]).all()
    assert (counts[:, 0] + counts[:, 2] + counts[:, 3] == 3).all()  # three people are drawn
    assert np.var(counts[:, 0]) > 0.3
    alone = draw_row_counts(6, torch.zeros(6), 5, 0)  # one person: rows stand for themselves
    np.testing.assert_array_equal(alone, draw_row_counts(6, None, 5, 0))
    assert (alone.sum(1) == 6).all()


def test_bands_pool_annotators_less_than_the_likelihood_asks_for():
    families = [WeightedFamily("chosen", 0.6, 10.0, pooling=10.0), WeightedFamily("other", 0.4, pooling=1.0)]
    assert chosen_pooling(families) == 10
    assert weaker_pooling(families) == 1
    assert weaker_pooling([WeightedFamily("apart", 1.0, pooling=0.01)]) == 0.01
    assert weaker_pooling([WeightedFamily("alike", 1.0, pooling=1e5)]) == 100
