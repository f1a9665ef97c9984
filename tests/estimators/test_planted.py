from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import labeltide as lt
from labeltide.estimators import planted
from labeltide.estimators.planted import KINDS, PlantedErrors, check_planted, plant_errors, unreliable_classes


@pytest.fixture(scope="module")
def study():
    clean = lt.make_sequences(n=40, n_steps=40, n_features=3, n_classes=2, stay=0.95, variance=0.3, random_state=0)
    return lt.corrupt(clean, lt.make_noise("static", 2, 40, rate=0.1), random_state=0)


@pytest.fixture(scope="module")
def fitted(study):
    return lt.TideClassifier(epochs=15, random_state=0).fit(study.features, study.labels)


def test_planted_errors_are_found_and_the_share_rises_by_what_was_planted(study, fitted):
    results = plant_errors(fitted, study.features, study.labels)
    assert [each.kind for each in results] == list(KINDS)
    for each in results[:2]:
        assert each.found.sum() > 0.8 * each.planted.sum() > 0
        assert each.response == pytest.approx(1, abs=0.3)
        assert each.named_again.sum() > 0.8 * each.named.sum() > 0
    (check,) = check_planted(results, ["a", "b"])
    assert not check.is_warning
    assert not unreliable_classes(results).any()


def test_a_share_that_does_not_move_with_what_was_planted_is_denied():
    still = PlantedErrors("at random", np.array([50, 50]), np.array([45, 9]), 0.2, np.array([3, 30]), np.array([0, 28]))
    (check,) = check_planted([still], ["a", "b"])
    assert check.denies
    assert "54 were found" in check.sentence
    assert unreliable_classes([still]).tolist() == [False, True]  # few of its planted errors are found
    _, of_class = check_planted([replace(still, response=1.0)], ["a", "b"])
    assert of_class.is_warning
    assert "recorded as 'b' are not listed: Of 50 planted errors of this class, 9 were found" in of_class.sentence


def test_of_a_large_study_some_recordings_are_taken(study, fitted, monkeypatch):
    monkeypatch.setattr(planted, "MAX_STEPS", 800)
    results = plant_errors(fitted, study.features, study.labels)
    assert results[0].planted.sum() < 0.1 * 800
    assert results[0].found.sum() > 0.5 * results[0].planted.sum()


def test_trusted_labels_are_never_changed(study):
    trusted = np.where(np.arange(40) < 30, study.clean_labels, -1)
    clf = lt.TideClassifier(epochs=2, random_state=0).fit(study.features, study.labels, trusted=trusted)
    seen = []
    original = planted.fit_fleet
    try:
        planted.fit_fleet = lambda refits, X, labels, **inputs: (
            seen.extend(labels),
            original(refits, X, labels, **inputs),
        )
        plant_errors(clf, study.features, study.labels, trusted=trusted)
    finally:
        planted.fit_fleet = original
    assert all((copy[:, :30, 0] == study.labels[:, :30, 0]).all() for copy in seen)
