"""The scaler of sequences counts neither padding nor gaps, and works in a Pipeline."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import labeltide as lt


def test_scaled_features_have_mean_zero_and_spread_one():
    X = np.random.default_rng(0).normal([5, -300, 0], [2, 40, 1e-3], size=(6, 9, 3))
    scaled = lt.SequenceScaler().fit_transform(X)
    np.testing.assert_allclose(scaled.mean((0, 1)), 0, atol=1e-10)
    np.testing.assert_allclose(scaled.std((0, 1)), 1)


def test_padding_never_counts():
    X = np.random.default_rng(0).normal(size=(4, 6, 2))
    padded = np.concatenate([X, np.full((4, 3, 2), 1e9)], 1)
    lengths = np.full(4, 6)
    scaler = lt.SequenceScaler().fit(padded, lengths=lengths)
    np.testing.assert_allclose(scaler.mean_, lt.SequenceScaler().fit(X).mean_)
    scaled = scaler.transform(padded, lengths)
    assert not scaled[:, 6:].any()
    assert not scaler.has_missing_.any()


def test_gaps_take_the_last_value_before_them_and_are_marked():
    X = np.array([[[np.nan, 1.0], [2.0, 1.0], [np.nan, 3.0], [4.0, 3.0]]])
    scaler = lt.SequenceScaler(indicators=True).fit(X)
    scaled = scaler.transform(X)[0]
    assert scaled[:, 0].tolist() == [0, -1, -1, 1]
    assert scaled[:, 2].tolist() == [1, 0, 1, 0]
    assert scaler.get_feature_names_out(["pulse", "light"]).tolist() == ["pulse", "light", "pulse (missing)"]


def test_each_sequence_can_have_its_own_level():
    X = np.random.default_rng(0).normal(size=(3, 50, 1)) + np.array([0, 100, -100])[:, None, None]
    scaled = lt.SequenceScaler(scope="sequence").fit_transform(X)
    np.testing.assert_allclose(scaled.mean(1), 0, atol=1e-10)


def test_what_never_moves_is_left_at_zero():
    assert not lt.SequenceScaler().fit_transform(np.full((2, 3, 1), 7.0)).any()


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.zeros((2, 3)), "must have shape"),
        (np.full((1, 2, 1), np.inf), "infinite"),
        ([[["a"]]], "must be numbers"),
    ],
)
def test_wrong_input_is_refused(X, words):
    with pytest.raises(ValueError, match=words):
        lt.SequenceScaler().fit(X)


def test_wrong_use_is_refused():
    with pytest.raises(ValueError, match="Unknown scope"):
        lt.SequenceScaler(scope="day").fit(np.zeros((1, 2, 1)))
    with pytest.raises(ValueError, match="must have 1 features"):
        lt.SequenceScaler().fit(np.zeros((1, 2, 1))).transform(np.zeros((1, 2, 2)))


def test_it_is_a_step_of_a_pipeline():
    X = np.random.default_rng(0).normal(1000, 50, size=(12, 10, 2))
    y = (X[..., 0] > 1000).astype(int)
    X[0, 3, 1] = np.nan
    method = lt.IgnoreClassifier(epochs=30, random_state=0, device="cpu")
    pipeline = make_pipeline(lt.SequenceScaler(), method)
    assert pipeline.fit(X, y).score(X, y) > 0.9
    assert clone(pipeline).steps[0][1].scope == "all"
    assert np.isfinite(cross_val_score(pipeline, X, y, cv=2, error_score="raise")).all()
    lengths = np.full(12, 8)
    pipeline.fit(X, y, sequencescaler__lengths=lengths, ignoreclassifier__lengths=lengths)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_setting_for_frames_leaves_three_axes_as_they_are(kind):
    X = np.random.default_rng(0).normal(size=(4, 5, 2))
    with config_context(transform_output=kind):
        assert isinstance(lt.SequenceScaler().fit_transform(X), np.ndarray)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_of_three_axes_are_refused(kind):
    pipeline = make_pipeline(lt.SequenceScaler(), lt.IgnoreClassifier())
    with pytest.raises(ValueError, match=f"three axes .* Got transform='{kind}'"):
        pipeline.set_output(transform=kind)
    assert pipeline.set_output(transform="default") is pipeline
