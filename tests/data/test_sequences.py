"""Arrays become Sequences: class names survive, padding never counts, and wrong arrays are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeltide.data.sequences import Sequences

NAMES = st.one_of(
    st.integers(0, 200), st.text(max_size=3), st.booleans(), st.tuples(st.integers(), st.text(max_size=2))
)


def objects(rows):
    """An object array of shape (n, steps) whose entries may be tuples."""
    array = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        for k, value in enumerate(row):
            array[i, k] = value
    return array


def build(y, **options):
    return Sequences.from_arrays(np.ones((*np.shape(y)[:2], 3)), y, **options)


@pytest.mark.parametrize(
    ("y", "classes", "decoded"),
    [
        (objects([[("a", 1), ("b", 2)]]), (("a", 1), ("b", 2)), [("a", 1), ("b", 2)]),
        (objects([["wake", None, "deep"]]), ("deep", "wake"), ["wake", None, "deep"]),
        (np.array([["wake", "deep"]]), ("deep", "wake"), ["wake", "deep"]),
        (np.array([[3, -1, 1]]), (1, 3), [3, None, 1]),
        (np.array([[0.5, np.nan, 2.0]]), (0.5, 2.0), [0.5, None, 2.0]),
        (np.array([[3.0, -1.0, 1.0]]), (1.0, 3.0), [3.0, None, 1.0]),
        (np.array([[-1.0, 0.5]]), (-1.0, 0.5), [-1.0, 0.5]),
        (np.array([[True, False]]), (False, True), [True, False]),
        (objects([[7, "x", None]]), (7, "x"), [7, "x", None]),
        (objects([[7, None, -1, 2]]), (2, 7), [7, None, None, 2]),
    ],
)
def test_labels_of_any_type_survive_the_round_trip(y, classes, decoded):
    data = build(y)
    assert data.classes == classes
    assert [type(name) for name in data.classes] == [type(name) for name in classes]
    assert data.labels.dtype == np.int8
    assert data.decode(data.labels)[0, :, 0].tolist() == decoded


@given(st.lists(st.one_of(st.none(), NAMES), min_size=2, max_size=20))
def test_decode_undoes_the_coding(values):
    present = [value for value in values if value is not None]
    if len(set(present)) < 2:
        return
    data = build(objects([values]))
    assert data.decode(data.labels)[0, :, 0].tolist() == values


def test_classes_can_be_given_in_any_order():
    data = build(np.array([["b", "a"]]), classes=["b", "a", "never"])
    assert data.classes == ("b", "a", "never")
    assert data.labels[0, :, 0].tolist() == [0, 1]
    with pytest.raises(
        ValueError, match=r"y holds labels that are not among the known ones: 'c'. Known labels: 'b', 'a'"
    ):
        build(np.array([["b", "c"]]), classes=["b", "a"])


@pytest.mark.parametrize(
    ("classes", "match"),
    [
        (["a", "b", "a"], "The list of classes must hold every class once. Got 'a' more than once"),
        (["a", "a"], "every class once. Got 'a' more than once"),
        ([0, False, 1], "every class once. Got 0 more than once"),
        (["a"], "The list of classes must hold at least two classes. Got only 'a'"),
        ([], "at least two classes. Got none"),
        (range(128), "The list of classes must hold at most 127 classes. Got 128"),
        ([["a"], ["b"]], "The list of classes must hold hashable labels"),
    ],
)
def test_wrong_lists_of_classes_are_refused(classes, match):
    with pytest.raises(ValueError, match=match):
        build(np.array([["a", "b"]]), classes=classes)


def test_annotators_have_their_own_axis():
    y = np.array([[[0, 1, -1], [1, 1, 0]]])
    assert build(y).labels.tolist() == y.tolist()
    assert build(y[..., 0]).labels.shape == (1, 2, 1)


def test_padding_never_counts():
    X = np.ones((2, 3, 1))
    X[0, 2] = np.nan
    y = np.array([[0, 1, 99], [1, 0, 1]])
    data = Sequences.from_arrays(X, y, lengths=[2, 3], clock=[[1, 2, np.nan], [3, 4, 5]])
    assert data.classes == (0, 1)
    assert data.mask.tolist() == [[True, True, False], [True, True, True]]
    assert data.features[0, 2, 0] == 0
    assert data.labels[0, 2, 0] == -1
    assert np.isfinite(data.clock).all()


def test_the_clock_is_the_position_unless_given():
    y = np.array([[0, 1, 0], [1, 0, 1]])
    assert build(y).clock.tolist() == [[0, 0.5, 1]] * 2
    assert build(y, clock=[5, 6, 8]).clock.tolist() == [[5, 6, 8]] * 2
    assert build(y[:, :1]).clock.tolist() == [[0], [0]]


def test_the_users_arrays_stay_untouched():
    X, y = np.ones((1, 2, 1), dtype=np.float32), np.array([[0, 1]])
    with pytest.raises(ValueError, match="two classes"):
        Sequences.from_arrays(X, y, lengths=[1])
    assert (X == 1).all()


def test_take_keeps_rows_together():
    y = np.array([[0, 1], [1, 1], [0, 0]])
    data = Sequences.from_arrays(np.arange(6).reshape(3, 2, 1), y, ids=["a", "b", "c"], lengths=[2, 1, 2])
    for rows in ([2, 0], np.array([True, False, True])):
        taken = data.take(rows)
        index = [2, 0] if isinstance(rows, list) else [0, 2]
        assert len(taken) == 2
        assert taken.ids == tuple("abc"[i] for i in index)
        assert taken.classes == data.classes
        for field in ("features", "labels", "lengths", "clock"):
            np.testing.assert_array_equal(getattr(taken, field), getattr(data, field)[index])
        assert taken.times is None
        assert taken.clean_labels is None


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (np.full((1, 3), -1), "no label at all"),
        (objects([[None, None]]), "no label at all"),
        (np.array([[np.nan, np.nan]]), "no label at all"),
        (np.array([[1, -1, 1]]), "at least two classes. Got only 1"),
        (np.arange(128)[None], "at most 127 classes. Got 128"),
        (objects([[["a"], ["b"]]]), "hashable"),
    ],
)
def test_labels_that_teach_nothing_are_refused(y, match):
    with pytest.raises(ValueError, match=match):
        build(y)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"X": np.ones((2, 3))}, "X must have shape"),
        ({"X": [["a"]]}, "X must be numbers"),
        ({"X": np.ones((2, 0, 1))}, "at least one sequence"),
        ({"X": np.full((2, 3, 1), np.nan)}, "X must be finite"),
        ({"X": np.full((2, 3, 1), 1e300)}, "X must be finite"),
        ({"y": np.zeros((2, 4))}, r"y must have shape \(2, 3\)"),
        ({"y": np.zeros(2)}, "y must have shape"),
        ({"lengths": [3, 4]}, "lengths must lie between 1 and 3"),
        ({"lengths": [0, 3]}, "lengths must lie between 1 and 3"),
        ({"lengths": [3]}, "lengths must be 2 whole numbers"),
        ({"lengths": [1.5, 2.0]}, "lengths must be 2 whole numbers"),
        ({"clock": [0, np.nan, 1]}, "clock must be finite"),
        ({"clock": [0, 1]}, "clock must have shape"),
        ({"clock": ["a", "b", "c"]}, "clock must be numbers"),
        ({"ids": ["a"]}, "ids must be 2 names"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_wrong_arrays_are_refused(changes, match):
    arrays = {"X": np.ones((2, 3, 1)), "y": np.array([[0, 1, 0], [1, 0, 1]]), **changes}
    with pytest.raises(ValueError, match=match):
        Sequences.from_arrays(arrays.pop("X"), arrays.pop("y"), **arrays)
