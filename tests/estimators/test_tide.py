"""What tide promises: close to clean labels, one network on request, runs of errors seen through."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.estimators.cross_fit import reversal

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


def test_one_network_can_stand_for_the_ensemble(study, fitted):
    X, _, recorded, test, _ = study
    single = fit(X, recorded[0.0], ensemble=False)
    assert (single.model_.members, fitted.model_.members) == (1, 5)
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
