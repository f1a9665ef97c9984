"""Members that have stopped are left behind, and nothing else changes by that."""

import numpy as np
import pytest
import torch

from labeltide._fleet import member_generators
from labeltide.models.gru import GRUModel
from labeltide.noise.functions import StepwiseNoise
from labeltide.training import AugmentedLagrangian, Fleet, FleetData, Schedule, train
from labeltide.training import step as running
from labeltide.training.objective import Objective, Penalty, log_volume

ROWS, STEPS, MEMBERS = 12, 4, 6
SEEDS = range(MEMBERS)


def make_data(judged=MEMBERS):
    """The first members, as many as are judged, hold rows out."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (MEMBERS, ROWS, STEPS, 1))
    features = rng.standard_normal((ROWS, STEPS, 3)) + labels[0]
    held_out = np.arange(ROWS) % MEMBERS == np.arange(MEMBERS)[:, None]
    held_out[judged:] = False
    return FleetData(
        features=torch.from_numpy(features).float(),
        mask=torch.ones(ROWS, STEPS, dtype=torch.bool),
        labels=torch.from_numpy(labels.astype(np.int8)),
        grid=torch.linspace(0, 1, STEPS),
        points=None,
        weights=torch.from_numpy(~held_out).float(),
        held_out=torch.from_numpy(held_out),
    )


def trained(lagrangian=None, judged=MEMBERS, penalties=()):
    generators = member_generators(SEEDS)
    fleet = Fleet(
        GRUModel(MEMBERS, 3, 2, hidden_size=8).initialise(generators),
        StepwiseNoise(MEMBERS, 2, np.linspace(0, 1, STEPS)),
    )
    schedule = Schedule(epochs=12, batch_size=4, learning_rate=0.05, patience=2, lagrangian=lagrangian)
    history = train(fleet, make_data(judged), Objective(penalties=penalties), schedule, SEEDS)
    return fleet.state_dict(), history


def count_narrowed(monkeypatch):
    sizes = []
    original = running.Running.narrowed

    def counted(self):
        narrowed = original(self)
        if narrowed is not self:
            sizes.append(len(narrowed.seeds))
        return narrowed

    monkeypatch.setattr(running, "_is_large", lambda step: step.data.members > 1)
    monkeypatch.setattr(running.Running, "narrowed", counted)
    return sizes


@pytest.mark.parametrize("lagrangian", [None, AugmentedLagrangian(epochs_per_round=2)])
def test_a_smaller_fleet_learns_the_same(monkeypatch, lagrangian):
    whole, history = trained(lagrangian=lagrangian)
    sizes = count_narrowed(monkeypatch)
    parts, history_of_parts = trained(lagrangian=lagrangian)
    assert len(sizes) > 1
    assert sizes == sorted(sizes, reverse=True)
    for name, values in whole.items():
        torch.testing.assert_close(parts[name], values, rtol=1e-5, atol=1e-6)
    for name in ("loss", "held_out", "best_epoch", "restarts"):
        np.testing.assert_allclose(getattr(history_of_parts, name), getattr(history, name), rtol=1e-5, atol=1e-6)
    assert len(set(history.best_epoch)) > 1, "all members stopped together, so the test says nothing"


def test_a_member_without_rows_held_out_learns_to_the_end(monkeypatch):
    """It goes on alone once all others have stopped."""
    whole, _ = trained(judged=5)
    sizes = count_narrowed(monkeypatch)
    parts, history = trained(judged=5)
    assert sizes[-1] == 1
    assert np.isfinite(history.loss[-1, 5:]).all()
    for name, values in whole.items():
        torch.testing.assert_close(parts[name], values, rtol=1e-5, atol=1e-6)


def test_a_fleet_whose_penalties_differ_among_members_stays_whole(monkeypatch):
    sizes = count_narrowed(monkeypatch)
    trained(penalties=(Penalty("log volume", log_volume, 0.01 * torch.ones(MEMBERS, 1)),))
    assert not sizes
