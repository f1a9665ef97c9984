import dataclasses
import json
import logging
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils._pytree import tree_leaves

from fresh_process import run_code
from labeltide._fleet import member_generators
from labeltide.models.base import LinearModel
from labeltide.models.gru import GRUModel
from labeltide.models.wrap import wrap
from labeltide.noise.functions import StepwiseNoise
from labeltide.training import (
    AugmentedLagrangian,
    Checkpoint,
    Fleet,
    FleetData,
    Schedule,
    evaluate,
    fingerprint,
    train,
)
from labeltide.training import state as checkpoint_module
from labeltide.training import step as step_module
from labeltide.training.objective import Objective, Penalty, frobenius

N, STEPS, FEATURES, CLASSES = 14, 5, 2, 3
SEEDS = (11, 12, 13)
OBJECTIVE = Objective(penalties=(Penalty("size", frobenius, 0.1),))
SCHEDULE = Schedule(epochs=5, batch_size=4, learning_rate=0.05, noise_milestones=(2,))
LAGRANGIAN = AugmentedLagrangian(epochs_per_round=2, gamma=0.9, eta=1.5)


def make_data(members=3, seed=0, **changes):
    """Labels that can be learned, one in five wrong, ragged, some missing, different for each member."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(0, CLASSES, (N, STEPS))
    features = np.stack([clean, clean == 1], -1) + 0.5 * rng.standard_normal((N, STEPS, FEATURES))
    lengths = rng.integers(2, STEPS + 1, N)
    lengths[0] = STEPS
    labels = np.where(rng.random((members, N, STEPS)) < 0.2, rng.integers(-1, CLASSES, (members, N, STEPS)), clean)
    given = {
        "features": torch.from_numpy(features).float(),
        "mask": torch.arange(STEPS) < torch.from_numpy(lengths)[:, None],
        "labels": torch.from_numpy(labels[..., None].astype(np.int8)),
        "grid": torch.linspace(0, 1, STEPS),
        "points": None,
        "weights": torch.ones(members, N),
        "held_out": torch.zeros(members, N, dtype=torch.bool),
    }
    return FleetData(**(given | changes))


def different_rows():
    """Weights: all rows, half of them, and a bootstrap draw."""
    weights = torch.ones(3, N)
    weights[1, ::2] = 0
    draws = np.random.default_rng(1).integers(0, N, N)
    weights[2] = torch.from_numpy(np.bincount(draws, minlength=N)).float()
    return weights


def hold_out(data):
    """The same data with other rows held out from each member, and not equally many."""
    held_out = torch.zeros_like(data.held_out)
    for member, rows in enumerate([[1, 2, 3], [5, 7], [0, 4, 8, 12]][: data.members]):
        held_out[member, rows] = True
    return dataclasses.replace(data, held_out=held_out, weights=data.weights * ~held_out)


def one_member(data, index):
    chosen = slice(index, index + 1)
    return dataclasses.replace(
        data, labels=data.labels[chosen], weights=data.weights[chosen], held_out=data.held_out[chosen]
    )


def make_fleet(seeds=SEEDS, model=GRUModel):
    options = {"hidden_size": 4} if model is GRUModel else {}
    network = model(len(seeds), FEATURES, CLASSES, **options).initialise(member_generators(seeds))
    noise = StepwiseNoise(len(seeds), CLASSES, torch.linspace(0, 1, STEPS))
    return Fleet(network, noise.initialise(member_generators(seeds)))


def parameters_of(fleet):
    return torch.cat([p.detach().flatten(1) for p in fleet.parameters()], 1)


def train_new(data, schedule=SCHEDULE, seeds=SEEDS, model=GRUModel, objective=OBJECTIVE, **options):
    fleet = make_fleet(seeds, model)
    history = train(fleet, data, objective, schedule, seeds, **options)
    return fleet, history


def assert_same_history(one, two):
    for field in dataclasses.fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(two, field.name))


# A member inside a fleet is the member alone


@pytest.mark.parametrize("lagrangian", [None, LAGRANGIAN], ids=["plain", "lagrangian"])
@pytest.mark.parametrize("stopping", [False, True], ids=["to the end", "early stopping"])
def test_a_member_trained_inside_a_fleet_equals_the_same_member_alone(stopping, lagrangian):
    data = make_data(weights=different_rows())
    schedule = dataclasses.replace(SCHEDULE, lagrangian=lagrangian, epochs=7, patience=2)
    if stopping:
        data, schedule = hold_out(data), dataclasses.replace(schedule, learning_rate=0.3)
    fleet, history = train_new(data, schedule)
    stopped_at = []
    for m, seed in enumerate(SEEDS):
        alone, alone_history = train_new(one_member(data, m), schedule, [seed])
        torch.testing.assert_close(parameters_of(fleet)[m], parameters_of(alone)[0], atol=1e-4, rtol=1e-4)
        epochs = len(alone_history.loss)
        stopped_at.append(epochs)
        np.testing.assert_allclose(history.loss[:epochs, m], alone_history.loss[:, 0], atol=1e-4)
        np.testing.assert_allclose(history.held_out[:epochs, m], alone_history.held_out[:, 0], atol=1e-4)
        assert np.isnan(history.loss[epochs:, m]).all()
        assert history.best_epoch[m] == alone_history.best_epoch[0]
    if stopping:
        assert len(set(stopped_at)) > 1, "the members should stop at different times, or this shows little"


def test_the_order_of_members_and_the_labels_of_others_change_nothing():
    data, order = hold_out(make_data(weights=different_rows())), [2, 0, 1]
    fleet, _ = train_new(data)
    shuffled = dataclasses.replace(
        data, labels=data.labels[order], weights=data.weights[order], held_out=data.held_out[order]
    )
    moved, _ = train_new(shuffled, seeds=[SEEDS[m] for m in order])
    torch.testing.assert_close(parameters_of(moved), parameters_of(fleet)[order], atol=1e-4, rtol=1e-4)


def test_members_with_clocks_of_their_own_equal_those_alone():
    points = torch.from_numpy(np.sort(np.random.default_rng(0).integers(0, STEPS, (N, STEPS)), axis=1))
    data = make_data(points=points, trusted=make_data(1, seed=3).labels[0, ..., 0])
    fleet, _ = train_new(data)
    for m, seed in enumerate(SEEDS):
        alone, _ = train_new(one_member(data, m), seeds=[seed])
        torch.testing.assert_close(parameters_of(fleet)[m], parameters_of(alone)[0], atol=1e-4, rtol=1e-4)


def test_padding_never_changes_the_training():
    data = make_data()
    features = torch.where(data.mask[..., None], data.features, 7.0)
    labels = torch.where(data.mask[..., None], data.labels, 1).to(torch.int8)
    fleet, _ = train_new(data)
    other, _ = train_new(dataclasses.replace(data, features=features, labels=labels))
    torch.testing.assert_close(parameters_of(other), parameters_of(fleet), atol=1e-5, rtol=1e-5)


def test_a_member_without_held_out_rows_equals_the_same_member_alone():
    data = hold_out(make_data())
    held_out = data.held_out.clone()
    held_out[1] = False
    data = dataclasses.replace(data, held_out=held_out, weights=(~held_out).float())
    fleet, _ = train_new(data)
    alone, _ = train_new(one_member(data, 1), seeds=SEEDS[1:2])
    torch.testing.assert_close(parameters_of(fleet)[1], parameters_of(alone)[0], atol=1e-4, rtol=1e-4)


def test_held_out_rows_without_a_recorded_label_do_not_undo_the_training():
    data = hold_out(make_data(1))
    labels = data.labels.clone()
    labels[0, data.held_out[0]] = -1
    fleet, history = train_new(dataclasses.replace(data, labels=labels), seeds=SEEDS[:1])
    assert history.loss[-1, 0] < history.loss[0, 0]
    assert not torch.equal(parameters_of(fleet), parameters_of(make_fleet(SEEDS[:1])))


# Learning and stopping


def test_loss_goes_down_for_every_member():
    _, history = train_new(make_data(), dataclasses.replace(SCHEDULE, epochs=15))
    assert history.loss.shape == (15, 3)
    assert (history.loss[-1] < 0.8 * history.loss[0]).all()
    assert np.isnan(history.held_out).all()
    assert history.best_epoch.tolist() == [15, 15, 15]
    assert history.restarts.tolist() == [0, 0, 0]


def test_history_holds_the_average_loss_of_a_recorded_label():
    data = make_data(1)
    schedule = Schedule(epochs=1, batch_size=N, learning_rate=1e-9)
    fleet, history = train_new(data, schedule, SEEDS[:1])
    with torch.no_grad():
        logits = fleet.model(data.features[None], data.mask[None])
        matrices = fleet.noise(data.grid)[0]
    labels = torch.where(data.mask, data.labels[0, ..., 0].long(), -1)
    losses = [
        -float(torch.log(logits[0, row, step].softmax(-1) @ matrices[step, :, labels[row, step]]))
        for row in range(N)
        for step in range(STEPS)
        if labels[row, step] >= 0
    ]
    assert history.loss[0, 0] == pytest.approx(np.mean(losses), abs=1e-5)


def test_members_that_stop_together_keep_the_epoch_of_their_smallest_mean_held_out_loss():
    data = hold_out(make_data(weights=different_rows()))
    schedule = dataclasses.replace(SCHEDULE, epochs=25, learning_rate=0.3, patience=4)
    apart = train_new(data, schedule)[1]
    fleet, history = train_new(data, dataclasses.replace(schedule, stop_together=3))
    assert len(set(apart.best_epoch)) > 1, "apart, members should stop at different epochs, or this shows little"
    assert set(history.best_epoch) == {history.held_out.mean(1).argmin() + 1}
    np.testing.assert_array_equal(history.held_out[0], apart.held_out[0])
    index = torch.arange(N)[None, None].expand(1, 3, N)
    rows = torch.where(data.held_out[None], index, -1)
    scores = evaluate(fleet, data, OBJECTIVE, rows)
    np.testing.assert_allclose(scores, history.held_out[history.best_epoch[0] - 1], rtol=1e-5)


def test_early_stopping_keeps_the_best_snapshot():
    data = hold_out(make_data())
    schedule = dataclasses.replace(SCHEDULE, epochs=25, learning_rate=0.3, patience=4)
    fleet, history = train_new(data, schedule)
    final = evaluate(fleet, data, OBJECTIVE, data.held_out_rows(3)).numpy()
    np.testing.assert_allclose(final, np.nanmin(history.held_out, 0), rtol=1e-5)
    np.testing.assert_array_equal(history.best_epoch, np.nanargmin(history.held_out, 0) + 1)
    assert (history.best_epoch < 25).all()
    for m in range(3):
        epochs = int(np.isfinite(history.loss[:, m]).sum())
        assert epochs == min(history.best_epoch[m] + schedule.patience, 25)
        assert np.isnan(history.loss[epochs:, m]).all()
        assert np.isnan(history.held_out[epochs:, m]).all()


def test_held_out_rows_do_not_train():
    data = hold_out(make_data())
    other = make_data(seed=5)
    held = data.held_out[..., None, None]
    changed = dataclasses.replace(data, labels=torch.where(held, other.labels, data.labels))
    schedule = dataclasses.replace(SCHEDULE, patience=100)
    _, history = train_new(data, schedule)
    _, changed_history = train_new(changed, schedule)
    np.testing.assert_array_equal(history.loss, changed_history.loss)
    assert (history.held_out != changed_history.held_out).all()


def test_the_noise_learns_at_half_the_rate_after_a_milestone():
    """With one batch an epoch, Adam's first step moves each parameter by its rate."""
    data, fleet = make_data(1), make_fleet(SEEDS[:1])
    before = [p.detach().clone() for p in fleet.parameters()]
    train(fleet, data, OBJECTIVE, Schedule(epochs=1, learning_rate=0.01, noise_milestones=(0,)), SEEDS[:1])
    steps = [(p.detach() - old).abs().max() for p, old in zip(fleet.parameters(), before, strict=True)]
    assert float(max(steps[:-1])) == pytest.approx(0.01, rel=1e-3)
    assert float(steps[-1]) == pytest.approx(0.005, rel=1e-3)


def test_on_epoch_hears_of_every_epoch():
    heard = []
    _, history = train_new(make_data(), on_epoch=lambda epoch, loss: heard.append((epoch, loss)))
    assert [epoch for epoch, _ in heard] == [1, 2, 3, 4, 5]
    np.testing.assert_allclose([loss for _, loss in heard], history.loss.mean(1))


def test_training_leaves_the_fleet_in_evaluation_mode_and_the_global_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fleet, _ = train_new(make_data())
    assert torch.equal(torch.rand(3), expected)
    assert not any(module.training for module in fleet.modules())


def test_training_on_the_cpu_seeds_no_gpu(monkeypatch):
    monkeypatch.setattr(torch, "manual_seed", lambda seed: pytest.fail("It seeds every GPU, or queues that for later."))
    train_new(make_data())


def test_evaluate_leaves_the_mode_as_it_was():
    data = hold_out(make_data())
    fleet, _ = train_new(data)
    evaluate(fleet, data, OBJECTIVE, data.held_out_rows(4))
    assert not fleet.training


# The augmented Lagrangian


class Watched(Objective):
    """Remembers the multipliers of every training batch."""

    def __call__(self, *args, **given):
        if torch.is_grad_enabled():
            seen.append((given["multipliers"].linear.clone(), given["multipliers"].quadratic.clone()))
        return super().__call__(*args, **given)


seen: list = []


def test_multipliers_equal_a_hand_computation(tmp_path):
    seen.clear()
    data, schedule = make_data(), dataclasses.replace(SCHEDULE, epochs=9, batch_size=N, lagrangian=LAGRANGIAN)
    checkpoint = Checkpoint(tmp_path / "fit", "same", seconds=0)
    _, history = train_new(
        data, schedule, objective=Watched(OBJECTIVE.loss, OBJECTIVE.penalties), checkpoint=checkpoint
    )
    saved = checkpoint.load()[0]
    for m in range(3):
        linear, quadratic, before, by_epoch = 1.0, 1.0, np.inf, []
        for epoch in range(9):
            by_epoch.append((linear, quadratic))
            if epoch % 2 == 1:
                loss = history.loss[epoch, m]
                linear += quadratic * loss
                quadratic *= 1.5 if loss > 0.9 * before else 1.0
                before = loss
        assert float(saved["linear"][m]) == pytest.approx(linear, rel=1e-5)
        assert float(saved["quadratic"][m]) == pytest.approx(quadratic, rel=1e-5)
        np.testing.assert_allclose([(float(a[m]), float(b[m])) for a, b in seen], by_epoch, rtol=1e-5)
    assert saved["quadratic"].max() > 1


def test_without_lagrangian_there_are_no_multipliers():
    class Strict(Objective):
        def __call__(self, *args, **given):
            assert given["multipliers"] is None
            return super().__call__(*args, **given)

    train_new(make_data(), objective=Strict())


# Members that diverge


class Poisoned(Objective):
    """Gives NaN to one member in the training batches of some epochs (one batch each)."""

    def __call__(self, *args, **given):
        scored = super().__call__(*args, **given)
        if not torch.is_grad_enabled():
            return scored
        calls.append(1)
        factor = torch.ones_like(scored.total)
        if len(calls) in poisoned_epochs:
            factor[1] = torch.nan
        return scored._replace(total=scored.total * factor, data=scored.data * factor)


calls: list = []
poisoned_epochs: set = set()


def train_poisoned(epochs, schedule, data, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "calls", [])
    monkeypatch.setattr(sys.modules[__name__], "poisoned_epochs", set(epochs))
    return train_new(data, dataclasses.replace(schedule, batch_size=N), objective=Poisoned())


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("lagrangian", [None, LAGRANGIAN], ids=["plain", "lagrangian"])
def test_a_diverged_member_is_restarted_reported_and_logged_and_others_unchanged(
    stopping, lagrangian, monkeypatch, caplog
):
    data = hold_out(make_data()) if stopping else make_data()
    schedule = dataclasses.replace(SCHEDULE, lagrangian=lagrangian)
    calm, calm_history = train_poisoned([], schedule, data, monkeypatch)
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "labeltide"):
        fleet, history = train_poisoned([2, 4], schedule, data, monkeypatch)
    assert history.restarts.tolist() == [0, 2, 0]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "[1]" in caplog.records[0].getMessage()
    assert "epoch 2" in caplog.records[0].getMessage()
    assert torch.equal(parameters_of(fleet)[[0, 2]], parameters_of(calm)[[0, 2]])
    np.testing.assert_array_equal(history.loss[:, [0, 2]], calm_history.loss[:, [0, 2]])
    assert parameters_of(fleet).isfinite().all()
    assert np.isnan(history.loss[:, 1]).tolist() == [False, True, False, True, False]
    assert not torch.equal(parameters_of(fleet)[1], parameters_of(make_fleet())[1])


def test_a_member_that_diverges_again_and_again_is_frozen_where_it_was_good(monkeypatch):
    schedule = dataclasses.replace(SCHEDULE, epochs=8, max_restarts=2)
    fleet, history = train_poisoned(range(2, 9), schedule, make_data(), monkeypatch)
    assert history.restarts.tolist() == [0, 3, 0]
    # The gradient after epoch 1 is poisoned too, so the last parameters known to be sound are the first ones.
    assert torch.equal(parameters_of(fleet)[1], parameters_of(make_fleet(SEEDS))[1])
    assert np.isnan(history.loss[1:, 1]).all()
    assert np.isfinite(history.loss[:, [0, 2]]).all()


def test_training_ends_when_every_member_is_frozen(monkeypatch):
    heard = []
    monkeypatch.setattr(sys.modules[__name__], "calls", [])
    monkeypatch.setattr(sys.modules[__name__], "poisoned_epochs", set(range(100)))
    schedule = Schedule(epochs=50, max_restarts=1, batch_size=N)
    rows = [1, 1]
    data = make_data()
    data = dataclasses.replace(data, labels=data.labels[rows], weights=data.weights[rows], held_out=data.held_out[rows])
    data = dataclasses.replace(data, weights=data.weights * torch.tensor([[0.0], [1.0]]))  # the first has no row
    fleet, history = train_new(data, schedule, SEEDS[:2], objective=Poisoned(), on_epoch=lambda *now: heard.append(now))
    assert history.restarts[1] == 2
    assert parameters_of(fleet).isfinite().all()
    assert torch.equal(parameters_of(fleet), parameters_of(make_fleet(SEEDS[:2])))


class Exponential(nn.Module):
    """Overflows as soon as its weights are large."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.linear = nn.Linear(n_features, n_classes)

    def forward(self, features):
        return self.linear(features).exp()


@pytest.mark.parametrize(
    ("model", "rate"),
    [
        pytest.param(GRUModel, 1e3, id="gru 1e3"),
        pytest.param(GRUModel, 1e30, id="gru 1e30"),
        pytest.param(GRUModel, 3.4e38, id="gru 3.4e38"),
        pytest.param(LinearModel, 1e38, id="linear 1e38"),
        pytest.param(wrap(Exponential), 30.0, id="exponential 30"),
    ],
)
def test_nan_never_reaches_a_user_at_any_learning_rate(model, rate):
    data = make_data()
    fleet, _ = train_new(data, Schedule(epochs=12, batch_size=N, learning_rate=rate), model=model)
    assert parameters_of(fleet).isfinite().all()
    with torch.no_grad():
        logits = fleet.model(data.features.expand(3, -1, -1, -1), data.mask.expand(3, -1, -1))
    assert logits.softmax(-1).isfinite().all()


# Checkpoints


class StoppedError(Exception):
    pass


def stop_after(epochs):
    def on_epoch(epoch, loss):
        if epoch > epochs:
            raise StoppedError

    return on_epoch


@pytest.mark.parametrize("lagrangian", [None, LAGRANGIAN], ids=["plain", "lagrangian"])
@pytest.mark.parametrize("stopping", [False, True], ids=["to the end", "early stopping"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_killed_fit_goes_on_to_the_same_numbers(tmp_path, epochs, stopping, lagrangian):
    data = hold_out(make_data()) if stopping else make_data()
    schedule = dataclasses.replace(SCHEDULE, lagrangian=lagrangian, epochs=6, patience=2, learning_rate=0.3)
    fleet, history = train_new(data, schedule)
    path = tmp_path / "folder" / "fit.safetensors"
    with pytest.raises(StoppedError):
        train_new(data, schedule, checkpoint=Checkpoint(path, "same", 0), on_epoch=stop_after(epochs))
    heard = []
    resumed, resumed_history = train_new(
        data, schedule, checkpoint=Checkpoint(path, "same", 0), on_epoch=lambda epoch, _: heard.append(epoch)
    )
    assert heard[0] == epochs + 1
    assert torch.equal(parameters_of(resumed), parameters_of(fleet))
    assert_same_history(resumed_history, history)


def test_a_fit_killed_after_a_restart_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELTIDE_KERNELS", "torch")  # an objective of ours is computed otherwise than a poisoned one
    data, schedule = make_data(), dataclasses.replace(SCHEDULE, epochs=6)
    fleet, history = train_poisoned([2], schedule, data, monkeypatch)
    checkpoint = Checkpoint(tmp_path / "fit", "same", 0)
    monkeypatch.setattr(sys.modules[__name__], "calls", [])
    one_batch = dataclasses.replace(schedule, batch_size=N)
    with pytest.raises(StoppedError):
        train_new(data, one_batch, objective=Poisoned(), checkpoint=checkpoint, on_epoch=stop_after(3))
    resumed, resumed_history = train_new(data, one_batch, objective=Objective(), checkpoint=checkpoint)
    assert torch.equal(parameters_of(resumed), parameters_of(fleet))
    assert_same_history(resumed_history, history)


def test_a_finished_fit_is_not_trained_again(tmp_path):
    data, checkpoint = hold_out(make_data()), Checkpoint(tmp_path / "fit", "same", seconds=0)
    fleet, history = train_new(data, checkpoint=checkpoint)
    again, again_history = train_new(data, checkpoint=checkpoint, on_epoch=lambda *_: pytest.fail("trained again"))
    assert torch.equal(parameters_of(again), parameters_of(fleet))
    assert_same_history(again_history, history)


def test_checkpoints_are_written_no_more_often_than_asked(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(checkpoint_module.time, "monotonic", lambda: now[0])
    written = []
    monkeypatch.setattr(checkpoint_module, "write_atomically", lambda path, content: written.append(now[0]))

    def three_seconds(*_):
        now[0] += 3

    checkpoint = Checkpoint(tmp_path / "fit", "same", 5.0)
    checkpoint.written = 0.0
    train_new(make_data(), checkpoint=checkpoint, on_epoch=three_seconds)
    assert written == [6.0, 12.0]


KILLED = """
import os, signal, sys
from labeltide.training import Checkpoint, state as checkpoint
from training.test_loop import hold_out, make_data, train_new

replace, writes = os.replace, []

def replace_or_die(*paths):
    writes.append(paths)
    if len(writes) == 4:
        os.kill(os.getpid(), signal.SIGKILL)  # the new file is written but not yet in place
    replace(*paths)

os.replace = replace_or_die
train_new(hold_out(make_data()), checkpoint=Checkpoint(checkpoint.Path(sys.argv[1]), "same", 0))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_process_killed_in_the_middle_of_a_write_goes_on_to_the_same_numbers(tmp_path):
    path = tmp_path / "fit.safetensors"
    done = run_code(KILLED, path, paths=[Path(__file__).parents[1]])
    assert done.returncode == -signal.SIGKILL, done.stderr
    data, heard = hold_out(make_data()), []
    fleet, history = train_new(data)
    resumed, resumed_history = train_new(
        data, checkpoint=Checkpoint(path, "same"), on_epoch=lambda epoch, _: heard.append(epoch)
    )
    assert heard == [4, 5]
    assert torch.equal(parameters_of(resumed), parameters_of(fleet))
    assert_same_history(resumed_history, history)


class Dropped(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_features, 8), nn.Dropout(0.5), nn.Linear(8, n_classes))

    def forward(self, features):
        return self.net(features)


class Normed(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(n_features), nn.Linear(n_features, n_classes)

    def forward(self, features):
        return self.linear(self.norm(features.transpose(1, 2)).transpose(1, 2))


@pytest.mark.parametrize("module", [Dropped, Normed])
def test_anyones_module_goes_on_to_the_same_numbers(module, tmp_path):
    data, checkpoint = hold_out(make_data()), Checkpoint(tmp_path / "fit", "same", 0)
    schedule = dataclasses.replace(SCHEDULE, patience=100)
    fleet, history = train_new(data, schedule, model=wrap(module))
    torch.manual_seed(0)  # must not matter
    with pytest.raises(StoppedError):
        train_new(data, schedule, model=wrap(module), checkpoint=checkpoint, on_epoch=stop_after(2))
    torch.rand(5)
    resumed, resumed_history = train_new(data, schedule, model=wrap(module), checkpoint=checkpoint)
    assert torch.equal(parameters_of(resumed), parameters_of(fleet))
    assert_same_history(resumed_history, history)
    for name, value in fleet.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.mark.parametrize("module", [Dropped, Normed])
def test_the_best_snapshot_of_anyones_module_scores_as_in_the_history(module):
    data = hold_out(make_data())
    schedule = dataclasses.replace(SCHEDULE, epochs=12, learning_rate=0.5, patience=100)
    fleet, history = train_new(data, schedule, model=wrap(module))
    assert (history.best_epoch < 12).any()
    final = evaluate(fleet, data, OBJECTIVE, data.held_out_rows(16)).numpy()
    np.testing.assert_allclose(final, history.held_out.min(0), rtol=1e-5)


def test_a_diverged_member_leaves_no_nan_in_the_buffers_of_its_module():
    data = make_data()
    fleet, history = train_new(data, Schedule(epochs=4, batch_size=4, learning_rate=3e38), model=wrap(Doubled))
    assert history.restarts.any()
    assert all(value.isfinite().all() for value in fleet.state_dict().values())


class Doubled(nn.Module):
    """Batch normalisation of something that can overflow."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.first, self.norm = nn.Linear(n_features, 4), nn.BatchNorm1d(4)
        self.last = nn.Linear(4, n_classes)

    def forward(self, features):
        return self.last(self.norm(self.first(features).transpose(1, 2)).transpose(1, 2))


class Recurrent(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.gru, self.head = nn.GRU(n_features, 4, batch_first=True), nn.Linear(4, n_classes)

    def forward(self, features):
        return self.head(self.gru(features)[0])


class EmulatedGraph:
    """As a CUDA graph: warmed up, then run again with results in the same memory."""

    def __init__(self, work):
        for _ in range(3):
            work()
        self.work, self.result = work, work()
        self.replays = 0

    def replay(self):
        self.replays += 1
        for fixed, new in zip(tree_leaves(self.result), tree_leaves(self.work()), strict=True):
            if isinstance(fixed, torch.Tensor):
                fixed.copy_(new)


@pytest.fixture
def emulated_graphs(monkeypatch):
    """CUDA graphs without a GPU; returns those that were captured."""
    graphs = []

    def capture(work):
        graphs.append(EmulatedGraph(work))
        return graphs[-1], graphs[-1].result

    monkeypatch.setattr(step_module, "capture", capture)
    monkeypatch.setattr(step_module, "captures_graphs", lambda device: True)
    return graphs


@pytest.mark.parametrize(
    ("model", "graphs_per_step"),
    [(LinearModel, 1), (wrap(Recurrent), 3), (wrap(Dropped), 3), (wrap(Normed), 3)],
    ids=["linear", "recurrent", "dropout", "batch norm"],
)
@pytest.mark.parametrize("lagrangian", [None, LAGRANGIAN], ids=["plain", "lagrangian"])
def test_captured_steps_learn_the_same(request, model, graphs_per_step, lagrangian):
    data, schedule = make_data(weights=different_rows()), dataclasses.replace(SCHEDULE, lagrangian=lagrangian)
    called, history = train_new(data, schedule, model=model)
    graphs = request.getfixturevalue("emulated_graphs")
    replayed, history_of_replays = train_new(data, schedule, model=model)
    assert len(graphs) == graphs_per_step
    assert len({graph.replays for graph in graphs}) == 1
    assert_same_history(history_of_replays, history)
    for name, value in called.state_dict().items():
        assert torch.equal(replayed.state_dict()[name], value), name


def test_frozen_parameters_of_anyones_module_stay_as_they_are():
    def half_frozen(n_features, n_classes):
        module = Dropped(n_features, n_classes)
        module.net[0].requires_grad_(False)
        return module

    fleet, history = train_new(make_data(), model=wrap(half_frozen))
    start = make_fleet(model=wrap(half_frozen))
    for (name, after), before in zip(fleet.named_parameters(), start.parameters(), strict=True):
        assert torch.equal(after, before) == (not after.requires_grad), name
    assert (history.loss[-1] < history.loss[0]).all()


@pytest.fixture
def saved(tmp_path):
    """The path of a checkpoint after two epochs."""
    path = tmp_path / "fit.safetensors"
    with pytest.raises(StoppedError):
        train_new(make_data(), checkpoint=Checkpoint(path, "mine", 0), on_epoch=stop_after(2))
    return path


def test_a_checkpoint_of_other_data_is_refused_and_kept(saved):
    before = saved.read_bytes()
    with pytest.raises(ValueError, match="belongs to a fit with other data or settings"):
        train_new(make_data(seed=1), checkpoint=Checkpoint(saved, "other"))
    assert saved.read_bytes() == before


def truncate(content):
    return content[: len(content) // 2]


def damages():
    yield "empty", lambda content: b""
    yield "half", truncate
    yield "one byte short", lambda content: content[:-1]
    yield "header cut", lambda content: content[:20]
    yield "header length absurd", lambda content: b"\xff" * 8 + content[8:]
    yield "header not JSON", lambda content: content[:8] + b"?" * 40 + content[48:]
    yield "something else", lambda content: b"PK\x03\x04 a zip file, or so it says"
    yield "text", lambda content: "Liebe Grüße".encode()


@pytest.mark.parametrize("damage", [pytest.param(d, id=name) for name, d in damages()])
def test_a_damaged_checkpoint_is_refused_with_a_sentence(saved, damage):
    saved.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(ValueError, match=r"The checkpoint .*fit\.safetensors cannot be read .* Delete it"):
        train_new(make_data(), checkpoint=Checkpoint(saved, "mine"))


def test_a_folder_in_place_of_a_checkpoint_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        Checkpoint(tmp_path, "mine").load()


@pytest.mark.parametrize(
    "about",
    [
        None,
        {},
        {"labeltide": "no JSON"},
        {"labeltide": "{}"},
        {"labeltide": "[]"},
    ],
)
def test_a_strangers_safetensors_file_is_refused_with_a_sentence(tmp_path, about):
    save_file({"losses": torch.zeros(3)}, tmp_path / "fit", metadata=about)
    with pytest.raises(ValueError, match="cannot be read"):
        Checkpoint(tmp_path / "fit", "mine").load()


@pytest.mark.parametrize("missing", ["losses", "parameters", "rate"])
def test_a_checkpoint_that_lacks_a_tensor_is_refused_with_a_sentence(saved, missing):
    tensors = load_file(saved)
    tensors.pop(missing)
    save_file(tensors, saved, metadata={"labeltide": json.dumps({"fingerprint": "mine", "epoch": 2})})
    with pytest.raises(ValueError, match="cannot be read"):
        train_new(make_data(), checkpoint=Checkpoint(saved, "mine"))


def test_whole_numbers_as_multipliers_resume_as_others_do(tmp_path):
    data, checkpoint = make_data(), Checkpoint(tmp_path / "fit", "same", 0)
    whole = AugmentedLagrangian(epochs_per_round=1, linear=1, quadratic=1)
    schedule = dataclasses.replace(SCHEDULE, lagrangian=whole)
    fleet, _ = train_new(data, schedule)
    with pytest.raises(StoppedError):
        train_new(data, schedule, checkpoint=checkpoint, on_epoch=stop_after(2))
    resumed, _ = train_new(data, schedule, checkpoint=checkpoint)
    assert torch.equal(parameters_of(resumed), parameters_of(fleet))


def test_fingerprints_tell_values_shapes_types_and_settings_apart():
    zeros = torch.zeros(2, 3)
    parts = [
        (zeros,),
        (zeros.T,),
        (zeros.double(),),
        (zeros + 1,),
        (zeros, zeros),
        (zeros, None),
        (zeros, SCHEDULE),
        (zeros, dataclasses.replace(SCHEDULE, epochs=6)),
        (),
    ]
    prints = [fingerprint(*part) for part in parts]
    assert len(set(prints)) == len(parts)
    assert prints == [fingerprint(*part) for part in parts]
    assert fingerprint(zeros) == fingerprint(zeros.numpy())
    assert fingerprint(torch.arange(6).reshape(2, 3).T) == fingerprint(torch.arange(6).reshape(2, 3).T.contiguous())
