"""Rows of one person are never on both sides of a split, and people are the units of every conclusion."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch

import labeltide as lt
from labeltide.data.clusters import ClusterWarning
from labeltide.estimators.fleet import FleetFit, hold_out
from labeltide.inference.bootstrap import draw_row_counts
from labeltide.training import Checkpoint

PEOPLE, WINDOWS, STEPS = 7, 4, 6
N = PEOPLE * WINDOWS
CLUSTERS = np.repeat([f"person {index}" for index in range(PEOPLE)], WINDOWS)
TINY = {"epochs": 2, "hidden_size": 4, "device": "cpu", "random_state": 0}
ALONE = {"hidden_size": 32}  # rounding of our own GRU does not depend on the number of members


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def study() -> tuple[np.ndarray, np.ndarray]:
    made = lt.make_sequences(N, STEPS, 2, stay=0.8, random_state=0)
    return made.features, lt.corrupt(made.labels[..., 0], lt.make_noise("linear", n_steps=STEPS, rate=0.2))


@pytest.fixture(scope="module")
def people() -> tuple[np.ndarray, np.ndarray]:
    """Windows with a level of their person in every feature."""
    made = lt.make_sequences(80, STEPS, 3, stay=0.8, random_state=0)
    level = np.repeat(np.random.default_rng(0).normal(size=(10, 1, 3)), 8, 0)
    return made.features + 3 * level, made.labels


def make(name: str, **params) -> lt.NoisyLabelClassifier:
    own = {"noise": np.array([[0.8, 0.2], [0.2, 0.8]])} if name == "known" else {}
    return lt.METHODS[name](**{**TINY, **own, **params})


def splits_of(monkeypatch, name, X, y, clusters, **params) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows that were trained on and held out, (members, rows) each, in every training of a fit."""
    seen, train = [], FleetFit.train

    def watch(self, *args, **more):
        seen.append((self.data.weights.numpy() > 0, self.data.held_out.numpy()))
        return train(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(FleetFit, "train", watch)
        make(name, **params).fit(X, y, clusters=clusters)
    return seen


def assert_whole(trained: np.ndarray, held: np.ndarray, clusters: np.ndarray) -> None:
    for in_training, outside in zip(trained, held, strict=True):
        assert not set(clusters[in_training]) & set(clusters[outside])


@pytest.mark.parametrize("name", lt.METHODS)
def test_no_person_is_trained_on_and_held_out(name, study, monkeypatch):
    splits = splits_of(monkeypatch, name, *study, CLUSTERS, early_stopping=True)
    assert any(held.any() for _, held in splits)
    for trained, held in splits:
        assert_whole(trained, held, CLUSTERS)


@pytest.mark.parametrize("name", ["continuous", "discontinuous"])
def test_the_pooling_of_annotators_is_chosen_on_whole_people(name, study, monkeypatch):
    X, y = study
    both = np.stack([y, np.roll(y, 1, 0)], -1)
    first, *_ = splits_of(monkeypatch, name, X, both, CLUSTERS)
    assert first[1].any()
    assert_whole(*first, CLUSTERS)


@pytest.mark.parametrize("labelled_people", [2, 3, 5, 7])
def test_no_person_lies_in_two_folds_and_every_fold_has_labels(labelled_people, study):
    X, y = study
    some = np.where(np.arange(N)[:, None] < labelled_people * WINDOWS, y, -1)
    method = make("tide").fit(X, some, clusters=CLUSTERS)
    folds = method.training_rows_.folds
    assert all(len(np.unique(folds[person == CLUSTERS])) == 1 for person in np.unique(CLUSTERS))
    labelled = (some >= 0).any(1)
    assert len(np.unique(folds[labelled])) == len(np.unique(folds)) == min(5, labelled_people)
    sizes = np.bincount(folds[labelled])
    assert sizes.max() - sizes.min() <= WINDOWS


def test_the_seed_draws_the_folds_and_names_do_not_matter(study):
    X, y = study
    codes = np.repeat(np.arange(PEOPLE), WINDOWS)
    tuples = [("site", int(code)) for code in codes]
    fits = [make("tide").fit(X, y, clusters=clusters) for clusters in (CLUSTERS, codes, tuples, list(-codes))]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.training_rows_.folds, fits[0].training_rows_.folds)
        np.testing.assert_array_equal(other.predict_proba(X), fits[0].predict_proba(X))
    others = [make("tide", random_state=seed).fit(X, y, clusters=CLUSTERS) for seed in (1, 2)]
    assert any(not np.array_equal(other.training_rows_.folds, fits[0].training_rows_.folds) for other in others)


def test_without_clusters_folds_are_drawn_row_by_row_as_ever(study):
    X, y = study
    order = np.random.default_rng([0, 3]).permutation(N)
    expected = np.empty(N, dtype=np.int64)
    expected[order] = np.arange(N) % 5
    method = make("tide").fit(X, y)
    np.testing.assert_array_equal(method.training_rows_.folds, expected)
    assert method.training_.clusters is None
    each_row = make("tide").fit(X, y, clusters=np.arange(N))
    np.testing.assert_array_equal(each_row.predict_proba(X), method.predict_proba(X))


def test_without_clusters_the_same_rows_are_held_out_as_ever():
    labelled = np.random.default_rng(0).random(40) < 0.7
    rows = np.flatnonzero(labelled)
    expected = np.random.default_rng([5, 2]).permutation(rows)[: round(0.2 * len(rows))]
    np.testing.assert_array_equal(np.flatnonzero(hold_out(5, labelled, 0.2)), np.sort(expected))


def test_the_fit_keeps_the_clusters_and_the_bootstrap_draws_them_whole(study):
    method = make("tide").fit(*study, clusters=CLUSTERS)
    clusters = method.training_.clusters
    assert clusters.dtype == torch.int64
    np.testing.assert_array_equal(clusters, np.repeat(np.arange(PEOPLE), WINDOWS))
    drawn = draw_row_counts(N, clusters, 50, 0).reshape(50, PEOPLE, WINDOWS)
    assert (drawn == drawn[..., :1]).all()


@pytest.mark.parametrize(("name", "early_stopping"), [("tide", False), ("ignore", True), ("plugin", True)])
def test_a_fleet_with_clusters_ends_as_each_would_alone(name, early_stopping, study):
    X, y = study
    sparse = y.copy()
    sparse[: 2 * WINDOWS] = -1  # other people have labels than in the first, and still five or more
    labels, params = [y, sparse], {"early_stopping": early_stopping, **ALONE}
    fleet = [make(name, **{**params, "random_state": seed}) for seed in (3, 4)]
    lt.fit_fleet(fleet, X, labels, clusters=CLUSTERS)
    for seed, member, own in zip((3, 4), fleet, labels, strict=True):
        alone = make(name, **{**params, "random_state": seed}).fit(X, own, clusters=CLUSTERS)
        np.testing.assert_allclose(member.predict_proba(X), alone.predict_proba(X), atol=1e-4)
        np.testing.assert_allclose(member.noise_matrices_, alone.noise_matrices_, atol=1e-4)
        if name == "tide":
            np.testing.assert_array_equal(member.training_rows_.folds, alone.training_rows_.folds)
            np.testing.assert_array_equal(member.training_.clusters, alone.training_.clusters)


def test_a_saved_fit_with_clusters_judges_as_the_one_that_was_saved(study, tmp_path):
    X, y = study
    method = make("tide").fit(X, y, clusters=CLUSTERS)
    method.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.training_rows_.folds, method.training_rows_.folds)
    np.testing.assert_array_equal(loaded.audit(X, y).quality, method.audit(X, y).quality)


def test_an_audit_judges_training_rows_by_networks_that_never_saw_their_person(study):
    X, y = study
    method = make("tide").fit(X, y, clusters=CLUSTERS)
    evidence = method.training_.data.evidence[0].numpy()
    found, _ = method._evidence(method._check_features(X, None)[0], np.ones(y.shape, bool))
    np.testing.assert_allclose(found, evidence, atol=1e-5)
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_allclose(method.audit(X[order], y[order]).quality, method.audit(X, y).quality[order], atol=1e-6)


def test_a_checkpoint_of_other_clusters_is_refused(study, tmp_path, monkeypatch):
    X, y = study
    save = Checkpoint.save

    def save_and_stop(self, *state):
        self.seconds = 0.0
        save(self, *state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            make("ignore", checkpoint=tmp_path).fit(X, y, clusters=CLUSTERS)
    for other in (None, np.roll(CLUSTERS, 1)):
        with pytest.raises(ValueError, match="belongs to a fit with other data or settings"):
            make("ignore", checkpoint=tmp_path).fit(X, y, clusters=other)
    resumed = make("ignore", checkpoint=tmp_path).fit(X, y, clusters=CLUSTERS)
    np.testing.assert_array_equal(resumed.predict_proba(X), make("ignore").fit(X, y).predict_proba(X))


@pytest.mark.parametrize(("name", "params"), [("tide", {}), ("ignore", {"early_stopping": True})])
def test_a_single_cluster_is_split_by_rows_with_a_warning(name, params, study):
    X, y = study
    with pytest.warns(ClusterWarning, match="clusters must name at least two clusters with labels"):
        method = make(name, **params).fit(X, y, clusters=["me"] * N)
    np.testing.assert_array_equal(method.predict_proba(X), make(name, **params).fit(X, y).predict_proba(X))


def test_a_cluster_that_leaves_little_beside_itself_is_warned_of(study):
    X, y = study
    with pytest.warns(ClusterWarning, match="One of the clusters holds 89 % of the rows with labels"):
        method = make("tide").fit(X, y, clusters=np.arange(N) < 25)
    assert len(np.unique(method.training_rows_.folds[:25])) == 1


@pytest.mark.parametrize(("name", "params"), [("tide", {}), ("ignore", {"early_stopping": True})])
def test_rows_that_look_alike_are_warned_of_once_and_at_the_call_of_fit(name, params, people):
    with pytest.warns(
        UserWarning, match="Adjacent rows look alike, as windows of one person do.* Pass clusters="
    ) as told:
        make(name, **params).fit(*people)
    assert [warning.category for warning in told] == [ClusterWarning]
    assert told[0].filename == __file__


def test_nothing_is_warned_of_where_clusters_are_told_or_nothing_is_split(people, study):
    X, y = people
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("tide").fit(X, y, clusters=np.repeat(np.arange(10), 8))
        make("ignore").fit(X, y)
        make("tide").fit(*study)


def test_the_ids_of_sequences_are_clusters():
    table = {"person": np.repeat(["b", "a", "c"], 12), "minute": np.tile(np.arange(12), 3)}
    table |= {"x": np.random.default_rng(0).normal(size=36), "label": np.arange(36) % 2}
    made = lt.Sequences.from_table(
        pa.table(table), sequence="person", time="minute", label="label", features="x", window=4
    )
    method = make("tide").fit(made.features, made.labels, clusters=made.ids)
    np.testing.assert_array_equal(method.training_.clusters, np.repeat([0, 1, 2], 3))
