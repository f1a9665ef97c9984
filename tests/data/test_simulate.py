"""Claims about simulated studies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide.data.simulate import make_sequences


def test_the_default_study_is_the_papers_synthetic_set():
    study = make_sequences()
    assert study.features.shape == (1000, 100, 50)
    assert study.features.dtype == np.float32
    assert study.labels.shape == (1000, 100, 1)
    assert study.labels.dtype == study.clean_labels.dtype == np.int8
    assert study.classes == (0, 1)
    np.testing.assert_array_equal(study.labels[..., 0], study.clean_labels)
    np.testing.assert_allclose(study.clock[3], np.linspace(0, 1, 100))


def test_without_persistence_every_step_is_drawn_anew():
    y = make_sequences(2000, 50, 1, 3).clean_labels
    np.testing.assert_allclose([(y == k).mean() for k in range(3)], 1 / 3, atol=0.01)
    assert (y[:, 1:] == y[:, :-1]).mean() == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize("stay", [0.2, 0.9])
def test_labels_persist_as_often_as_asked_and_else_move_to_any_other_class(stay):
    y = make_sequences(4000, 50, 1, 4, stay=stay).clean_labels.astype(int)
    moves = (y[:, 1:] - y[:, :-1]) % 4
    shares = np.bincount(moves.ravel(), minlength=4) / moves.size
    np.testing.assert_allclose(shares, [stay] + [(1 - stay) / 3] * 3, atol=0.006)
    np.testing.assert_allclose(np.bincount(y[:, 0]) / len(y), 0.25, atol=0.03)


def test_labels_that_always_stay_never_move():
    y = make_sequences(50, 20, 1, stay=1).clean_labels
    assert np.all(y == y[:, :1])


@pytest.mark.parametrize("variance", [0.5, 1.5])
def test_features_have_the_class_index_as_mean_and_the_asked_variance(variance):
    study = make_sequences(500, 50, 4, 3, variance=variance)
    for k in range(3):
        features = study.features[study.clean_labels == k]
        np.testing.assert_allclose(features.mean(0), k, atol=0.08)
        np.testing.assert_allclose(features.var(0), variance, rtol=0.08)


def test_ragged_lengths_run_from_half_to_all_steps_and_padding_is_empty():
    study = make_sequences(500, 11, 2, ragged=True)
    assert set(study.lengths) == set(range(5, 12))
    assert np.all(study.features[~study.mask] == 0)
    assert np.all(study.clean_labels[~study.mask] == -1)
    assert np.all(study.labels[~study.mask] == -1)
    assert np.all(study.clean_labels[study.mask] >= 0)


def test_missing_labels_are_missing_in_the_record_alone():
    study = make_sequences(500, 40, 1, missing=0.25)
    lost = study.labels[..., 0] == -1
    assert lost.mean() == pytest.approx(0.25, abs=0.02)
    assert np.all(study.clean_labels >= 0)
    np.testing.assert_array_equal(study.labels[~lost, 0], study.clean_labels[~lost])


def test_ragged_and_missing_change_nothing_that_remains():
    plain = make_sequences(30, 10, 2, random_state=3)
    partial = make_sequences(30, 10, 2, random_state=3, ragged=True, missing=0.3)
    np.testing.assert_array_equal(partial.features[partial.mask], plain.features[partial.mask])
    np.testing.assert_array_equal(partial.clean_labels[partial.mask], plain.clean_labels[partial.mask])


def test_the_same_seed_gives_the_same_study():
    one, two, other = (make_sequences(20, 10, 2, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.features, two.features)
    np.testing.assert_array_equal(one.labels, two.labels)
    assert np.any(one.features != other.features)
    generator = np.random.default_rng(1)
    first, second = (make_sequences(20, 10, 2, random_state=generator) for _ in range(2))
    np.testing.assert_array_equal(first.features, one.features)
    assert np.any(first.features != second.features)


@settings(deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(2, 127),
    st.booleans(),
    st.floats(0, 1),
)
def test_any_small_study_is_consistent(n, n_steps, n_features, n_classes, ragged, missing):
    study = make_sequences(n, n_steps, n_features, n_classes, 0.5, ragged=ragged, missing=missing)
    assert len(study) == len(study.ids) == n
    assert np.all((study.lengths >= 1) & (study.lengths <= n_steps))
    assert np.all((study.labels >= -1) & (study.labels < n_classes))
    assert np.all(np.isfinite(study.features))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 0}, "n must be a whole number at least 1"),
        ({"n_steps": 2.5}, "n_steps must be a whole number"),
        ({"n_features": 0}, "n_features must be a whole number"),
        ({"n_classes": 1}, "n_classes must be a whole number at least 2"),
        ({"n_classes": 128}, "at most 127"),
        ({"stay": 1.1}, "stay must be a number at least 0 and at most 1"),
        ({"variance": -1}, "variance must be a number at least 0"),
        ({"missing": 2}, "missing must be a number at least 0 and at most 1"),
        ({"ragged": "yes"}, "ragged must be True or False"),
    ],
)
def test_bad_arguments_are_answered_with_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_sequences(**arguments)
