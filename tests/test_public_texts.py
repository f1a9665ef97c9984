"""The text of every public result is a few lines, however large the data are."""

import numpy as np
import pytest

import labeltide as lt
from labeltide.inference.audit import LabelAudit

MOST = 1000


@pytest.fixture(scope="module")
def large():
    random = np.random.default_rng(0)
    chances = random.dirichlet(np.full(20, 0.1), size=(300, 40))
    labels = random.integers(0, 20, (300, 40, 1)).astype(np.int8)
    clock = np.broadcast_to(np.arange(40.0), (300, 40))
    names = np.array([f"class {'x' * 50} {index}" for index in range(20)])
    return LabelAudit(names, labels, clock, np.ones((300, 40), bool), chances, chances, np.full(chances.shape, 0.2))


def test_results_of_inference(large):
    sample = lt.review_sample(large, 400, random_state=0)
    answers = large.labels[..., 0][sample.index] == 0
    results = [large, large.plan(300), large.plan(300, "step"), sample]
    results += [lt.checked_rate(large, sample, answers, by={"class": large.labels[..., 0] % 19})]
    for result in results:
        assert len(repr(result)) < MOST, type(result)


def test_data_methods_and_what_they_hold():
    sequences = lt.make_sequences(n=300, n_steps=40, n_features=3, n_classes=5)
    estimator = lt.IgnoreClassifier(epochs=2, device="cpu", random_state=0).fit(sequences.features, sequences.labels)
    held = [estimator, estimator.history_, estimator.noise_, estimator.model_, estimator.stream()]
    for result in [sequences, lt.make_noise("growth"), *held]:
        assert len(repr(result)) < MOST, type(result)


def test_public_names():
    for name in lt.__all__:
        assert len(repr(getattr(lt, name))) < MOST
