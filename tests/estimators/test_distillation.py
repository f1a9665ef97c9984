"""How long the last networks are trained, and on what."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.estimators import distillation
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

    original, learn = FleetFit.train, distillation.distill
    monkeypatch.setattr(FleetFit, "train", spy)
    monkeypatch.setattr("labeltide.estimators.tide.distill", chance)
    lt.TideClassifier(epochs=60, hidden_size=32, random_state=0, ensemble=ensemble).fit(study[0], study[1][0])
    last = {stage: (data, history) for stage, data, history in trained if stage in ("stopped", "long", "single")}
    assert set(last) == ({"stopped", "long"} if ensemble else {"stopped", "long", "single"})
    data, history = last["stopped"]
    assert ((data.weights > 0) == ~data.held_out).all()
    assert (data.held_out.sum(0) == 1).all(), "every row is left out by one network"
    assert history.best_epoch.max() < 30, "what cannot be predicted must not be learned for long"
    assert last["long"][0].weights.equal(data.weights), "both kinds can be judged out of fold"
    for stage in set(last) - {"stopped"}:
        assert not last[stage][0].held_out.any()
        assert len(last[stage][1].loss) == 60


def test_networks_that_err_more_out_of_fold_are_left_out_of_their_fit_alone(monkeypatch):
    """Two fits of three networks. In the second those that were trained to the end are a little better."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(3, (50, 8), generator=generator)
    targets = torch.nn.functional.one_hot(truth, 3).double().repeat(2, 1, 1, 1)
    targets[:, 40:, 6:] = 0  # padding

    def predict(*shares):
        wrong = torch.stack([torch.rand(50, 8, generator=generator) < share for share in shares])
        wrong[:, 40:, 6:] = True  # does not count
        return torch.nn.functional.one_hot((truth + wrong) % 3, 3).double()

    data = SimpleNamespace(targets=targets.repeat_interleave(3, 0))
    predictions = (predict(0.1, 0.2), predict(0.3, 0.19))
    kinds = [(SimpleNamespace(data=data), SimpleNamespace(members=6, predicted=each)) for each in predictions]
    monkeypatch.setattr(distillation, "STEPS_AT_ONCE", 6 * 8 * 7)  # seven rows at once
    monkeypatch.setattr(
        distillation, "predict_rows_out_of_fold", lambda copies, model, folds, part: model.predicted[:, part]
    )
    assert distillation._are_useful(*kinds, torch.zeros(2, 50, dtype=torch.int64)) == [False, True]
    assert distillation._are_useful(kinds[0], kinds[0], torch.zeros(2, 50, dtype=torch.int64)) == [True, True]
