"""What is costly in an audit has limits, which grow with the table."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import labeltide as lt
from auditing.tables import make_table
from labeltide.auditing import fitting
from labeltide.chain.passes import MIN_CLUSTERS, ChainData, TrainingEvidence

pytestmark = pytest.mark.usefixtures("few_replicates")


def table_of(n_steps, window=100):
    labels = np.zeros((n_steps // window, window, 1), dtype=np.int8)
    labels[:, ::2] = 1
    shape = labels.shape[:2]
    arrays = {"index": np.zeros(shape), "fit_labels": labels}
    return SimpleNamespace(flat_index=np.zeros(n_steps, bool), n_all_steps=n_steps, class_names="ab", **arrays)


@pytest.mark.parametrize(
    ("n_steps", "windows", "epochs"),
    [(10_000, 100, 60), (100_000, 600, 13), (900_000, 1_800, 13), (1_600_000, 2_400, 13), (4_000_000, 2_400, 13)],
)
def test_a_larger_table_is_learned_from_longer_up_to_a_limit(n_steps, windows, epochs):
    table = table_of(n_steps)
    chosen = fitting.choose_windows(table, seed=0)
    assert len(chosen) == windows
    assert fitting.choose_epochs(table, chosen) == epochs


def evidence_of(clusters):
    """Evidence of ten steps a row; only its sizes matter here."""
    n = len(clusters)
    data = ChainData(torch.zeros(1, n, 10, 1, dtype=torch.int8), torch.ones(n, 10, dtype=torch.bool), None, 10, 2)
    return TrainingEvidence(data, None, torch.arange(n)[None] % 5, np.arange(10), clusters=torch.as_tensor(clusters))


def kept_rows(clusters, windows, seed=0):
    thinned = fitting.thin_evidence(evidence_of(clusters), seed, 10 * windows)
    assert len(thinned.data.mask) == thinned.data.labels.shape[1] == thinned.folds.shape[1]
    return thinned.clusters.numpy()


@pytest.mark.parametrize("seed", range(5))
def test_evidence_is_thinned_by_whole_clusters_where_there_are_many(seed):
    clusters = np.repeat(np.arange(100), np.random.default_rng(seed).integers(1, 6, 100))
    names, counts = np.unique(kept_rows(clusters, 100, seed), return_counts=True)
    np.testing.assert_array_equal(counts, np.bincount(clusters)[names])
    assert 90 <= counts.sum() <= 100


def test_of_few_clusters_all_are_kept_and_their_windows_thinned_alike():
    names, counts = np.unique(kept_rows(np.repeat(np.arange(5), 100), 50), return_counts=True)
    assert names.tolist() == [0, 1, 2, 3, 4]
    assert counts.tolist() == [10] * 5
    names, counts = np.unique(kept_rows(np.repeat(np.arange(60), 50), 100), return_counts=True)
    assert len(names) == MIN_CLUSTERS
    assert set(counts) == {5}


def test_windows_without_clusters_are_drawn_one_by_one_as_ever():
    bare = evidence_of(np.zeros(90))._replace(clusters=None)
    bare = bare._replace(folds=torch.arange(90)[None])
    drawn = np.sort(np.random.default_rng([0, 10]).permutation(90)[:40])
    np.testing.assert_array_equal(fitting.thin_evidence(bare, 0, 400).folds[0], drawn)
    assert fitting.thin_evidence(bare, 0, 900) is bare


def test_sequences_are_clusters_unless_one_holds_a_large_share_of_the_labels():
    even = np.repeat(np.arange(3), 30)
    assert fitting.cut_long_sequences(even, np.ones(90, bool)) is even
    lopsided, labelled = np.repeat([0, 1, 2], [70, 10, 10]), np.ones(90, bool)
    clusters = fitting.cut_long_sequences(lopsided, labelled)
    np.testing.assert_array_equal(clusters[70:], lopsided[70:])
    names, sizes = np.unique(clusters[:70], return_counts=True)
    assert len(names) == fitting.BLOCKS
    assert set(sizes) == {3, 4}
    assert np.all(np.diff(clusters[:70]) >= 0)
    labelled[:65] = False  # long, but without labels
    assert fitting.cut_long_sequences(lopsided, labelled) is lopsided
    halves = fitting.cut_long_sequences(np.repeat([0, 1], 30), np.ones(60, bool))
    assert len(np.unique(halves)) == 2 * fitting.BLOCKS


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("people", [1, 2, 8])
def test_an_audit_fits_with_its_sequences_as_clusters(people, monkeypatch):
    monkeypatch.setattr(fitting, "EPOCHS", 2)
    monkeypatch.setattr(fitting, "plant", lambda *_: ())
    monkeypatch.setattr(fitting, "HIDDEN_SIZE", 4)
    given = []
    fit = lt.TideClassifier.fit

    def watch(self, *args, clusters=None, **more):
        given.append(np.asarray(clusters))
        return fit(self, *args, clusters=clusters, **more)

    monkeypatch.setattr(lt.TideClassifier, "fit", watch)
    result = lt.audit(make_table(people=people), sequence="person", time="minute", window=10)
    clusters, folds = given[0], result.estimator.training_rows_.folds
    assert len(result.estimator.training_.clusters.unique()) == people
    assert len(np.unique(folds)) > 1
    assert all(len(np.unique(folds[clusters == name])) == 1 for name in np.unique(clusters))
    if people == 8:
        np.testing.assert_array_equal(result.estimator.training_.clusters, clusters)


def test_score_tests_keep_people_that_bootstrap_tests_leave_out():
    evidence = evidence_of(np.repeat(np.arange(60), 20))
    evidence = evidence._replace(parameters=SimpleNamespace(matrices=np.zeros((1, 1, 10, 2, 2))))
    thinned = fitting.thin_for_tests(evidence, 0, 500)
    assert len(thinned.clusters.unique()) == 60
    assert len(thinned.for_bootstrap().data.mask) < len(thinned.data.mask) == 1200
    assert len(thinned.for_bootstrap().clusters.unique()) == MIN_CLUSTERS
    assert thinned.for_bootstrap().bootstrap_rows is None
