"""Claims about drawing recorded labels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide.data.sequences import Sequences
from labeltide.noise import simulate as corrupt_module
from labeltide.noise.functions import FixedNoise
from labeltide.noise.simulate import corrupt, make_noise


def clean_labels(n: int, n_steps: int, n_classes: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, n_classes, (n, n_steps))


def some_sequences(n: int = 200, n_steps: int = 10, annotators: int = 1, **changes) -> Sequences:
    clean = clean_labels(n, n_steps, 3)
    y = np.repeat(clean[..., None], annotators, 2)
    sequences = Sequences.from_arrays(np.zeros((n, n_steps, 1)), y, classes=(0, 1, 2))
    return dataclasses.replace(sequences, **changes)


def assert_frequencies(clean: np.ndarray, recorded: np.ndarray, Q: np.ndarray) -> None:
    """At every step and for every pair of classes, the share lies within four standard errors of Q."""
    n_classes = Q.shape[-1]
    for i in range(n_classes):
        is_true = clean == i
        count = is_true.sum(0)  # (steps,)
        for j in range(n_classes):
            share = (is_true & (recorded == j)).sum(0) / count
            error = np.sqrt(Q[:, i, j] * (1 - Q[:, i, j]) / count)
            z = (share - Q[:, i, j]) / np.maximum(error, 1e-9)
            assert np.abs(z).max() < 4


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_recorded_labels_follow_q_at_every_step(n_classes):
    noise = make_noise("mixed", n_classes, 20)
    clean = clean_labels(20_000, 20, n_classes)
    assert_frequencies(clean, corrupt(clean, noise, 5), np.asarray(noise))


def test_recorded_labels_follow_q_when_every_row_differs():
    Q = np.array([[0.6, 0.1, 0.3], [0.0, 1.0, 0.0], [0.2, 0.25, 0.55]])
    clean = clean_labels(20_000, 4, 3)
    assert_frequencies(clean, corrupt(clean, Q, 2), np.tile(Q, (4, 1, 1)))


@pytest.mark.parametrize("bursts", [0.5, 0.9])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_in_bursts_every_step_still_follows_q(n_classes, bursts):
    noise = make_noise("mixed", n_classes, 20)
    clean = clean_labels(20_000, 20, n_classes)
    assert_frequencies(clean, corrupt(clean, noise, 5, bursts=bursts), np.asarray(noise))


@pytest.mark.parametrize("bursts", [0.0, 0.5, 0.9])
def test_under_constant_noise_mistakes_are_a_switch_with_the_correlation_of_the_bursts(bursts):
    clean = clean_labels(5_000, 60, 3)  # labels change at most steps, and the switch does not notice
    wrong = corrupt(clean, make_noise("static", 3, 60), 4, bursts=bursts) != clean
    for lag in (1, 2, 5):
        correlation = np.corrcoef(wrong[:, lag:].ravel(), wrong[:, :-lag].ravel())[0, 1]
        assert correlation == pytest.approx(bursts**lag, abs=0.015)


def test_a_number_that_is_always_kept_makes_a_sequence_right_or_wrong_as_a_whole():
    clean = clean_labels(4_000, 10, 2)
    wrong = corrupt(clean, make_noise("static", 2, 10), 4, bursts=1) != clean
    assert (wrong.all(1) | ~wrong.any(1)).all()
    assert wrong.mean() == pytest.approx(0.3, abs=0.03)


def test_annotators_have_bursts_of_their_own():
    clean = np.repeat(clean_labels(20_000, 4, 2)[..., None], 2, 2)
    wrong = corrupt(clean, make_noise("static", rate=0.3, n_steps=4), bursts=0.9) != clean
    assert wrong.all(-1).mean() == pytest.approx(0.09, abs=0.01)


def test_in_bursts_a_gap_changes_no_other_draw():
    clean = clean_labels(100, 10, 2)
    gappy = np.where(np.random.default_rng(0).random(clean.shape) < 0.2, -1, clean)
    whole = corrupt(clean, make_noise("static"), bursts=0.9)
    np.testing.assert_array_equal(corrupt(gappy, make_noise("static"), bursts=0.9), np.where(gappy == -1, -1, whole))


def test_bursts_of_a_sequences_are_those_of_its_labels():
    study, noise = some_sequences(), make_noise("growth", 3, 10)
    np.testing.assert_array_equal(
        corrupt(study, noise, bursts=0.9).labels[..., 0], corrupt(study.labels[..., 0], noise, bursts=0.9)
    )


def test_each_step_uses_its_own_moment_of_the_clock():
    noise = FixedNoise([np.eye(2), [[0.5, 0.5], [0.2, 0.8]]])
    clean = clean_labels(40_000, 3, 2)
    moments = np.random.default_rng(0).choice([0.0, 0.25, 1.0], clean.shape)
    recorded = corrupt(clean, noise, 3, clock=moments)
    for moment in (0.0, 0.25, 1.0):
        here = moments == moment
        assert_frequencies(clean[here][:, None], recorded[here][:, None], noise.at([moment]))


def test_a_shared_clock_gives_the_same_draw_however_it_is_written():
    noise, clean = make_noise("growth", 3, 12), clean_labels(50, 12, 3)
    position = np.linspace(0, 1, 12)
    expected = corrupt(clean, noise)
    np.testing.assert_array_equal(corrupt(clean, noise, clock=position), expected)
    np.testing.assert_array_equal(corrupt(clean, noise, clock=np.tile(position, (50, 1))), expected)
    np.testing.assert_array_equal(corrupt(clean, np.asarray(noise)), expected)


def test_the_draw_does_not_depend_on_the_block_size(monkeypatch):
    noise, clean = make_noise("decay", 3, 7), clean_labels(60, 7, 3)
    clocks = np.random.default_rng(0).random(clean.shape)
    ways: list[dict] = [{}, {"clock": clocks}, {"bursts": 0.5}, {"clock": clocks, "bursts": 0.5}]
    whole = [corrupt(clean, noise, **way) for way in ways]
    monkeypatch.setattr(corrupt_module, "BLOCK_LABELS", 20)
    for way, expected in zip(ways, whole, strict=True):
        np.testing.assert_array_equal(corrupt(clean, noise, **way), expected)


@settings(deadline=None)
@given(st.integers(2, 127), st.integers(1, 9), st.integers(0, 10))
def test_the_identity_changes_nothing(n_classes, n_steps, seed):
    clean = clean_labels(20, n_steps, n_classes, seed)
    np.testing.assert_array_equal(corrupt(clean, np.eye(n_classes), seed), clean)
    np.testing.assert_array_equal(corrupt(clean, np.eye(n_classes), seed, bursts=0.5), clean)


@settings(deadline=None)
@given(st.integers(2, 127), st.integers(0, 10))
def test_certain_matrices_are_followed_exactly(n_classes, seed):
    target = np.random.default_rng(seed).integers(0, n_classes, n_classes)
    clean = clean_labels(20, 5, n_classes, seed)
    np.testing.assert_array_equal(corrupt(clean, np.eye(n_classes)[target], seed), target[clean])
    np.testing.assert_array_equal(corrupt(clean, np.eye(n_classes)[target], seed, bursts=0.5), target[clean])


def test_missing_labels_stay_missing():
    clean = clean_labels(100, 10, 2)
    clean[::3, ::2] = -1
    recorded = corrupt(clean, make_noise("static", rate=0.4))
    np.testing.assert_array_equal(recorded == -1, clean == -1)
    assert (recorded != clean).any()


def test_a_gap_changes_no_other_draw():
    clean = clean_labels(100, 10, 2)
    gappy = np.where(np.random.default_rng(0).random(clean.shape) < 0.2, -1, clean)
    noise = make_noise("static")
    whole = corrupt(clean, noise)
    np.testing.assert_array_equal(corrupt(gappy, noise), np.where(gappy == -1, -1, whole))


def test_nothing_but_gaps_comes_back_unchanged():
    np.testing.assert_array_equal(corrupt(-np.ones((2, 3), int), np.eye(2)), -np.ones((2, 3), int))


def test_padding_stays_as_it_is():
    clean = clean_labels(50, 10, 2)
    clean[:, 6:] = 99
    recorded = corrupt(clean, make_noise("static", rate=0.4), lengths=np.full(50, 6))
    np.testing.assert_array_equal(recorded[:, 6:], 99)
    assert set(np.unique(recorded[:, :6])) == {0, 1}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_codes_keep_their_type(dtype):
    clean = clean_labels(30, 5, 3).astype(dtype)
    recorded = corrupt(clean, make_noise("mixed", 3, 5))
    assert recorded.dtype == dtype
    np.testing.assert_array_equal(recorded, corrupt(clean.astype(int), make_noise("mixed", 3, 5)))


@pytest.mark.parametrize(
    "names",
    [
        np.array(["awake", "deep", "rem"]),
        np.array([1, 5, 9]),
        np.array([0.5, 1.5, 2.5]),
        np.array(["a", "b", "c"], dtype=object),
    ],
)
def test_named_labels_are_drawn_as_their_codes_are(names):
    codes = clean_labels(40, 6, 3)
    recorded = corrupt(names[codes], make_noise("mixed", 3, 6))
    assert recorded.dtype == names.dtype
    np.testing.assert_array_equal(recorded, names[corrupt(codes, make_noise("mixed", 3, 6))])


def test_classes_give_the_order_of_q():
    swap_low = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]])
    recorded = corrupt([["low", "mid", "high"]], swap_low, classes=("low", "mid", "high"))
    assert recorded.tolist() == [["mid", "low", "high"]]


def test_a_class_that_never_occurred_may_still_be_recorded():
    recorded = corrupt(np.array([["a", "b"]]), np.eye(3)[[2, 1, 0]], classes=("a", "b", "a long name"))
    assert recorded.tolist() == [["a long name", "b"]]


def test_missing_names_stay_missing():
    y = np.array([["a", None, "b"], ["b", "a", None]], dtype=object)
    assert corrupt(y, [[0, 1], [1, 0]]).tolist() == [["b", None, "a"], ["a", "b", None]]


def test_annotators_draw_independently():
    clean = np.repeat(clean_labels(20_000, 2, 2)[..., None], 2, 2)
    wrong = corrupt(clean, make_noise("static", rate=0.3)) != clean
    assert wrong[..., 0].mean() == pytest.approx(0.3, abs=0.01)
    assert wrong.all(-1).mean() == pytest.approx(0.09, abs=0.01)


def test_the_same_seed_gives_the_same_draw_and_a_generator_goes_on():
    clean, noise = clean_labels(50, 10, 2), make_noise("linear")
    np.testing.assert_array_equal(corrupt(clean, noise, 7), corrupt(clean, noise, 7))
    assert (corrupt(clean, noise, 7) != corrupt(clean, noise, 8)).any()
    generator = np.random.default_rng(7)
    first, second = corrupt(clean, noise, generator), corrupt(clean, noise, generator)
    np.testing.assert_array_equal(first, corrupt(clean, noise, 7))
    assert (first != second).any()


def test_the_input_is_left_alone():
    clean = clean_labels(20, 5, 2)
    before = clean.copy()
    clean.setflags(write=False)
    corrupt(clean, make_noise("static", rate=0.4))
    np.testing.assert_array_equal(clean, before)


def test_the_first_member_of_a_fleet_is_used():
    fleet = FixedNoise(np.stack([np.eye(2)[[1, 0]], np.eye(2)])[:, None])
    np.testing.assert_array_equal(corrupt([[0, 1, -1]], fleet), [[1, 0, -1]])


def test_a_sequences_without_clean_labels_keeps_its_labels_as_the_clean_ones():
    study = some_sequences()
    recorded = corrupt(study, make_noise("mixed", 3, 10))
    np.testing.assert_array_equal(recorded.clean_labels, study.labels[..., 0])
    np.testing.assert_array_equal(recorded.labels[..., 0], corrupt(study.labels[..., 0], make_noise("mixed", 3, 10)))
    assert recorded.labels.dtype == np.int8
    assert recorded.features is study.features


def test_a_sequences_is_drawn_from_its_clean_labels_and_keeps_its_gaps():
    study = corrupt(some_sequences(), make_noise("static", 3, rate=0.4), 1)
    gaps = np.random.default_rng(0).random(study.labels.shape) < 0.3
    study = dataclasses.replace(study, labels=np.where(gaps, np.int8(-1), study.labels))
    recorded = corrupt(study, np.eye(3))
    np.testing.assert_array_equal(recorded.labels, np.where(gaps, -1, study.clean_labels[..., None]))
    np.testing.assert_array_equal(recorded.clean_labels, study.clean_labels)


def test_a_sequences_uses_its_own_clock():
    noise = FixedNoise([np.eye(3), np.eye(3)[[1, 2, 0]]])
    clock = np.where(np.arange(200)[:, None] % 2, 1.0, 0.0).repeat(10, 1)
    study = some_sequences(clock=clock)
    recorded = corrupt(study, noise)
    np.testing.assert_array_equal(recorded.labels[::2], study.labels[::2])
    np.testing.assert_array_equal(recorded.labels[1::2], (study.labels[1::2] + 1) % 3)


def test_every_annotator_of_a_sequences_is_drawn_from_the_same_clean_labels():
    study = some_sequences(2000, annotators=2)
    study = dataclasses.replace(study, clean_labels=study.labels[..., 0])
    wrong = corrupt(study, make_noise("static", 3)).labels != study.labels
    assert wrong.mean((0, 1)) == pytest.approx([0.3, 0.3], abs=0.02)
    assert wrong.all(-1).mean() == pytest.approx(0.09, abs=0.02)


@pytest.mark.parametrize(
    ("y", "noise", "arguments", "sentence"),
    [
        ([0, 1], np.eye(2), {}, r"y must have shape \(n, steps\).*y\[None\]"),
        ([[0, 1, 2]], np.eye(2), {}, "exactly the 2 classes of the noise, or codes 0 to 1. Found"),
        ([["a", "b"]], np.eye(3), {}, "Name all 3, in the order of Q, with `classes`"),
        ([["a", "b"]], np.eye(2), {"classes": "aa"}, "Got classes"),
        ([["a", "b"]], np.eye(2), {"classes": "xy"}, "Known labels: 'x', 'y'"),
        ([[0, 1]], "mixed", {}, "noise must be a noise function such as"),
        ([[0, 1]], np.tile(np.eye(2), (3, 1, 1)), {}, r"or \(2, classes, classes\)"),
        ([[0, 1]], [[0.5, 0.1], [0.5, 0.9]], {}, "Is the matrix transposed"),
        ([[0, 1]], np.eye(2), {"clock": [0, 1]}, "A clock needs a noise function"),
        ([[0, 1]], make_noise("static"), {"clock": [0, 1, 2]}, "clock must have shape"),
        ([[0, 1]], np.eye(2), {"bursts": 1.1}, "bursts must be a number at least 0 and at most 1. Got 1.1"),
        ([[0, 1]], np.eye(2), {"lengths": [3]}, "lengths must lie between 1 and 2"),
        (some_sequences(), np.eye(2), {}, "must have the 3 classes of the Sequences. Got 2"),
        (some_sequences(), np.eye(3), {"lengths": [3]}, "has its own clock, lengths and classes"),
        (some_sequences(annotators=2), np.eye(3), {}, "Got 2 annotators"),
    ],
)
def test_bad_arguments_are_answered_with_a_sentence(y, noise, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        corrupt(y, noise, **arguments)
