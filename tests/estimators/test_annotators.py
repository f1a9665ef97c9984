"""Several annotators, each with an own Q(t), and groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labeltide as lt
from labeltide.estimators import paper
from labeltide.estimators.paper import DEVIATIONS, choose_last
from labeltide.noise.functions import FixedNoise

STEPS = 30
OWN = ("continuous", "discontinuous")
own_noise = pytest.mark.parametrize("name", OWN)


def make(name: str, **params: Any) -> Any:
    return lt.METHODS[name](**{"epochs": 2, "hidden_size": 4, "random_state": 0, "device": "cpu", **params})


def matrices(zero: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Q from the rates at which either class is recorded as the other."""
    return np.stack([np.stack([1 - zero, zero], -1), np.stack([one, 1 - one], -1)], -2)


def three_annotators(n: int = 200, seed: int = 0) -> tuple[lt.Sequences, np.ndarray, np.ndarray]:
    """A steady one, one who gets worse, and a steady one who gave twelve labels."""
    study = lt.make_sequences(n=n, n_steps=STEPS, n_features=6, random_state=seed)
    t = np.linspace(0, 1, STEPS)
    truth = np.stack([matrices(0.1 + 0 * t, 0.1 + 0 * t), matrices(0.05 + 0.4 * t, 0.05 + 0.3 * t)])
    truth = np.concatenate([truth, truth[:1]])
    labels = [lt.corrupt(study.clean_labels, own, random_state=10 * seed + a) for a, own in enumerate(truth)]
    y = np.stack(labels, -1)
    y[1:, :, 2] = y[0, 12:, 2] = -1
    return study, y, truth


def small(seed: int = 0, annotators: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 8, 2))
    clean = X[..., :1] > 0
    return X, (clean ^ (rng.random((20, 8, annotators)) < 0.2)).astype(int)


@own_noise
def test_own_noise_is_closer_to_the_truth_than_shared_noise_and_few_labels_lean_on_the_others(name, monkeypatch):
    study, y, truth = three_annotators()
    own = make(name, epochs=150, hidden_size=16).fit(study.features, y)
    monkeypatch.setattr(paper, "_has_several_annotators", lambda data: False)
    shared = make(name, epochs=150, hidden_size=16).fit(study.features, y)
    assert shared.annotator_matrices_ is None
    error = np.abs(own.annotator_matrices_ - truth).mean((1, 2, 3))
    error_shared = np.abs(shared.noise_matrices_ - truth).mean((1, 2, 3))
    assert error[:2].mean() < 0.7 * error_shared[:2].mean()
    away = np.abs(own.annotator_matrices_ - own.noise_matrices_).mean((1, 2, 3))
    assert away[2] < 0.8 * away[:2].min()
    drift = own.annotator_matrices_[:, -5:, 0, 1].mean(1) - own.annotator_matrices_[:, :5, 0, 1].mean(1)
    assert drift[1] > 0.1
    assert drift[1] > 2 * abs(drift[0])


@own_noise
def test_annotators_who_err_alike_are_taken_as_one(name):
    study = lt.make_sequences(n=60, n_steps=STEPS, n_features=6, random_state=1)
    noise = matrices(np.full(STEPS, 0.2), np.full(STEPS, 0.2))
    y = np.stack([lt.corrupt(study.clean_labels, noise, random_state=a) for a in range(2)], -1)
    method = make(name, epochs=40, hidden_size=16, standardize=False).fit(study.features, y)
    np.testing.assert_allclose(method.annotator_matrices_[0], method.annotator_matrices_[1], atol=0.05)


@own_noise
def test_matrices_of_annotators_and_what_they_have_in_common_have_their_shapes(name):
    X, y = small()
    method = make(name).fit(X, y)
    assert method.annotator_matrices_.shape == (3, 8, 2, 2)
    assert method.noise_matrices_.shape == (8, 2, 2)
    assert method.sources_ == [(0, None), (1, None), (2, None)]
    np.testing.assert_allclose(method.annotator_matrices_.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(method.noise_matrices_, method.annotator_matrices_.mean(0), atol=1e-5)
    np.testing.assert_array_equal(method.noise_at(method.clock_grid_), method.noise_matrices_)
    for annotator in range(3):
        np.testing.assert_allclose(
            method.noise_at(method.clock_grid_, annotator), method.annotator_matrices_[annotator], atol=1e-6
        )
    with pytest.raises(ValueError, match="annotator must be a whole number"):
        method.noise_at(0.5, annotator=3)


@pytest.mark.parametrize("name", sorted(set(lt.METHODS) - {*OWN, "known", "tide"}))
def test_other_methods_share_one_noise(name):
    X, y = small()
    method = make(name).fit(X, y)
    assert method.annotator_matrices_ is None
    assert len(method.sources_) == 3
    np.testing.assert_array_equal(method.noise_at(0.5, annotator=1), method.noise_at(0.5))


@own_noise
def test_an_annotator_without_labels_has_the_common_noise_and_disturbs_nobody(name):
    X, y = small()
    silent = np.concatenate([y, np.full((20, 8, 1), -1)], -1)
    method = make(name, epochs=30).fit(X, silent)
    common = method.noise_matrices_
    away = np.abs(method.annotator_matrices_ - common).mean((1, 2, 3))
    assert away[3] < 0.05
    np.testing.assert_allclose(common, method.annotator_matrices_[:3].mean(0), atol=1e-5)


@own_noise
def test_a_fleet_with_annotators_ends_as_each_would_alone(name):
    X, y = small()
    labels = [y, small(1)[1]]
    fleet = [make(name, random_state=seed) for seed in range(2)]
    lt.fit_fleet(fleet, X, labels)
    for seed, (member, own) in enumerate(zip(fleet, labels, strict=True)):
        alone = make(name, random_state=seed).fit(X, own)
        np.testing.assert_allclose(member.predict_proba(X), alone.predict_proba(X), atol=1e-4)
        np.testing.assert_allclose(member.annotator_matrices_, alone.annotator_matrices_, atol=1e-4)


@own_noise
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("n", [1, 3, 20])
def test_few_sequences_and_early_stopping_are_borne(name, early_stopping, n):
    X, y = small()
    if n == 1 and early_stopping:
        pytest.skip("Nothing to hold out.")
    method = make(name, early_stopping=early_stopping).fit(X[:n], y[:n])
    assert np.isfinite(method.annotator_matrices_).all()


@own_noise
def test_a_saved_fit_keeps_every_annotator(name, tmp_path):
    X, y = small()
    method = make(name).fit(X, y)
    method.save(tmp_path / "fit")
    loaded = lt.load(tmp_path / "fit")
    assert loaded.sources_ == method.sources_
    for attribute in ("annotator_matrices_", "noise_matrices_"):
        np.testing.assert_array_equal(getattr(loaded, attribute), getattr(method, attribute))
    np.testing.assert_array_equal(loaded.audit(X, y).quality, method.audit(X, y).quality)


def test_the_audit_judges_every_label_by_its_own_annotators_noise():
    X, y = small(annotators=2)
    truth = np.stack([np.array([[0.95, 0.05], [0.05, 0.95]]), np.array([[0.6, 0.4], [0.4, 0.6]])])[None, :, None]
    method = make("known", noise=FixedNoise(truth), epochs=20).fit(X, y)
    assert method.annotator_matrices_.shape == (2, 8, 2, 2)
    found = method.audit(X, y)
    chances = method.predict_proba(X)
    for row, step in np.ndindex(20, 8):
        weight = chances[row, step].copy()
        for annotator in range(2):
            weight *= truth[0, annotator, 0, :, y[row, step, annotator]]
        np.testing.assert_allclose(found.probabilities[row, step], weight / weight.sum(), atol=1e-5)
    assert found.quality.shape == (20, 8, 2)
    np.testing.assert_allclose(found.noise_rate.mean((0, 1)), [0.05, 0.4], atol=1e-6)
    with pytest.raises(ValueError, match="labels of the 2 annotators of fit"):
        method.audit(X, y[..., 0])
    with pytest.raises(ValueError, match="one annotator or the 3 of y"):
        make("known", noise=FixedNoise(truth)).fit(X, small()[1])


@pytest.mark.parametrize("losses", [np.zeros((0, 4)), np.full((4, 4), np.nan), np.zeros((1, 4))])
def test_without_anything_to_compare_the_middle_is_chosen(losses):
    assert choose_last(losses) == len(DEVIATIONS) // 2


def test_the_last_candidate_within_half_a_standard_error_is_chosen():
    shared = np.random.default_rng(0).normal(size=(20, 1))  # moves all candidates, so that it does not count
    sign = np.resize([1, -1], 20)[:, None]
    losses = shared + np.array([0.0, 0.001, 0.002, 0.2]) + 0.01 * sign * np.array([0, 1, 1, 1])
    assert choose_last(losses) == 1  # the standard error is 0.0023
    assert choose_last(shared + np.array([0.2, 0.1, 0.0, 0.1])) == 2
    losses[:, 3] = np.inf
    assert choose_last(losses) == 1


# Groups


@own_noise
def test_an_annotator_in_another_group_is_another_source(name):
    X, y = small(annotators=2)
    groups = np.array(["north", "south"] * 10)
    method = make(name).fit(X, y, groups=groups)
    assert method.sources_ == [(0, "north"), (0, "south"), (1, "north"), (1, "south")]
    assert method.annotator_matrices_.shape == (4, 8, 2, 2)
    np.testing.assert_allclose(
        method.noise_at(method.clock_grid_, 1, "north"), method.annotator_matrices_[2], atol=1e-6
    )
    spread = np.full((20, 8, 4), -1)
    spread[::2, :, 0], spread[::2, :, 2] = y[::2, :, 0], y[::2, :, 1]
    spread[1::2, :, 1], spread[1::2, :, 3] = y[1::2, :, 0], y[1::2, :, 1]
    by_hand = make(name).fit(X, spread)
    np.testing.assert_array_equal(method.annotator_matrices_, by_hand.annotator_matrices_)
    found, other = method.audit(X, y, groups=groups), by_hand.audit(X, spread)
    assert found.quality.shape == y.shape
    np.testing.assert_allclose(found.probabilities, other.probabilities, atol=1e-6)
    np.testing.assert_allclose(found.quality[::2, :, 1], other.quality[::2, :, 2], atol=1e-6)
    np.testing.assert_allclose(found.noise_rate[1::2, :, 1], other.noise_rate[1::2, :, 3], atol=1e-6)
    assert method.corrected_labels(X, y, groups=groups).shape == y.shape


def test_one_annotator_in_groups_keeps_the_users_shape(tmp_path: Path):
    X, y = small(annotators=1)
    groups = [("site", 1) if row < 9 else ("site", 2) for row in range(20)]
    method = make("discontinuous").fit(X, y[..., 0], groups=groups)
    assert method.sources_ == [(0, ("site", 1)), (0, ("site", 2))]
    assert method.audit(X, y[..., 0], groups=groups).quality.shape == (20, 8)
    assert method.corrected_labels(X, y[..., 0], groups=groups).shape == (20, 8)
    np.testing.assert_array_equal(
        method.noise_at(0.5, group=("site", 2)), method.noise_at(0.5, annotator=0, group=("site", 2))
    )
    method.save(tmp_path / "fit")
    loaded = lt.load(tmp_path / "fit")
    assert loaded.sources_ == method.sources_
    np.testing.assert_array_equal(
        loaded.audit(X, y[..., 0], groups=groups).quality, method.audit(X, y[..., 0], groups=groups).quality
    )


def test_groups_change_nothing_for_methods_that_share_one_noise():
    X, y = small(annotators=2)
    grouped, plain = make("volmin").fit(X, y, groups=np.arange(20) % 3), make("volmin").fit(X, y)
    assert len(grouped.sources_) == 6
    np.testing.assert_allclose(grouped.predict_proba(X), plain.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(grouped.audit(X, y).quality, plain.audit(X, y).quality, atol=1e-4)


def test_groups_that_are_wrong_are_answered_with_a_sentence():
    X, y = small(annotators=2)
    groups = np.array(["north", "south"] * 10)
    with pytest.raises(ValueError, match="20 names, one per sequence"):
        make("discontinuous").fit(X, y, groups=groups[:5])
    with pytest.raises(ValueError, match="Sequence 3 has none"):
        make("discontinuous").fit(X, y, groups=[None if row == 3 else "a" for row in range(20)])
    with pytest.raises(ValueError, match="hashable"):
        make("discontinuous").fit(X, y, groups=[["a"]] * 20)
    method = make("discontinuous").fit(X, y, groups=groups)
    with pytest.raises(ValueError, match=r"Unknown group 'east'\. The fit knows: 'north', 'south'"):
        method.audit(X, y, groups=["east"] * 20)
    with pytest.raises(ValueError, match="fit was called with groups"):
        method.audit(X, y)
    with pytest.raises(ValueError, match="Name one of: 'north', 'south'"):
        method.noise_at(0.5, annotator=0)
    with pytest.raises(ValueError, match="Name one of the 2 annotators"):
        method.noise_at(0.5, group="north")
    with pytest.raises(ValueError, match="fit was"):
        make("discontinuous").fit(X, y).audit(X, y, groups=groups)
