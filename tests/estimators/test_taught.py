"""How long the last networks are trained, and that jobs of one fleet may differ in it."""

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.estimators import taught


@pytest.fixture(scope="module")
def study():
    made = lt.make_sequences(n=40, n_steps=12, n_features=3, stay=0.9, random_state=0)
    labels = made.labels[..., 0]
    return made.features, [lt.corrupt(labels, lt.make_noise("static", n_steps=12, rate=0.2), seed) for seed in (0, 1)]


def fit(study, monkeypatch, errors, members, checkpoint=None):
    """Fit with given expected errors after (short, whole) training, one pair for each job."""

    def expected(job, labels, folds, epochs):
        return torch.tensor([errors[seed][epochs > 3] for seed in job.seeds])

    monkeypatch.setattr(taught, "_expected_errors", expected)
    features, labels = study
    made = [lt.TideClassifier(epochs=10, hidden_size=32, random_state=seed, checkpoint=checkpoint) for seed in members]
    lt.fit_fleet(made, features, [labels[seed] for seed in members])
    return made


@pytest.mark.parametrize("resumable", [False, True])
def test_jobs_of_one_fleet_train_for_their_own_epochs(study, monkeypatch, tmp_path, resumable):
    errors = {0: (0.1, 0.2), 1: (0.2, 0.1)}
    together = fit(study, monkeypatch, errors, (0, 1), tmp_path / "unfinished" if resumable else None)
    assert [np.isfinite(one.history_.loss).sum() for one in together] == [3, 10]
    for one, seed in zip(together, (0, 1), strict=True):
        alone = fit(study, monkeypatch, errors, (seed,))[0]
        np.testing.assert_allclose(one.predict_proba(study[0]), alone.predict_proba(study[0]), atol=1e-3)


def test_length_is_judged_on_rows_that_were_not_trained_on(study, monkeypatch):
    """Labels without any rule: networks may learn them by heart, but not foretell them."""
    found = {}

    def spy(job, labels, folds, epochs):
        chance = torch.randint(2, labels.shape[:3], generator=torch.Generator().manual_seed(0))
        made = torch.nn.functional.one_hot(chance, 2).to(labels)
        found[epochs] = original(job, made, folds, epochs)
        return found[epochs]

    original = taught._expected_errors
    monkeypatch.setattr(taught, "_expected_errors", spy)
    lt.TideClassifier(epochs=60, hidden_size=32, random_state=0).fit(study[0], study[1][0])
    assert set(found) == {18, 60}
    assert all(0.4 < float(error) < 0.6 for error in found.values())
