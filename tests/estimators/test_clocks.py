"""What tide promises of several clocks at once: their effects add up, and each is told from the others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import labeltide as lt
from estimators.test_storage import join, parts, refused
from labeltide.inference.temporality import estimate_clocks

pytestmark = pytest.mark.usefixtures("few_replicates")

N, STEPS, PERIOD = 200, 12, 12  # 12 x 12 cells


def error_rate(clock):
    """Worse the longer a sequence lasts, and around noon and midnight; the two add up in logits."""
    return expit(-2.5 + 1.5 * clock[..., 0] / (STEPS - 1) + 1.5 * np.cos(2 * np.pi * clock[..., 1] / PERIOD))


def wrong_rate(matrices):
    return 1 - np.diagonal(matrices, axis1=-2, axis2=-1).mean(-1)


@pytest.fixture(scope="module")
def study():
    true = lt.make_sequences(n=N, n_steps=STEPS, n_features=4, stay=0.9, random_state=1)
    generator = np.random.default_rng(0)
    since = np.broadcast_to(np.arange(STEPS), (N, STEPS))
    clock = np.stack([since, generator.integers(0, PERIOD, (N, 1)) + since], -1).astype(float)
    clean = true.labels[..., 0]
    recorded = np.where(generator.random(clean.shape) < error_rate(clock), 1 - clean, clean)
    return true.features, recorded, clock


@pytest.fixture(scope="module")
def fitted(study):
    X, y, clock = study
    return lt.TideClassifier(period=(None, PERIOD), epochs=6, random_state=0, device="cpu").fit(X, y, clock=clock)


def test_both_effects_are_found(study, fitted):
    X, y, clock = study
    found = np.abs(wrong_rate(fitted.noise_at(clock)) - error_rate(clock)).mean()
    alone = lt.TideClassifier(epochs=6, random_state=0, device="cpu").fit(X, y, clock=clock[..., 0])
    assert found < 0.05
    assert found < np.abs(wrong_rate(alone.noise_at(clock[..., 0])) - error_rate(clock)).mean() / 2


def test_q_is_that_of_the_nearest_cell(fitted):
    assert fitted.clock_grid_.shape == (144, 2)
    np.testing.assert_array_equal(fitted.noise_at(fitted.clock_grid_), fitted.noise_matrices_)
    np.testing.assert_array_equal(fitted.noise_at([3.1, 11.9]), fitted.noise_at([[3.0, 12.0]])[0])
    with pytest.raises(ValueError, match=r"clock must have shape \(..., 2\)"):
        fitted.noise_at([1.0, 2.0, 3.0])


def test_bands_and_test_are_told_along_each_clock(fitted):
    since, hour = fitted.clock_estimates_
    assert since.clock.max() == 11
    assert hour.clock.max() == 11
    assert since.rate[-2:].mean() > since.rate[:2].mean() + 0.05
    assert hour.rate[[0, 1, 11]].min() > hour.rate[5:8].max() + 0.15
    assert all(one.p_value < 0.05 for one in fitted.clock_temporality_)
    assert fitted.is_noisy_p_ < 0.05
    with pytest.raises(AttributeError, match="See clock_estimates_"):
        _ = fitted.noise_estimate_
    with pytest.raises(AttributeError, match="See clock_temporality_"):
        _ = fitted.temporality_


def test_a_clock_does_not_show_the_effect_of_another(fitted):
    """Q follows the first clock alone, and labels lie unevenly: early in a sequence at some hours, late at others."""
    training = fitted.training_
    of_first = np.searchsorted(fitted.cells_.axes[0], training.grid[:, 0]) * len(fitted.cells_.axes[1])
    matrices = training.parameters.matrices[:, :, of_first]
    parameters = training.parameters._replace(matrices=matrices)
    since, hour = estimate_clocks(training._replace(parameters=parameters), n_replicates=10)
    assert np.ptp(since.class_rate, axis=0).min() > 0.1
    assert np.ptp(hour.class_rate, axis=0).max() < 1e-6
    assert since.total == hour.total


def test_a_clock_without_effect_is_not_blamed(study):
    """The noise follows the first clock alone; the second is chance."""
    X, _, clock = study
    generator = np.random.default_rng(3)
    clean = lt.make_sequences(n=N, n_steps=STEPS, n_features=4, stay=0.9, random_state=1).labels[..., 0]
    rate = expit(-3 + 3 * clock[..., 0] / (STEPS - 1))
    other = np.where(generator.random(clean.shape) < rate, 1 - clean, clean)
    method = lt.TideClassifier(period=(None, PERIOD), epochs=6, random_state=0, device="cpu").fit(X, other, clock=clock)
    first, second = method.clock_temporality_
    assert first.p_value < 0.05 < second.p_value
    assert second.change.value < first.change.value / 5


@pytest.mark.filterwarnings("ignore::labeltide.NoiseWarning")
def test_labels_without_mistakes_are_not_called_noisy(study):
    X, _, clock = study
    clean = lt.make_sequences(n=N, n_steps=STEPS, n_features=4, stay=0.9, random_state=1).labels[..., 0]
    method = lt.TideClassifier(period=(None, PERIOD), epochs=6, random_state=0, device="cpu").fit(X, clean, clock=clock)
    assert method.is_noisy_p_ > 0.05


def test_audits_take_all_clocks(study, fitted):
    X, y, clock = study
    found = fitted.audit(X, y, clock)
    assert (found.error_rates[..., 0] > 0).all()
    np.testing.assert_array_equal(found.clock, clock[..., 0])
    later = clock + np.array([0, 2 * PERIOD])
    np.testing.assert_array_equal(fitted.audit(X, y, later).quality, found.quality)
    assert len(found.plan(3).rows) == 3
    with pytest.raises(ValueError, match="as many clocks as in fit"):
        fitted.audit(X, y, clock[..., 0])


def test_a_file_keeps_all_clocks(fitted, tmp_path):
    bands = fitted.clock_estimates_[1].upper
    fitted.save(tmp_path / "tide.safetensors")
    again = lt.load(tmp_path / "tide.safetensors")
    assert again.period == (None, PERIOD)
    moments = [[3.0, 30.0], [11.2, 5.0]]
    np.testing.assert_array_equal(again.noise_at(moments), fitted.noise_at(moments))
    np.testing.assert_array_equal(again.clock_estimates_[1].upper, bands)


def test_clocks_that_do_not_fit_their_file_are_refused(fitted, tmp_path):
    path = tmp_path / "tide.safetensors"
    fitted.save(path)
    about, tensors = parts(path.read_bytes())

    def load(raw):
        path.write_bytes(raw)
        return lt.load(path)

    grid = tensors["clock_grid"]
    for other, sentence in ((grid.flip(0), "in order"), (grid * np.nan, "product"), (grid[:, :1], "Several clocks")):
        refused(load, join(about, {**tensors, "clock_grid": other.contiguous()}), sentence)
    for period, sentence in ((24, "one for each"), ([None], "one for each"), ([None, "day"], "above 0")):
        changed = {**about, "params": {**about["params"], "period": period}}
        refused(load, join(changed, tensors), sentence)
    refused(load, join(about, {**tensors, "clock_grid": grid[:, 0].contiguous()}), "one number|rising")


@pytest.mark.filterwarnings("ignore::labeltide.NoiseWarning")
def test_a_single_clock_has_one_estimate():
    true = lt.make_sequences(n=20, n_steps=6, n_features=3, stay=0.9, random_state=1)
    method = lt.TideClassifier(epochs=1, random_state=0, device="cpu").fit(true.features, true.labels)
    assert method.clock_estimates_ == (method.noise_estimate_,)
    assert method.clock_temporality_[0].p_value == method.temporality_.p_value
    assert method.is_noisy_p_ == method.temporality_.is_noisy_p


@pytest.mark.parametrize(
    ("method", "period", "sentence"),
    [
        ("continuous", None, "Several clocks at once are for tide alone"),
        ("tide", 24, r"period must name one for each, such as \(None, 24\)"),
        ("tide", (None, 24, 7), "With 2 clocks"),
        ("tide", (None, -1), "period must be a number above 0"),
    ],
)
def test_what_cannot_be_is_answered_with_a_sentence(study, method, period, sentence):
    X, y, clock = study
    more = {} if period is None else {"period": period}
    with pytest.raises(ValueError, match=sentence):
        lt.METHODS[method](epochs=1, device="cpu", **more).fit(X, y, clock=clock)


def test_one_clock_has_one_period(study):
    X, y, _ = study
    with pytest.raises(ValueError, match="period must be one number, as there is one clock"):
        lt.TideClassifier(period=(None, 24), epochs=1, device="cpu").fit(X, y)
