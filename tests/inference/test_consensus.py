"""Consensus: true labels from several annotators, in the values of the input."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import labeltide as lt
from labeltide.chain import annotators
from labeltide.chain.annotators import Candidate

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
    assert result.quality[0, 0] > result.quality[0, STEPS // 2] + 0.1 > result.quality[0, -1] + 0.2
    assert result.noise.shape == (3, STEPS, 2, 2)
    assert result.common.shape == (STEPS, 2, 2)
    assert result.agreement.cohen.shape == (3, 3)
    assert len(result.tried) > 3  # forms of the model


@pytest.mark.parametrize("seed", range(4))
def test_two_annotators_who_add_events_of_their_own_are_believed_where_they_agree(seed):
    rng = np.random.default_rng(seed)
    event = np.repeat(rng.random((40, 4)) < 0.25, 15, axis=1) & (np.arange(60) % 15 < 10)
    added = np.repeat(rng.random((40, 4, 2)) < 0.3, 15, axis=1) & (np.arange(60) % 15 < 10)[:, None]
    y = (event[..., None] | added).astype(int)
    assert np.array_equal(lt.consensus(y).labels, y.min(-1))  # Q(t) of two annotators is not identified


def test_a_mixture_weighs_the_better_prediction():
    rng = np.random.default_rng(0)
    draw = np.where(rng.random(20_000) < 0.7, rng.normal(-1, 1, 20_000), rng.normal(1, 1, 20_000))
    first, second = np.exp(-np.square(draw + 1) / 2), np.exp(-np.square(draw - 1) / 2)
    assert annotators.mixture_weight(first, second) == pytest.approx(0.7, abs=0.02)


def test_labels_against_the_others_are_contested():
    y, truth = study()
    result = lt.consensus(y, candidates=[Candidate()])
    wrong = y != truth[..., None]
    assert result.contested.shape == y.shape
    assert result.contested[wrong].mean() > result.contested[~wrong].mean() + 0.2
    assert abs(result.another.sum(-1) - 1).max() < 1e-6


def test_words_come_back_and_padding_never_counts():
    y, _ = study()
    words = np.array(["rest", "walk"], dtype=object)[y]
    plain = lt.consensus(words, candidates=[Candidate()], clock=np.arange(STEPS))
    assert set(plain.labels.ravel()) == {"rest", "walk"}
    padded = np.concatenate([words, np.full((N, 5, 3), None)], 1)
    longer = lt.consensus(padded, candidates=[Candidate()], clock=np.arange(STEPS + 5), lengths=[STEPS] * N)
    assert np.allclose(longer.probabilities[:, :STEPS], plain.probabilities, atol=1e-4)
    assert not longer.probabilities[:, STEPS:].any()
    assert all(label is None for label in longer.labels[:, STEPS:].ravel())


def test_the_order_of_annotators_does_not_matter():
    y, _ = study()
    result, reverse = (lt.consensus(labels, candidates=[Candidate()]) for labels in (y, y[..., ::-1].copy()))
    assert np.allclose(result.probabilities, reverse.probabilities, atol=1e-3)
    assert np.allclose(result.noise, reverse.noise[::-1], atol=1e-3)


def test_trusted_labels_are_never_contradicted():
    y, truth = study()
    trusted = np.where(np.arange(STEPS) % 4 == 0, truth, -1)
    result = lt.consensus(y, trusted=trusted, candidates=[Candidate()])
    assert np.array_equal(result.labels[:, ::4], truth[:, ::4])


def test_one_long_recording_is_enough_for_labels_but_not_for_tests():
    y, truth = study()
    long = lt.consensus(y.reshape(1, -1, 3))
    assert (long.labels.reshape(N, STEPS) == truth).mean() > 0.75
    assert np.isnan(lt.consensus(y, ids=["one"] * N).drift).all()  # recordings are the unit of tests


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trusted": np.zeros((2, 2), int)}, "trusted must have shape"),
        ({"ids": ["a"]}, "one per sequence"),
        ({"evidence": np.zeros((N, STEPS, 3))}, "evidence must have shape"),
        ({"evidence": np.full((N, STEPS, 2), -3.0)}, "Apply softmax"),
    ],
)
def test_errors_say_the_rule(wrong, message):
    with pytest.raises(ValueError, match=message):
        lt.consensus(study()[0], **wrong)


def test_rates_tell_who_differs_how_and_intervals_hold_the_truth():
    y, truth = study()
    result = lt.consensus(y)
    true_rates = [[(y[..., a][truth == i] != i).mean() for i in range(2)] for a in range(3)]
    wrong = 1 - np.diagonal(result.rates, axis1=1, axis2=2)
    assert np.abs(wrong - true_rates).mean() < 0.12  # others err, too
    assert np.all((result.lower <= result.rates) & (result.rates <= result.upper))
    frame = result.annotator_frame(annotators=["a", "b", "c"])
    assert list(frame.columns) == ["annotator", "true", "recorded", "rate", "lower", "upper"]
    assert len(frame) == 12


def test_an_annotator_who_gets_worse_by_a_clock_of_their_own_is_found():
    rng = np.random.default_rng(0)
    truth = rng.random((80, 30)) < 0.5
    worked = rng.permutation(80) / 80  # of the first annotator; the others do not change
    rate = np.stack([0.05 + 0.35 * worked, np.full(80, 0.1), np.full(80, 0.1)], -1)
    y = (truth[..., None] ^ (rng.random((80, 30, 3)) < rate[:, None])).astype(int)
    own = np.stack([worked, rng.random(80), rng.random(80)], -1)
    result = lt.consensus(y, clock=np.broadcast_to(own[:, None], y.shape))
    change, lower, upper, p_value = result.drift.T
    assert p_value[0] < 0.001
    realised = np.polyfit(worked, (y[..., 0] != truth).mean(1), 1)[0]
    assert lower[0] < realised < upper[0]
    assert change[0] > 0.2
    assert result.quality[0, 0] > result.quality[0, -1] + 0.1


def test_an_adversary_does_not_turn_the_consensus():
    rng = np.random.default_rng(1)
    truth = rng.random((60, 20)) < 0.5
    rate = np.array([0.1, 0.15, 0.2, 0.9])
    y = (truth[..., None] ^ (rng.random((60, 20, 4)) < rate)).astype(int)
    result = lt.consensus(y)
    assert (result.labels == truth).mean() > ((y.sum(-1) > 2) == truth).mean()
    assert (result.labels == truth).mean() > 0.95


def test_others_who_get_worse_are_no_drift_of_a_steady_annotator():
    truth = lt.make_sequences(n=40, n_steps=40, n_features=1, n_classes=3, stay=0.9, random_state=1).clean_labels
    noises = [lt.make_noise(shape, 3, 40, rate=rate) for shape, rate in [("static", 0.1)] * 2 + [("growth", 0.3)]]
    p_values = np.array(
        [
            lt.consensus(np.stack([lt.corrupt(truth, q, 10 * draw + a) for a, q in enumerate(noises)], -1)).drift[:, 3]
            for draw in range(6)
        ]
    )
    assert (p_values[:, :2] > 0.01).all()
    assert (p_values[:, 2] < 0.001).all()


def test_alarms_are_rare_without_drift():
    rng = np.random.default_rng(0)
    alarms = [lt.drift_alarm(rng.binomial(50, 0.1, 100) / 50, random_state=k).max() >= 20 for k in range(200)]
    assert np.mean(alarms) <= 0.05


@pytest.mark.parametrize("draw", range(3))
def test_an_adversary_and_steady_annotators_get_a_test_of_drift(draw):
    truth = lt.make_sequences(n=150, n_steps=50, n_features=2, stay=0.9, random_state=draw).labels[..., 0].astype(int)
    wrong = np.random.default_rng([draw, 2]).random((150, 50, 5)) < [0.1, 0.2, 0.25, 0.3, 0.9]
    assert np.isfinite(lt.consensus(np.where(wrong, 1 - truth[..., None], truth[..., None])).drift).all()


def test_parts_that_are_computed_one_after_another_save_memory_and_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    truth = np.repeat(rng.integers(0, 40, (40, 10)), 10, axis=1)
    y = np.where(rng.random((*truth.shape, 3)) < 0.3, rng.integers(0, 40, (*truth.shape, 3)), truth[..., None])
    results, peaks = [], []
    for numbers in (2**23, 2**14):
        monkeypatch.setattr(annotators, "MAX_NUMBERS", numbers)
        tracemalloc.start()
        results.append(lt.consensus(y, classes=range(40)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    np.testing.assert_allclose(results[0].probabilities, results[1].probabilities, atol=1e-4)
    np.testing.assert_allclose(results[0].another, results[1].another, atol=1e-4)
    assert peaks[1] < 0.7 * peaks[0]
