import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import labeltide as lt
from fresh_process import run_code
from labeltide.estimators import fleet, paper
from labeltide.estimators.paper import MIN_STEPS, anchor_rows
from labeltide.training import Checkpoint, FleetData
from labeltide.training import loop as loop_module
from oracles import anchor_matrix

N, STEPS, FEATURES = 30, 6, 3
SETTINGS = {"hidden_size": 4, "batch_size": 16, "device": "cpu", "random_state": 3, "learning_rate": 0.05}


def make_study(n=N, n_steps=STEPS, seed=0):
    """Features and recorded labels, one in five wrong."""
    study = lt.make_sequences(n, n_steps, FEATURES, 2, random_state=seed)
    labels = lt.corrupt(study.clean_labels, np.array([[0.8, 0.2], [0.2, 0.8]]), random_state=seed)
    return study.features, labels


def make_plugin(**changes):
    return lt.PlugInClassifier(**(SETTINGS | {"epochs": 5, "warm_up": 2} | changes))


def assert_equal_fits(one, two):
    np.testing.assert_array_equal(one.noise_matrices_, two.noise_matrices_)
    for (name, a), (_, b) in zip(one.model_.state_dict().items(), two.model_.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    np.testing.assert_array_equal(one.history_.loss, two.history_.loss)


# Anchor points


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(2, 4),
    st.sampled_from([0.0, 50.0, 90.0, 97.0, 100.0]),
)
@settings(max_examples=50, deadline=None)
def test_anchor_rows_equal_a_slow_loop(seed, members, n_steps, n_classes, percentile):
    probabilities = np.random.default_rng(seed).dirichlet(np.ones(n_classes), (members, n_steps))
    rows = anchor_rows(torch.from_numpy(probabilities), percentile)
    assert rows.shape == (members, n_classes, n_classes)
    for m in range(members):
        np.testing.assert_allclose(rows[m], anchor_matrix(probabilities[m], percentile))


def test_anchor_rows_find_the_matrix_where_every_class_has_its_typical_steps():
    Q = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]])
    posterior = np.concatenate([np.eye(3), np.random.default_rng(0).dirichlet(np.ones(3), 50)])
    rows = anchor_rows(torch.from_numpy(posterior @ Q)[None], 100.0)
    np.testing.assert_allclose(rows[0], Q)


def data_with(clock_points, mask, grid):
    n, n_steps = mask.shape
    return FleetData(
        features=torch.zeros(n, n_steps, 1),
        mask=torch.from_numpy(mask),
        labels=torch.zeros(1, n, n_steps, 1, dtype=torch.int8),
        grid=torch.as_tensor(grid),
        points=None if clock_points is None else torch.from_numpy(clock_points),
        weights=torch.ones(1, n),
        held_out=torch.zeros(1, n, dtype=torch.bool),
    )


def test_steps_of_a_shared_clock_have_estimates_of_their_own():
    mask = np.arange(4) < np.array([4, 2, 3])[:, None]
    clock, groups = paper._groups(data_with(None, mask, np.linspace(0, 1, 4)), temporal=True)
    np.testing.assert_allclose(clock, np.linspace(0, 1, 4))
    assert len(groups) == 4
    for step, inside in enumerate(groups):
        expected = np.zeros_like(mask)
        expected[:, step] = mask[:, step]
        np.testing.assert_array_equal(inside, expected)


@pytest.mark.parametrize("n", [3, 40, 200])
def test_steps_of_irregular_clocks_share_estimates_in_order_of_time(n):
    rng = np.random.default_rng(n)
    points = np.sort(rng.integers(0, 50, (n, 7)), axis=1)
    mask = np.arange(7) < rng.integers(1, 8, n)[:, None]
    used = np.unique(points[mask])
    points[mask] = np.searchsorted(used, points[mask])
    points[~mask] = 0
    grid = used / 50.0
    clock, groups = paper._groups(data_with(points, mask, grid), temporal=True)
    together = np.stack([inside.numpy() for inside in groups])
    np.testing.assert_array_equal(together.sum(0), mask)  # each real step in exactly one group
    assert len(clock) == len(groups)
    assert (np.diff(clock) > 0).all()
    before = -1
    for moment, inside in zip(clock, together, strict=True):
        assert inside.sum() >= min(MIN_STEPS // 2, mask.sum())
        assert points[inside].min() > before
        before = points[inside].max()
        assert moment == pytest.approx(np.mean(grid[points[inside]]))


def test_the_static_anchor_method_has_one_group():
    mask = np.arange(4) < np.array([4, 2, 3])[:, None]
    clock, (inside,) = paper._groups(data_with(None, mask, np.linspace(0, 1, 4)), temporal=False)
    assert clock is None
    np.testing.assert_array_equal(inside, mask)


# The plug-in method


def fit_and_watch(monkeypatch, *data, **given):
    """Fit, and return the predictions from which the anchors were read."""
    read = []
    original = paper.anchor_rows
    monkeypatch.setattr(paper, "anchor_rows", lambda p, q: read.append(p) or original(p, q))
    estimator = make_plugin().fit(*data, **given)
    return estimator, read


def test_plugin_reads_a_matrix_at_every_step_of_a_shared_clock(monkeypatch):
    X, y = make_study()
    estimator, read = fit_and_watch(monkeypatch, X, y)
    assert len(read) == STEPS
    for step in range(STEPS):
        assert read[step].shape == (1, N, 2)
        expected = anchor_matrix(read[step][0].double().numpy(), 97.0)
        np.testing.assert_allclose(estimator.noise_matrices_[step], expected, atol=1e-5)
    assert len(estimator.history_.loss) == 3  # after the warm-up of 2


def test_plugin_works_with_irregular_clocks(monkeypatch):
    X, y = make_study(n=80)
    clock = np.sort(np.random.default_rng(0).uniform(0, 24, (80, STEPS)), axis=1)
    estimator, read = fit_and_watch(monkeypatch, X, y, clock=clock)
    assert len(read) == 80 * STEPS // MIN_STEPS
    assert sum(len(p[0]) for p in read) == 80 * STEPS
    assert estimator.noise_matrices_.shape == (80 * STEPS, 2, 2)
    np.testing.assert_allclose(estimator.noise_matrices_.sum(-1), 1, atol=1e-5)
    expected = anchor_matrix(read[0][0].double().numpy(), 97.0)
    np.testing.assert_allclose(estimator.noise_at(-1.0), expected, atol=1e-5)


@pytest.mark.parametrize("n", [5, 250])
def test_plugin_works_with_few_or_very_many_moments_and_ragged_rows(n):
    X, y = make_study(n=n)
    clock = np.sort(np.random.default_rng(0).gamma(2, 1, (n, STEPS)), axis=1)
    lengths = np.random.default_rng(1).integers(1, STEPS + 1, n)
    lengths[0] = STEPS
    estimator = make_plugin(epochs=2, warm_up=1).fit(X, y, clock=clock, lengths=lengths)
    assert np.isfinite(estimator.noise_matrices_).all()
    assert np.isfinite(estimator.predict_proba(X, lengths)).all()


@pytest.mark.parametrize("shared", [True, False])
def test_plugin_takes_seconds_since_1970_for_a_clock(shared):
    X, y = make_study()
    seconds = np.arange(float(STEPS)) if shared else np.sort(np.random.default_rng(0).random((N, STEPS)) * 9, axis=1)
    one = make_plugin(epochs=3).fit(X, y, clock=seconds)
    two = make_plugin(epochs=3).fit(X, y, clock=1.7e9 + seconds)
    assert len(two.noise_matrices_) == len(one.noise_matrices_)
    np.testing.assert_allclose(two.noise_matrices_, one.noise_matrices_, atol=1e-3)


# Checkpoints through the estimators


class KilledError(Exception):
    pass


def save_at_once(monkeypatch):
    monkeypatch.setattr(fleet, "Checkpoint", partial(Checkpoint, seconds=0))


def kill_in_stage(monkeypatch, stage, epoch):
    """Die at an epoch of the n-th call of `train`."""
    original, stages = loop_module._run_epoch, []

    def run_epoch(running, *rest):
        if running.state.epoch == 0:
            stages.append(1)
        if len(stages) == stage and running.state.epoch == epoch:
            raise KilledError
        return original(running, *rest)

    monkeypatch.setattr(loop_module, "_run_epoch", run_epoch)


@pytest.mark.parametrize(
    ("stage", "epoch", "early_stopping"), [(1, 1, False), (2, 0, False), (2, 2, False), (2, 2, True)]
)
def test_plugin_killed_in_any_stage_goes_on_to_the_same_numbers(tmp_path, monkeypatch, stage, epoch, early_stopping):
    X, y = make_study()
    undisturbed = make_plugin(early_stopping=early_stopping).fit(X, y)
    folder = tmp_path / "fit"
    save_at_once(monkeypatch)
    with monkeypatch.context() as patch:
        kill_in_stage(patch, stage, epoch)
        with pytest.raises(KilledError):
            make_plugin(early_stopping=early_stopping, checkpoint=folder).fit(X, y)
    assert any(folder.iterdir())
    ran = []
    original = loop_module._run_epoch
    monkeypatch.setattr(loop_module, "_run_epoch", lambda *given: ran.append(1) or original(*given))
    resumed = make_plugin(early_stopping=early_stopping, checkpoint=folder).fit(X, y)
    assert len(ran) == (2 - epoch + 3 if stage == 1 else 3 - epoch)
    assert_equal_fits(resumed, undisturbed)


def test_files_that_are_not_ours_are_never_deleted(tmp_path):
    X, y = make_study()
    theirs = ["notes.txt", "model.safetensors", "labeltide-fit.txt", "labeltide-model.safetensors"]
    for name in theirs:
        (tmp_path / name).write_text("mine")
    (tmp_path / "folder").mkdir()
    make_plugin(checkpoint=tmp_path).fit(X, y)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*theirs, "folder"])
    assert all((tmp_path / name).read_text() == "mine" for name in theirs)


def test_a_folder_of_our_own_is_gone_after_the_fit(tmp_path):
    X, y = make_study()
    make_plugin(checkpoint=tmp_path / "a" / "b").fit(X, y)
    assert not (tmp_path / "a" / "b").exists()


def killed_fit(estimator, X, y, monkeypatch, **more):
    with monkeypatch.context() as patch:
        save_at_once(patch)
        kill_in_stage(patch, 1, 1)
        with pytest.raises(KilledError):
            estimator.fit(X, y, **more)


@pytest.mark.parametrize(
    "change",
    [
        {"random_state": 4},
        {"learning_rate": 0.01},
        {"epochs": 9, "warm_up": 5},
        {"batch_size": 8},
        {"hidden_size": 5},
        {"early_stopping": True},
    ],
    ids=str,
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, monkeypatch, change):
    X, y = make_study()
    killed_fit(make_plugin(checkpoint=tmp_path), X, y, monkeypatch)
    with pytest.raises(ValueError, match="other data or settings"):
        make_plugin(checkpoint=tmp_path, **change).fit(X, y)


def test_a_checkpoint_of_other_data_is_refused(tmp_path, monkeypatch):
    X, y = make_study()
    killed_fit(make_plugin(checkpoint=tmp_path), X, y, monkeypatch)
    for other_X, other_y in [(X + 1, y), (X, 1 - y)]:
        with pytest.raises(ValueError, match="other data or settings"):
            make_plugin(checkpoint=tmp_path).fit(other_X, other_y)


def test_a_checkpoint_with_other_known_noise_is_refused(tmp_path, monkeypatch):
    X, y = make_study()

    def make_known(rate):
        noise = (1 - 2 * rate) * np.eye(2) + rate
        return lt.METHODS["known"](noise=noise, epochs=3, random_state=0, checkpoint=tmp_path)

    killed_fit(make_known(0.1), X, y, monkeypatch)
    with pytest.raises(ValueError, match="other data or settings"):
        make_known(0.2).fit(X, y)


def test_a_checkpoint_with_other_trusted_labels_is_refused(tmp_path, monkeypatch):
    """Where all labels are trusted, the first networks are those that learn from them as targets."""
    X, y = make_study()
    tide = lt.TideClassifier(epochs=3, random_state=0, checkpoint=tmp_path)
    killed_fit(tide, X, y, monkeypatch, trusted=y)
    with pytest.raises(ValueError, match="other data or settings"):
        tide.fit(X, y, trusted=1 - y)


@pytest.mark.parametrize("model", ["tcn", "transformer"])
def test_a_checkpoint_of_a_model_that_looks_ahead_is_refused(tmp_path, monkeypatch, model):
    X, y = make_study()
    killed_fit(make_plugin(checkpoint=tmp_path, model=model, causal=False), X, y, monkeypatch)
    with pytest.raises(ValueError, match="other data or settings"):
        make_plugin(checkpoint=tmp_path, model=model, causal=True).fit(X, y)


KILLED = """
import os, signal, sys
from functools import partial
import labeltide as lt
from fresh_process import run_code
from labeltide.estimators import fleet
from labeltide.training import Checkpoint
from labeltide.training import loop
from estimators.test_anchors import SETTINGS, make_study

original = loop._run_epoch

def run_epoch(running, *rest):
    if running.state.epoch == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(running, *rest)

loop._run_epoch = run_epoch
fleet.Checkpoint = partial(Checkpoint, seconds=0)
lt.METHODS[sys.argv[1]](epochs=4, checkpoint=sys.argv[2], **SETTINGS).fit(*make_study())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
@pytest.mark.parametrize("method", ["ignore", "discontinuous"])
def test_a_fit_killed_in_one_process_goes_on_in_another(tmp_path, method):
    folder = tmp_path / "fit"
    done = run_code(KILLED, method, folder, paths=[Path(__file__).parents[1]])
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert any(folder.iterdir())
    resumed = lt.METHODS[method](epochs=4, checkpoint=folder, **SETTINGS).fit(*make_study())
    assert_equal_fits(resumed, lt.METHODS[method](epochs=4, **SETTINGS).fit(*make_study()))
