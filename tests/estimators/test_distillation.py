"""How long the last networks are trained, and on what."""

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.estimators import tide
from labeltide.estimators.fleet import FleetFit


@pytest.fixture(scope="module")
def study():
    made = lt.make_sequences(n=40, n_steps=12, n_features=3, stay=0.9, random_state=0)
    labels = made.labels[..., 0]
    return made.features, [lt.corrupt(labels, lt.make_noise("static", n_steps=12, rate=0.2), seed) for seed in (0, 1)]


@pytest.mark.parametrize("resumable", [False, True])
def test_jobs_of_one_fleet_learn_as_if_alone(study, tmp_path, resumable):
    def fit(members, checkpoint=None):
        kinds = {"epochs": 40, "hidden_size": 32, "checkpoint": checkpoint}
        made = [lt.TideClassifier(random_state=seed, **kinds) for seed in members]
        lt.fit_fleet(made, study[0], [study[1][seed] for seed in members])
        return made

    together = fit((0, 1), tmp_path / "unfinished" if resumable else None)
    for one, seed in zip(together, (0, 1), strict=True):
        alone = fit((seed,))[0]
        np.testing.assert_allclose(one.predict_proba(study[0]), alone.predict_proba(study[0]), atol=1e-3)
        epochs = len(alone.history_.held_out)
        np.testing.assert_allclose(one.history_.held_out[:epochs], alone.history_.held_out, atol=1e-3)


@pytest.mark.parametrize("ensemble", [True, False])
def test_networks_are_stopped_on_rows_that_they_do_not_learn_from_or_not_at_all(study, monkeypatch, ensemble):
    """Labels without any rule: networks may learn them by heart, but not predict them."""
    trained = []

    def spy(fleet_fit, model, noise, objective, **more):
        history = original(fleet_fit, model, noise, objective, **more)
        trained.append((more["stage"], fleet_fit.data, history))
        return history

    def chance(fleet_fit, labels, folds, ensemble):
        drawn = torch.randint(2, labels.shape[:3], generator=torch.Generator().manual_seed(0))
        return learn(fleet_fit, torch.nn.functional.one_hot(drawn, 2).to(labels), folds, ensemble)

    original, learn = FleetFit.train, tide.distill
    monkeypatch.setattr(FleetFit, "train", spy)
    monkeypatch.setattr("labeltide.estimators.tide.distill", chance)
    lt.TideClassifier(epochs=60, hidden_size=32, random_state=0, ensemble=ensemble).fit(study[0], study[1][0])
    last = {stage: (data, history) for stage, data, history in trained if not stage.startswith("cross-fit")}
    assert set(last) == {"stopped", "whole"} | ({"single"} if not ensemble else set())
    data, history = last["stopped"]
    assert ((data.weights > 0) == ~data.held_out).all()
    assert (data.held_out.sum(0) == 1).all(), "every row is left out by one network"
    assert history.best_epoch.max() < 30, "what cannot be predicted must not be learned for long"
    for stage in set(last) - {"stopped"}:
        data, history = last[stage]
        assert not data.held_out.any()
        assert len(history.loss) == 60
        assert (data.weights > 0).all()


def test_the_networks_of_a_fit_lie_next_to_each_other(study):
    def fit(seeds):
        made = [lt.TideClassifier(epochs=5, hidden_size=4, random_state=seed, device="cpu") for seed in seeds]
        lt.fit_fleet(made, study[0], [study[1][seed] for seed in seeds])
        return made

    together, alone = fit((0, 1)), fit((1,))[0]
    assert [one.model_.members for one in (*together, alone)] == [10, 10, 10]
    np.testing.assert_allclose(together[1].predict_proba(study[0]), alone.predict_proba(study[0]), atol=1e-4)
    assert np.isfinite(together[0].history_.loss).any()
