"""Where steps are missing: the longer the gap, the less the labels before it tell about those after."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.chain.em import label_chain
from labeltide.chain.passes import Members

N, STEPS = 80, 20
KEPT = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 36, 56, 76])  # three long gaps


def fit(X, y, **more):
    return lt.TideClassifier(epochs=6, align=False, random_state=0, device="cpu").fit(X, y, **more)


def cut(seed):
    """Of 77 steps of persistent labels, with features that hardly tell, those that were kept."""
    true = lt.make_sequences(n=N, n_steps=77, n_features=4, stay=0.97, random_state=seed)
    clean = true.labels[:, KEPT, 0]
    recorded = lt.corrupt(clean, [[0.8, 0.2], [0.2, 0.8]], random_state=0)
    features = np.random.default_rng(seed).standard_normal((N, STEPS, 2)) + 0.5 * clean[..., None]
    return features, recorded, clean


GAPS = np.diff(KEPT, prepend=-1)


@pytest.fixture(scope="module")
def study():
    return cut(1)


@pytest.fixture(scope="module")
def fitted(study):
    X, y, _ = study
    return fit(X, y, gaps=GAPS)


@pytest.fixture(scope="module")
def without(study):
    X, y, _ = study
    return fit(X, y)


def test_gaps_of_one_change_nothing(study, without):
    X, y, _ = study
    same = fit(X, y, gaps=np.ones((N, STEPS)))
    assert same.training_.data.jumps is None
    np.testing.assert_array_equal(same.noise_matrices_, without.noise_matrices_)
    np.testing.assert_array_equal(
        same.audit(X, y, gaps=np.ones(STEPS)).probabilities, without.audit(X, y).probabilities
    )


def test_persistence_is_learned_from_steps_that_follow_at_once(fitted, without):
    """True labels stay with 0.97. Steps that are far apart, taken for neighbours, look like noise at the end."""
    stay, rates = [], []
    for method in (fitted, without):
        data, one = method.training_.data, torch.zeros(1, dtype=torch.int64)
        alone = label_chain(data, Members(one, one, torch.ones(1, N)), method.training_.grid)
        stay.append(float(alone.transition[0].diagonal().mean()))
        rates.append(1 - float(alone.matrices[0, 0, -3:].diagonal(dim1=1, dim2=2).mean()))
    assert stay[0] == pytest.approx(0.97, abs=0.015)
    assert rates[0] < 0.3 < rates[1]  # 0.2 in truth


def test_a_huge_gap_forgets(study, fitted):
    """The labels before it then say as little as if they belonged to another sequence."""
    X, y, _ = study
    at = 10
    gaps = np.ones(STEPS)
    gaps[at] = 10**6
    whole = fitted.audit(X, y, gaps=gaps).probabilities
    other = np.where(np.arange(STEPS) < at, 1 - y, y)
    np.testing.assert_allclose(fitted.audit(X, other, gaps=gaps).probabilities[:, at:], whole[:, at:], atol=1e-3)
    assert np.abs(fitted.audit(X, other).probabilities[:, at] - whole[:, at]).max() > 0.1


def test_audits_that_know_of_gaps_are_better(study, fitted, without):
    X, y, clean = study
    lost = []
    for method, gaps in ((fitted, GAPS), (without, None)):
        found = method.audit(X, y, gaps=gaps).probabilities
        lost.append(-np.log(np.take_along_axis(found, clean[..., None], -1)).mean())
    assert lost[0] < lost[1]


def test_evidence_keeps_gaps_when_rows_are_taken(fitted):
    data = fitted.training_.data
    assert data.gaps == (1, 20)
    part = data.take_rows(np.array([3, 1]))
    np.testing.assert_array_equal(part.jumps, data.jumps[[3, 1]])
    assert fitted.noise_estimate_.total == pytest.approx(0.2, abs=0.06)


def test_corrected_labels_take_gaps(study, fitted):
    X, y, _ = study
    found = fitted.audit(X, y, gaps=GAPS).corrected()
    np.testing.assert_array_equal(fitted.corrected_labels(X, y, gaps=GAPS), found)


def test_other_methods_pay_no_heed(study):
    X, y, _ = study
    methods = [
        lt.METHODS["ignore"](epochs=2, random_state=0, device="cpu").fit(X, y, gaps=gaps) for gaps in (None, GAPS)
    ]
    np.testing.assert_array_equal(methods[0].predict_proba(X), methods[1].predict_proba(X))


def test_consensus_forgets_over_gaps(study):
    _, _, clean = study
    people = [lt.corrupt(clean, [[0.8, 0.2], [0.2, 0.8]], random_state=seed) for seed in (1, 2)]
    y = np.stack(people, -1)
    lost = []
    for gaps in (GAPS, None):
        found = lt.consensus(y, gaps=gaps)
        lost.append(-np.log(np.take_along_axis(found.probabilities, clean[..., None], -1)).mean())
    assert lost[0] < lost[1]
    ones = dataclasses.asdict(lt.consensus(y, gaps=np.ones((N, STEPS))))
    np.testing.assert_array_equal(ones["probabilities"], found.probabilities)
