"""Consensus: true labels from several annotators, in the values of the input."""

from __future__ import annotations

import numpy as np
import pytest

import labeltide as lt
from labeltide.chain.annotators import FIRST_CANDIDATE

STEPS, N = 20, 60
RATES = np.stack([np.linspace(0.02, 0.45, STEPS), np.full(STEPS, 0.25), np.full(STEPS, 0.3)])


def study():
    truth = lt.make_sequences(n=N, n_steps=STEPS, n_features=2, stay=0.9, random_state=1).labels[..., 0].astype(int)
    wrong = np.random.default_rng(1).random((N, STEPS, 3)) < RATES.T
    return np.where(wrong, 1 - truth[..., None], truth[..., None]), truth


def test_the_consensus_is_closer_to_the_truth_than_the_majority():
    y, truth = study()
    result = lt.consensus(y)
    majority = y.sum(-1) > 1
    assert (result.labels == truth).mean() > (majority == truth).mean() + 0.03
    assert result.probabilities.shape == (N, STEPS, 2)
    assert np.allclose(result.probabilities.sum(-1), 1)
    assert np.all(np.diff(result.quality[0]) < 0)
    assert result.noise.shape == (3, STEPS, 2, 2)
    assert result.common.shape == (STEPS, 2, 2)
    assert result.agreement.cohen.shape == (3, 3)
    assert len(result.tried) > 3


def test_labels_against_the_others_are_contested():
    y, truth = study()
    result = lt.consensus(y, candidates=[FIRST_CANDIDATE])
    wrong = y != truth[..., None]
    assert result.contested.shape == y.shape
    assert result.contested[wrong].mean() > result.contested[~wrong].mean() + 0.2
    assert abs(result.another.sum(-1) - 1).max() < 1e-6


def test_words_come_back_and_padding_never_counts():
    y, _ = study()
    words = np.array(["rest", "walk"], dtype=object)[y]
    plain = lt.consensus(words, candidates=[FIRST_CANDIDATE], clock=np.arange(STEPS))
    assert set(plain.labels.ravel()) == {"rest", "walk"}
    padded = np.concatenate([words, np.full((N, 5, 3), None)], 1)
    longer = lt.consensus(padded, candidates=[FIRST_CANDIDATE], clock=np.arange(STEPS + 5), lengths=[STEPS] * N)
    assert np.allclose(longer.probabilities[:, :STEPS], plain.probabilities, atol=1e-4)
    assert not longer.probabilities[:, STEPS:].any()
    assert all(label is None for label in longer.labels[:, STEPS:].ravel())


def test_the_order_of_annotators_does_not_matter():
    y, _ = study()
    result, reverse = (lt.consensus(labels, candidates=[FIRST_CANDIDATE]) for labels in (y, y[..., ::-1].copy()))
    assert np.allclose(result.probabilities, reverse.probabilities, atol=1e-3)
    assert np.allclose(result.noise, reverse.noise[::-1], atol=1e-3)


def test_trusted_labels_are_never_contradicted():
    y, truth = study()
    trusted = np.where(np.arange(STEPS) % 4 == 0, truth, -1)
    result = lt.consensus(y, trusted=trusted, candidates=[FIRST_CANDIDATE])
    assert np.array_equal(result.labels[:, ::4], truth[:, ::4])


def test_one_long_recording_needs_no_folds():
    y, _ = study()
    assert lt.consensus(y.reshape(1, -1, 3)).tried == {}
    assert lt.consensus(y, ids=["one"] * N).tried == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trusted": np.zeros((2, 2), int)}, "trusted must have shape"),
        ({"ids": ["a"]}, "one per sequence"),
        ({"evidence": np.zeros((N, STEPS, 3))}, "evidence must have shape"),
        ({"evidence": np.full((N, STEPS, 2), -3.0)}, "Are they logits"),
    ],
)
def test_errors_say_the_rule(wrong, message):
    with pytest.raises(ValueError, match=message):
        lt.consensus(study()[0], **wrong)
