from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import labeltide as lt
from labeltide.estimators import planted
from labeltide.estimators.planted import (
    KINDS,
    PlantedErrors,
    check_planted,
    plant_errors,
    unnamed_classes,
    widen_interval,
)
from labeltide.inference.conclusion import CANNOT_BE_TOLD, SHOWN, Diagnostic, conclude_noise


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
    assert not unnamed_classes(results)


def test_a_share_that_does_not_move_with_what_was_planted_is_denied():
    named, again, labels = np.array([3, 30]), np.array([0, 28]), np.array([900, 100])
    still = PlantedErrors("at random", np.array([50, 50]), np.array([45, 9]), 0.2, named, again, labels, labels)
    (check,) = check_planted([still], ["a", "b"])
    assert check.denies
    assert "54 were found" in check.sentence
    assert list(unnamed_classes([still])) == [1]  # few of its planted errors are found
    _, of_class = check_planted([replace(still, response=1.0)], ["a", "b"])
    assert of_class.is_warning
    assert "recorded as 'b' are not listed: of 50 planted errors of this class, 9 were found" in of_class.sentence


def test_a_class_of_which_most_labels_seem_wrong_must_not_exceed_errors_at_random():
    changed, found, labels = np.array([50, 50, 50]), np.array([45, 40, 45]), np.array([3000, 200, 800])
    flags = np.array([60, 140, 60])
    seen = np.array([2900, 5, 700])  # by the signals alone
    brief = PlantedErrors("at random", changed, found, 1.0, flags, flags, labels, seen)
    assert list(unnamed_classes([brief])) == [1]
    assert "140 of 200 seem wrong, where errors at random would give 53. They" in unnamed_classes([brief])[1]
    even = np.array([60, 55, 60])
    assert not unnamed_classes([replace(brief, named=even, named_again=even, unchanged=np.array([3000, 90, 800]))])
    assert not unnamed_classes([replace(brief, unchanged=np.array([3000, 400, 800]))])  # most labels are right
    assert not unnamed_classes([replace(brief, recognised=np.array([2900, 50, 700]))])  # real events would be seen


def test_one_sided_errors_towards_a_rare_class_that_the_signals_show_are_named():
    random = np.random.default_rng(0)
    clean = lt.make_sequences(n=40, n_steps=60, n_features=3, n_classes=3, stay=0.9, variance=0.3, random_state=0)
    truth = np.where((clean.clean_labels == 2) & (random.random((40, 1)) < 0.7), 0, clean.clean_labels)
    features = clean.features + 2 * np.eye(3)[truth]
    labels = np.where((random.random(truth.shape) < 0.15) & (truth < 2), 2, truth)[..., None]
    results = plant_errors(lt.TideClassifier(epochs=15, random_state=0).fit(features, labels), features, labels)
    first = results[0]
    assert first.named[2] > first.unchanged[2] / 2
    assert first.recognised[2] > 0.8 * (first.unchanged[2] - first.named[2])
    assert not unnamed_classes(results)


def test_where_most_planted_errors_are_missed_labels_without_any_sign_may_still_be_wrong():
    none = np.array([0, 0])
    few = PlantedErrors("at random", np.array([50, 50]), np.array([30, 9]), 0.9, none, none, none, none)
    check, _ = check_planted([few], ["a", "b"])
    assert check.is_warning
    assert not check.denies
    assert conclude_noise(0.3, [check]).answer == CANNOT_BE_TOLD
    assert conclude_noise(0.01, [check]).answer == SHOWN


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


def test_the_spread_of_refits_widens_the_interval_and_keeps_a_lower_end_of_zero(study):
    def refits(*moved):
        none = np.zeros(2, int)
        pairs = zip(KINDS, moved, strict=False)
        return [PlantedErrors(kind, none, none, 1.0, *[none] * 4, each) for kind, each in pairs]

    assert widen_interval(0.1, 0.09, 0.12, ()) == (0.09, 0.12)
    assert widen_interval(0.1, 0.09, 0.12, refits(0.0, 0.0)) == (0.09, 0.12)
    low, high = widen_interval(0.1, 0.09, 0.12, refits(0.01, 0.02))
    assert 0 < low < 0.08
    assert 0.13 < high < 0.3
    assert widen_interval(0.1, 0.0, 0.12, refits(0.01, 0.02))[0] == 0.0
    assert widen_interval(0.1, 0.09, 0.12, refits(0.0, 0.0, 0.2, 0.2)) == (0.09, 0.12)  # runs and shifts do not count


def test_an_estimator_names_labels_by_the_rule_of_the_audit_of_a_table_also_from_a_file(study, fitted, tmp_path):
    labels = fitted.encode(study.labels, study.lengths)[..., 0]
    assert (fitted.audit(study.features, study.labels).is_issue[..., 0] & (labels == 1)).any()
    check = Diagnostic("planted class", True, "Its planted errors are not found.", unnamed=(1,))
    fitted.findings_["diagnostics"] = (*fitted.diagnostics_, check)
    fitted.save(tmp_path / "model")
    for clf in (fitted, lt.load(tmp_path / "model")):
        flagged = clf.audit(study.features, study.labels).is_issue[..., 0]
        assert flagged[labels == 0].any()
        assert not flagged[labels == 1].any()
