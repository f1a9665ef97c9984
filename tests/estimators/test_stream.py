"""Steps one by one get what whole sequences get."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

import labeltide as lt

N, STEPS, FEATURES = 3, 140, 4  # longer than a TCN reaches back


class SoFar(nn.Module):
    """A causal module of someone else's: the average of all steps so far."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.head = nn.Linear(n_features, n_classes)

    def forward(self, features):
        counts = torch.arange(1, features.shape[1] + 1)[:, None]
        return self.head(features.cumsum(1) / counts)


MODELS = {
    "gru": {"model": "gru"},
    "gru of a size that is not compiled": {"model": "gru", "hidden_size": 12},
    "tcn": {"model": "tcn"},
    "linear": {"model": "linear"},
    "transformer": {"model": "transformer"},
    "module": {"model": SoFar},
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def study():
    return lt.make_sequences(n=6, n_steps=STEPS, n_features=FEATURES, stay=0.9, random_state=0)


def fitted(study, method="ignore", **params):
    clf = lt.METHODS[method](**{"random_state": 0, "epochs": 3, "device": "cpu", **params})
    return clf.fit(study.features[:, :50], study.labels[:, :50])


@pytest.mark.parametrize("params", MODELS.values(), ids=MODELS)
def test_a_stream_equals_whole_sequences(params, study):
    clf, X = fitted(study, **params), study.features[:N]
    stream = clf.stream()
    found = np.stack([stream.push(X[:, t]) for t in range(STEPS)], 1)
    np.testing.assert_allclose(found, clf.predict_proba(X), atol=1e-6)
    assert stream.n_steps == STEPS


def test_one_sequence_at_a_time_equals_many(study):
    clf = fitted(study)
    stream = clf.stream()
    for sequence in study.features[:2]:
        found = np.stack([stream.push(step) for step in sequence])
        assert found.shape == (STEPS, 2)
        np.testing.assert_allclose(found, clf.predict_proba(sequence[None])[0], atol=1e-6)
        stream.reset()


@pytest.mark.parametrize("ensemble", [True, False])
def test_an_ensemble_streams_too_also_when_loaded(ensemble, study, tmp_path):
    clf = fitted(study, "tide", ensemble=ensemble)
    clf.save(tmp_path / "model.safetensors")
    stream = lt.load(tmp_path / "model.safetensors").stream()
    found = np.stack([stream.push(study.features[:N, t]) for t in range(STEPS)], 1)
    np.testing.assert_allclose(found, clf.predict_proba(study.features[:N]), atol=1e-6)


def test_streams_of_one_method_do_not_mix(study):
    clf = fitted(study)
    one, other = clf.stream(), clf.stream()
    expected = [one.push(step) for step in study.features[0]]
    one.reset()
    for step, noise, wanted in zip(study.features[0], study.features[1], expected, strict=True):
        other.push(noise)
        np.testing.assert_array_equal(one.push(step), wanted)


@pytest.mark.parametrize("model", ["gru", "tcn", "transformer"])
def test_a_model_that_looks_ahead_is_refused(model, study):
    with pytest.raises(ValueError, match=r"looks ahead: fit it with causal=True"):
        fitted(study, model=model, causal=False, epochs=1).stream()


def test_a_stream_needs_a_fit():
    with pytest.raises(NotFittedError):
        lt.METHODS["ignore"]().stream()


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        (np.zeros((2, 3, FEATURES)), r"push takes one step: .* Got shape \(2, 3, 4\)"),
        (0.0, r"push takes one step"),
        (np.zeros(FEATURES + 1), r"4 features, as in fit. Got 5"),
        ([0.0, 0.0, 0.0, np.nan], r"finite"),
    ],
)
def test_what_is_no_step_is_refused_and_leaves_the_stream_as_it_was(features, sentence, study):
    stream = fitted(study).stream()
    with pytest.raises(ValueError, match=sentence):
        stream.push(features)
    assert stream.n_steps == 0


def test_the_number_of_streams_stays(study):
    stream = fitted(study).stream()
    stream.push(study.features[:3, 0])
    with pytest.raises(ValueError, match=r"follows 3 sequences.* Got 2\. Call reset"):
        stream.push(study.features[:2, 1])
