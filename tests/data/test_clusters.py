"""Rows of one cluster stay together, and parts are balanced; clusters of one row each are the rows themselves."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold

from labeltide.data.clusters import deal_units, draw_units, encode_clusters, splitting_units

NAMES = {
    "ints": [7, 3, 7, 5],
    "strings": ["b", "a", "b", "c"],
    "tuples": [("b", 1), ("a", 1), ("b", 1), ("a", 2)],
    "dates": [date(2026, 1, 2), date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)],
    "mixed": [1, "1", 1.0, (1,)],
    "array": np.array([7, 3, 7, 5]),
    "array of strings": np.array(["b", "a", "b", "c"]),
}


def study(seed: int, n: int = 60, n_clusters: int = 9) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Clusters of unequal size, of which one has no labels, and which rows hold labels."""
    generator = np.random.default_rng(seed)
    clusters = np.concatenate([np.arange(n_clusters), generator.integers(0, n_clusters, n - n_clusters)])
    labelled = (generator.random(n) < 0.7) & (clusters != n_clusters - 1)
    labelled[: n_clusters - 1] = True
    return clusters, labelled, generator


@pytest.mark.parametrize("kind", NAMES)
def test_clusters_of_any_hashable_type_are_numbered_as_they_appear(kind):
    codes = encode_clusters(NAMES[kind], 4)
    assert codes.dtype == np.int64
    assert codes.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("clusters", "match"),
    [
        (["a", "b"], r"clusters must be 4 names, one per sequence. Got shape \(2,\)"),
        (np.zeros((4, 2)), r"clusters must be 4 names, one per sequence. Got shape \(4, 2\)"),
        (5, "clusters must be 4 names"),
        (["a", None, "b", "c"], r"clusters must name one for every sequence. Sequence 1 has none"),
        ([1.0, 2.0, np.nan, 3.0], "Sequence 2 has none"),
        (np.array([1.0, 2.0, np.nan, 3.0]), "Sequence 2 has none"),
        ([["a"], ["a"], ["b"], ["b"]], "clusters must hold hashable names"),
    ],
)
def test_clusters_that_cannot_be_are_refused(clusters, match):
    with pytest.raises(ValueError, match=match):
        encode_clusters(clusters, 4)


def test_fewer_than_two_clusters_with_labels_leave_rows_as_units():
    labelled = np.array([True, True, False, False])
    np.testing.assert_array_equal(splitting_units(None, labelled), np.arange(4))
    np.testing.assert_array_equal(splitting_units(np.array([0, 0, 1, 1]), labelled), np.arange(4))
    np.testing.assert_array_equal(splitting_units(np.array([0, 1, 1, 1]), labelled), [0, 1, 1, 1])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [2, 4, 5])
def test_no_cluster_lies_in_two_parts_and_every_part_has_labels(seed, count):
    clusters, labelled, generator = study(seed)
    parts = deal_units(clusters, labelled, count, generator)
    for cluster in np.unique(clusters):
        assert len(np.unique(parts[clusters == cluster])) == 1
    assert set(parts[labelled]) == set(range(count))


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_as_balanced_as_those_of_groupkfold(seed):
    clusters, labelled, generator = study(seed)
    kept = np.flatnonzero(labelled)
    parts = np.bincount(deal_units(clusters[kept], labelled[kept], 5, generator))
    folds = [len(test) for _, test in GroupKFold(5).split(kept, groups=clusters[kept])]
    assert sorted(parts) == sorted(folds)


def test_clusters_of_one_size_are_dealt_by_the_seed():
    clusters, labelled = np.repeat(np.arange(10), 4), np.ones(40, bool)
    draws = [deal_units(clusters, labelled, 5, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    assert np.bincount(draws[2]).tolist() == [8] * 5


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.5, 0.9])
def test_whole_clusters_are_held_out_close_to_the_target(seed, fraction):
    clusters, labelled, generator = study(seed)
    target = round(fraction * labelled.sum())
    held = draw_units(clusters, labelled, target, generator)
    for cluster in np.unique(clusters):
        assert len(np.unique(held[clusters == cluster])) == 1
    assert (held & labelled).any()
    assert (~held & labelled).any()
    largest = np.bincount(clusters, labelled).max()
    assert abs((held & labelled).sum() - target) <= largest


@pytest.mark.parametrize("target", [1, 9, 19])
def test_of_two_clusters_one_is_held_out(target):
    clusters = np.repeat([0, 1], 10)
    assert draw_units(clusters, np.ones(20, bool), target, np.random.default_rng(0)).sum() == 10


@pytest.mark.parametrize("seed", range(10))
def test_clusters_of_one_row_each_are_the_rows(seed):
    """An oracle: rows in random order, dealt in turn, those without labels last."""
    labelled, rows = study(seed)[1], np.arange(60)
    generator = np.random.default_rng(seed)
    order = np.concatenate([generator.permutation(np.flatnonzero(kind)) for kind in (labelled, ~labelled)])
    expected = np.empty(60, dtype=np.int64)
    expected[order] = rows % 5
    np.testing.assert_array_equal(deal_units(rows, labelled, 5, np.random.default_rng(seed)), expected)
    held = np.isin(rows, np.random.default_rng(seed).permutation(np.flatnonzero(labelled))[:7])
    np.testing.assert_array_equal(draw_units(rows, labelled, 7, np.random.default_rng(seed)), held)


def test_whole_numbers_are_encoded_as_any_names():
    numbers = np.random.default_rng(0).integers(-5, 5, 200)
    assert np.array_equal(encode_clusters(numbers, 200), encode_clusters([str(number) for number in numbers], 200))
