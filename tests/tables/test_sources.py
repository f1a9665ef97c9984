import numpy as np
import pytest

from labeltide.data.clusters import Sources, check_names, find_sources, spread_labels

GROUPS = ["b", "a", "b", "c"]


def test_sources_are_annotators_in_the_sorted_groups():
    sources = find_sources(2, GROUPS, 4)
    assert sources == Sources(2, ("a", "b", "c"))
    assert sources.names == [(0, "a"), (0, "b"), (0, "c"), (1, "a"), (1, "b"), (1, "c")]
    assert Sources.of(sources.names) == sources
    assert find_sources(3, None, 4).names == [(0, None), (1, None), (2, None)]
    assert Sources.of([(0, None), (1, None)]) == Sources(2)
    assert find_sources(1, [2, "x"], 2).groups == (2, "x")  # cannot be sorted


def test_labels_stand_in_the_columns_of_their_own_group():
    sources, labels = find_sources(2, GROUPS, 4), np.arange(4 * 5 * 2).reshape(4, 5, 2)
    indices = sources.columns(GROUPS, 4)
    spread = spread_labels(labels, indices, 6)
    for row, group in enumerate(GROUPS):
        for annotator in range(2):
            own = sources.names.index((annotator, group))
            assert indices[row, annotator] == own == sources.column(annotator, group)
            np.testing.assert_array_equal(spread[row, :, own], labels[row, :, annotator])
    assert (spread >= 0).sum() == labels.size
    np.testing.assert_array_equal(spread_labels(labels[None], indices, 6)[0], spread)


def test_without_groups_every_annotator_keeps_the_own_column():
    labels = np.arange(24).reshape(2, 4, 3)
    np.testing.assert_array_equal(spread_labels(labels, Sources(3).columns(None, 2), 3), labels)
    assert Sources(3).column(None, None) is None
    assert Sources(3).column(2, None) == 2


@pytest.mark.parametrize("groups", [np.array([1, 2]), [1, 2], (np.int64(1), np.int64(2)), np.array([1, 2], object)])
def test_groups_become_plain_values(groups):
    assert [type(name) for name in check_names(groups, 2, "groups")] == [int, int]


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        ([1], "2 names, one per sequence"),
        (np.zeros((2, 1)), "2 names, one per sequence"),
        ([1.0, np.nan], "Sequence 1 has none"),
        ([None, 1], "Sequence 0 has none"),
        ([{}, 1], "hashable"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups, match):
    with pytest.raises(ValueError, match=match):
        check_names(groups, 2, "groups")
