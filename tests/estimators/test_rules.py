"""Predictions that obey rules, against an enumeration of all sequences of labels."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import pytest

import labeltide as lt
from labeltide.chain.passes import decode_by_rules


def obeys(codes, durations, forbidden):
    runs = [(code, len(list(run))) for code, run in groupby(codes)]
    if any(length < durations[code] for code, length in runs[1:-1]):
        return False
    return not any(
        codes[t] == first and second in codes[t + 1 : t + 1 + steps]
        for first, second, steps in forbidden
        for t in range(len(codes))
    )


@pytest.mark.parametrize(
    ("durations", "forbidden"),
    [
        ((1, 1, 1), []),
        ((2, 3, 1), []),
        ((1, 1, 1), [(0, 2, 1)]),
        ((1, 1, 1), [(0, 2, 3), (2, 1, 2)]),
        ((2, 1, 2), [(0, 2, 3)]),
    ],
)
def test_decoded_labels_have_the_most_expected_right_steps_of_all_that_obey_the_rules(durations, forbidden):
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), (12, 7))
    lengths = np.array([7] * 6 + [5] * 6)
    mask = np.arange(7) < lengths[:, None]
    found = decode_by_rules(probabilities * mask[..., None], mask, durations, forbidden)
    for row, length in enumerate(lengths):
        allowed = [codes for codes in product(range(3), repeat=length) if obeys(codes, durations, forbidden)]
        best = max(allowed, key=lambda codes: sum(probabilities[row, range(length), codes]))
        assert tuple(found[row, :length]) == best


@pytest.fixture(scope="module")
def fitted():
    data = lt.make_sequences(n=60, n_steps=40, n_features=4, n_classes=3, stay=0.9)
    names = np.array(["N3", "R", "W"])
    clf = lt.IgnoreClassifier(epochs=5, random_state=0).fit(data.features, names[data.clean_labels])
    return clf, data, names


def test_predict_takes_least_durations_and_forbidden_successions(fitted):
    clf, data, names = fitted
    plain = clf.predict(data.features)
    assert (clf.predict(data.features, min_duration=1, forbidden={}) == plain).all()
    found = clf.predict(data.features, min_duration={"W": 5, "N3": 3}, forbidden={("W", "N3"): 10})
    codes = np.searchsorted(names, found)
    assert all(obeys(row.tolist(), (3, 1, 5), [(2, 0, 10)]) for row in codes)
    assert not all(obeys(row.tolist(), (3, 1, 5), [(2, 0, 10)]) for row in np.searchsorted(names, plain))


def test_rules_that_are_true_make_predictions_better():
    rng = np.random.default_rng(1)
    runs = [np.repeat(rng.integers(0, 3, 40), rng.integers(5, 20, 40))[:200] for _ in range(20)]
    truth = np.stack(runs)
    noise = rng.dirichlet(np.ones(3), truth.shape)
    probabilities = 0.5 * np.eye(3)[truth] * rng.random((*truth.shape, 1)) + 0.75 * noise
    probabilities /= probabilities.sum(-1, keepdims=True)
    decoded = decode_by_rules(probabilities, np.ones(truth.shape, bool), (5, 5, 5), [])
    assert (decoded != truth).mean() < 0.7 * (probabilities.argmax(-1) != truth).mean()


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"min_duration": {"N4": 2}}, "must name classes"),
        ({"forbidden": {("W", "W"): 2}}, "two of them"),
        ({"min_duration": 0}, "whole number at least 1"),
        ({"forbidden": {("W", "N3"): 3000}}, "more than 2000 states"),
    ],
)
def test_rules_that_cannot_be_obeyed_are_refused(fitted, rules, message):
    clf, data, _ = fitted
    with pytest.raises(ValueError, match=message):
        clf.predict(data.features, **rules)
