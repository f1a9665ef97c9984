"""`tide` finds labels that are wrong near the boundary of the classes, and leaves all other fits as they were."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.auditing.evidence_file import read_evidence, write_evidence
from labeltide.chain import difficulty
from labeltide.estimators import difficulty_steps, tide_steps
from labeltide.estimators.difficulty_fit import DifficultyFit

RATE = 0.6  # of errors at the boundary; none far from it


def simulate(near: bool, rows=120, steps=40, seed=0):
    """Persistent labels with Gaussian features: recorded wrongly near the boundary, or anywhere."""
    generator = np.random.default_rng(seed)
    truth = ((generator.random((rows, steps)) < 0.05).cumsum(1) + generator.integers(0, 2, (rows, 1))) % 2
    features = generator.standard_normal((rows, steps, 2)).astype(np.float32)
    features[..., 0] += 1.5 * (2 * truth - 1)
    rank = np.abs(features[..., 0]).ravel().argsort().argsort().reshape(truth.shape) / truth.size
    rate = RATE * (1 - rank) if near else np.full(truth.shape, RATE / 2)
    return features, np.where(generator.random(truth.shape) < rate, 1 - truth, truth), truth


def fit(features, labels):
    return lt.TideClassifier(epochs=30, random_state=0).fit(features, labels, clusters=np.arange(len(labels)) // 4)


@pytest.fixture(scope="module")
def near():
    features, labels, truth = simulate(near=True)
    return fit(features, labels), features, labels, truth


def test_hard_steps_are_found_to_be_wrong_more_often(near):
    model, _, labels, _ = near
    rates = [level.wrong for level in model.difficulty_]
    assert len(rates) == 8
    assert sum(level.labels for level in model.difficulty_) == labels.size
    assert rates[0] > 0.4
    assert rates[-1] < 0.15


def test_the_share_of_wrong_labels_is_right_and_audits_suggest_the_truth(near):
    model, features, labels, truth = near
    share = (labels != truth).mean()
    assert abs(1 - model.noise_matrices_.diagonal(axis1=-2, axis2=-1).mean() - share) < 0.06
    audit = model.audit(features, labels)
    assert (audit.suggested != truth).mean() < share / 2
    assert audit.clock.max() == pytest.approx(1.0)


def test_bands_and_tests_are_those_of_the_clock(near):
    model, _, labels, truth = near
    estimate = model.noise_estimate_
    assert np.all(np.diff(estimate.clock) > 0)
    assert estimate.total_lower < (labels != truth).mean() < estimate.total_upper
    assert estimate.labels.sum() == pytest.approx(labels.size, rel=0.01)
    assert 0.01 < model.temporality_.p_value <= 1
    assert model.temporality_.is_noisy_p < 0.05
    assert all(0 < part.p_value <= 1 for part in model.temporality_.per_class)


def test_a_saved_model_keeps_its_levels(near, tmp_path):
    model, features, labels, _ = near
    model.save(tmp_path / "model.safetensors")
    again = lt.load(tmp_path / "model.safetensors")
    assert again.difficulty_ == model.difficulty_
    assert np.array_equal(*(fitted.audit(features, labels).probabilities for fitted in (model, again)))


def test_kept_evidence_keeps_its_levels(near, tmp_path):
    training = near[0].training_
    write_evidence(tmp_path / "file", training)
    again = read_evidence(tmp_path / "file")
    assert again.data.offsets.equal(training.data.offsets)
    assert again.data.n_levels == 8
    assert np.array_equal(again.moments, training.moments)


def test_other_noise_is_fitted_as_before(monkeypatch):
    features, labels, _ = simulate(near=False)
    found = fit(features, labels)
    monkeypatch.setattr(tide_steps, "with_difficulty", lambda data, fits, chain, concluded, *_: concluded)
    without = fit(features, labels)
    assert found.difficulty_ == ()
    assert np.array_equal(found.noise_matrices_, without.noise_matrices_)
    assert np.array_equal(found.predict_proba(features), without.predict_proba(features))


def test_one_fit_of_a_fleet_may_have_levels_and_another_none(near):
    from labeltide.estimators.fleet import fit_fleet

    model, features, labels, truth = near
    flips = np.random.default_rng(5).random(truth.shape) < RATE / 2
    pair = [lt.TideClassifier(epochs=30, random_state=0) for _ in range(2)]
    both = np.stack([labels, np.where(flips, 1 - truth, truth)])
    fit_fleet(pair, features, both, clusters=np.arange(len(labels)) // 4)
    assert [bool(one.difficulty_) for one in pair] == [True, False]
    np.testing.assert_allclose(pair[0].noise_matrices_, model.noise_matrices_, atol=1e-5)


def test_the_checks_of_the_clock_do_not_see_levels(near):
    data = near[0].training_.data
    assert data.n_moments == 40
    assert np.array_equal(data.moments().numpy(), np.broadcast_to(np.arange(40), data.mask.shape))
    assert {check.name for check in near[0].diagnostics_ if check.is_warning} <= {"class_balance"}


def test_some_rows_may_lack_the_last_fold(near, monkeypatch):
    monkeypatch.setattr(difficulty, "MOST_STEPS", 200)  # five rows
    monkeypatch.setattr(difficulty, "DIFFICULTY_WORTH", -np.inf)
    monkeypatch.setattr(difficulty_steps, "is_suspected", lambda data, fits, _: torch.ones(len(fits.labels)).bool())
    _, features, labels, _ = near
    assert lt.TideClassifier(epochs=1, hidden_size=4, random_state=1).fit(features, labels).difficulty_


def test_timing_errors_must_surpass_levels_and_keep_the_order_of_families(near, monkeypatch):
    seen = []
    original = tide_steps.with_difficulty

    def remember(data, fits, chain, concluded, *more):
        found = original(data, fits, chain, concluded, *more)
        seen.extend((concluded.chosen.held_out, found.chosen.held_out))
        return found

    monkeypatch.setattr(tide_steps, "with_difficulty", remember)
    _, features, labels, _ = near
    assert fit(features, labels).difficulty_
    before, after = seen
    assert after.max() > before.max()
    assert after.argmax() == before.argmax()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("thresholds", [1.0]),
        ("thresholds", None),
        ("moments", [3.0, 1.0]),
        ("matrices", [[[2.0, -1.0], [0.0, 1.0]]]),
        ("error_rates", [float("nan")] * 8),
        ("error_rates", [5.0] * 8),
        ("labels", [-1.0] * 8),
        ("period", "day"),
        ("period", 0.0),
        ("period", float("nan")),
    ],
)
def test_malformed_levels_are_refused(near, name, value):
    written = json.loads(json.dumps(near[0].difficulty_fit_.to_json()))
    with pytest.raises(ValueError, match=r"levels of difficulty|rows"):
        DifficultyFit.from_json(written | {name: value}, 2)
