"""What tide promises for clocks that begin anew: midnight is no border."""

from __future__ import annotations

import numpy as np
import pytest

import labeltide as lt

pytestmark = pytest.mark.usefixtures("few_replicates")

N, STEPS = 120, 24


def error_rate(hour):
    """Worst just around midnight."""
    return 0.05 + 0.35 * np.exp(-((np.minimum(hour % 24, 24 - hour % 24) / 3) ** 2))


@pytest.fixture(scope="module")
def study():
    """Sequences of a day each, from any hour to any other, on a clock that runs on."""
    true = lt.make_sequences(n=N, n_steps=STEPS, n_features=4, stay=0.9, random_state=1)
    generator = np.random.default_rng(0)
    clock = generator.integers(0, 500, (N, 1)) + np.arange(STEPS)
    clean = true.labels[..., 0]
    recorded = np.where(generator.random(clean.shape) < error_rate(clock), 1 - clean, clean)
    return true.features, recorded, clock.astype(float), clean


@pytest.fixture(scope="module")
def fitted(study):
    X, y, clock, _ = study
    return lt.TideClassifier(period=24, epochs=8, random_state=0, device="cpu").fit(X, y, clock=clock)


def test_hours_of_all_days_are_one_day(fitted):
    np.testing.assert_array_equal(fitted.clock_grid_, np.arange(24))
    np.testing.assert_array_equal(fitted.noise_at(25.25), fitted.noise_at(1.25))
    middle = (fitted.noise_at(23) + fitted.noise_at(0)) / 2
    np.testing.assert_allclose(fitted.noise_at(23.5), middle, atol=1e-6)


def test_noise_around_midnight_is_found(fitted):
    found = 1 - np.diagonal(fitted.noise_matrices_, axis1=1, axis2=2).mean(1)
    assert np.abs(found - error_rate(np.arange(24))).mean() < 0.05
    assert found[[0, 23]].min() > found[8:16].max() + 0.1


def test_bands_and_test_go_round_with_the_clock(fitted):
    assert fitted.training_.period == 24
    estimate = fitted.noise_estimate_
    truth = error_rate(estimate.clock)
    inside = (estimate.rate_simultaneous_lower <= truth) & (truth <= estimate.rate_simultaneous_upper)
    assert inside.mean() > 0.9
    assert fitted.temporality_.p_value < 0.05


def test_an_audit_takes_any_day_for_the_same_day(study, fitted):
    X, y, clock, _ = study
    found = fitted.audit(X, y, clock)
    np.testing.assert_array_equal(found.quality, fitted.audit(X, y, clock + 240).quality)


def test_a_file_keeps_the_period(fitted, tmp_path):
    fitted.save(tmp_path / "tide.safetensors")
    again = lt.load(tmp_path / "tide.safetensors")
    assert again.period == 24
    np.testing.assert_array_equal(again.noise_at([23.5, 47.5]), fitted.noise_at([23.5, 23.5]))


def test_consensus_knows_of_periods(study):
    _, y, clock, clean = study
    generator = np.random.default_rng(1)
    other = np.where(generator.random(clean.shape) < 0.1, 1 - clean, clean)
    found = lt.consensus(np.stack([y, other], -1), clock=clock, period=24)
    assert found.clock.max() == 23
    rate = 1 - np.diagonal(found.noise[0], axis1=1, axis2=2).mean(1)
    assert rate[[0, 23]].min() > rate[8:16].max()
