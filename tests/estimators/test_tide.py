"""What tide promises: close to clean labels, one network on request, runs of errors seen through."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.estimators import fit_fleet, tide
from labeltide.estimators.cross_fit import cross_fit
from labeltide.training import reversal

N, STEPS = 60, 20


@pytest.fixture(scope="module")
def study():
    """Persistent labels with telling features; what was recorded, singly wrong and in bursts."""
    true = lt.make_sequences(n=2 * N, n_steps=STEPS, n_features=4, stay=0.9, random_state=1)
    noise = lt.make_noise("growth", n_steps=STEPS, rate=0.3)
    train, test = true.take(np.arange(N)), true.take(np.arange(N, 2 * N))
    clean = train.labels[..., 0]
    recorded = {bursts: lt.corrupt(clean, noise, random_state=0, bursts=bursts) for bursts in (0.0, 0.8)}
    return train.features, clean, recorded, test, np.asarray(noise)


def fit(X, y, **params):
    return lt.TideClassifier(**{"epochs": 40, "random_state": 0, "device": "cpu", **params}).fit(X, y)


@pytest.fixture(scope="module")
def fitted(study):
    return fit(study[0], study[2][0.0])


def test_wrong_labels_cost_little(study, fitted):
    X, clean, recorded, test, noise = study
    truth = test.labels[..., 0]
    reference = lt.TideClassifier(epochs=40, random_state=0, device="cpu").fit(X, recorded[0.0], trusted=clean)
    ignoring = lt.METHODS["ignore"](epochs=40, random_state=0, device="cpu").fit(X, recorded[0.0])
    errors = [float((method.predict(test.features) != truth).mean()) for method in (fitted, reference, ignoring)]
    assert errors[0] < errors[1] + 0.03
    assert errors[0] < errors[2]
    assert np.abs(fitted.noise_matrices_ - noise).mean() < 0.08


def test_with_every_label_trusted_nothing_is_cross_fitted(study):
    X, clean, recorded, _, _ = study
    method = lt.TideClassifier(epochs=2, random_state=0, device="cpu").fit(X, recorded[0.0], trusted=clean)
    assert method.fold_model_ is None
    counted = np.mean([(recorded[0.0] != clean)[:, step].mean() for step in range(STEPS)])
    assert 1 - np.diagonal(method.noise_matrices_, axis1=1, axis2=2).mean() == pytest.approx(counted, abs=0.05)


def test_runs_of_errors_are_told_from_single_ones(study, fitted):
    X, _, recorded, _, _ = study
    assert fitted.chain_.bursts == 0
    assert fit(X, recorded[0.8]).chain_.bursts > 0.5


def test_networks_learn_again_where_labels_only_looked_clean(study, monkeypatch):
    X, _, recorded, _, _ = study
    stages = []

    def spy(fleet_fit, folds, noise, stage):
        stages.append(stage)
        return cross_fit(fleet_fit, folds, noise, stage)

    monkeypatch.setattr(tide, "cross_fit", spy)
    labels = [recorded[0.0], recorded[0.8]]
    alone = [fit(X, each) for each in labels]
    assert stages == ["cross-fit", "cross-fit", "cross-fit again"]
    estimators = [lt.TideClassifier(epochs=40, random_state=0, device="cpu") for _ in labels]
    fit_fleet(estimators, X, labels)
    for one, of_fleet in zip(alone, estimators, strict=True):
        np.testing.assert_allclose(of_fleet.noise_matrices_, one.noise_matrices_, atol=1e-5)
        np.testing.assert_array_equal(of_fleet.predict(X), one.predict(X))


def test_one_network_can_stand_for_the_ensemble(study, fitted):
    X, _, recorded, test, _ = study
    single = fit(X, recorded[0.0], ensemble=False)
    assert single.model_.members == 1
    assert fitted.model_.members in (5, 10)
    agree = (single.predict(test.features) == fitted.predict(test.features)).mean()
    assert agree > 0.9


def test_families_share_one_unit_of_weight(fitted):
    assert sum(fitted.families_.values()) == pytest.approx(1)
    assert all(weight >= 0 for weight in fitted.families_.values())


def test_one_sequence_alone_is_refused_with_a_way_out(study):
    with pytest.raises(ValueError, match=r"at least two sequences with labels.*windows"):
        fit(study[0][:1], study[2][0.0][:1])


def test_reading_backwards_twice_is_reading_onwards():
    mask = torch.arange(6) < torch.tensor([6, 3, 1])[:, None]
    order = reversal(mask)
    rows = torch.arange(3)[:, None]
    assert order[1].tolist() == [2, 1, 0, 3, 4, 5]
    assert torch.equal(order[rows, order], torch.arange(6).expand(3, -1))


@pytest.fixture(scope="module")
def several(study):
    """Three annotators: one steady, one who tires, one who labels a few sequences."""
    X, clean = study[:2]
    rates = np.stack([np.full(STEPS, 0.15), np.linspace(0.02, 0.45, STEPS), np.full(STEPS, 0.3)], 1)
    wrong = np.random.default_rng(5).random((N, STEPS, 3)) < rates
    y = np.where(wrong, 1 - clean[..., None], clean[..., None])
    y[12:, :, 2] = -1
    return X, clean, y, rates, fit(X, y, epochs=20)


def test_each_annotator_has_an_own_q_and_all_have_a_common_one(several):
    _, _, y, rates, fitted = several
    own = fitted.annotator_matrices_
    assert own.shape == (3, STEPS, 2, 2)
    wrong = 1 - np.diagonal(own, axis1=2, axis2=3).mean(-1)  # (annotators, steps)
    assert np.abs(wrong - rates.T)[:2].mean() < 0.05
    assert wrong[1, -1] - wrong[1, 0] > 0.2
    shares = (y >= 0).sum((0, 1)) / (y >= 0).sum()
    np.testing.assert_allclose(fitted.noise_matrices_, np.einsum("a,atij->tij", shares, own), atol=1e-5)


def test_labels_of_all_annotators_are_better_than_those_of_one(several, study):
    X, clean, y, _, fitted = several
    alone = fit(X, y[..., 0], epochs=20)
    errors = [(one.predict(X) != clean).mean() for one in (fitted, alone)]
    assert errors[0] <= errors[1] + 0.01


def test_an_annotator_who_never_speaks_changes_nothing(study):
    X, _, recorded, _, _ = study
    y = recorded[0.0][..., None]
    alone, padded = (fit(X, labels, epochs=3) for labels in (y, np.concatenate([y, np.full_like(y, -1)], -1)))
    np.testing.assert_array_equal(alone.noise_matrices_, padded.noise_matrices_)
    np.testing.assert_array_equal(alone.predict_proba(X), padded.predict_proba(X))
