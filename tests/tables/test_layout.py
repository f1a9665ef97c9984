"""Rows in any order become sequences, windows and annotators, and what cannot is refused in a sentence."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from labeltide.data.sequences import Sequences

ROLES = {"sequence": "night", "time": "t", "label": "stage", "features": ["a", "b"]}


def small_table(lengths=(5, 3, 4), seed=0):
    """A plain dict of columns: three nights of unequal length, with a gap in the labels."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    stage = [str(value) for value in rng.choice(["deep", "light", "wake"], n)]
    stage[:4] = ["deep", None, "wake", "light"]
    return {
        "night": [f"n{i}" for i, length in enumerate(lengths) for _ in range(length)],
        "t": [float(k) for length in lengths for k in range(length)],
        "stage": stage,
        "a": rng.normal(size=n).tolist(),
        "b": rng.integers(0, 9, n).tolist(),
        "hour": rng.uniform(0, 24, n).tolist(),
    }


def with_column(name, values):
    return {**small_table(), name: values}


def assert_same(one: Sequences, other: Sequences):
    assert (one.ids, one.classes, one.annotators) == (other.ids, other.classes, other.annotators)
    assert [type(name) for name in one.ids + one.classes] == [type(name) for name in other.ids + other.classes]
    for field in ("features", "labels", "lengths", "clock", "times", "clean_labels"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)


def in_order_of_ids(data: Sequences) -> Sequences:
    return data.take(np.argsort(np.array(data.ids), kind="stable"))


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(range(12)), window=st.sampled_from([None, 1, 2, 3]))
def test_the_order_of_rows_never_matters(order, window):
    frame = pd.DataFrame(small_table())
    wanted = Sequences.from_table(frame, **ROLES, clock="hour", zscore="sequence", window=window)
    shuffled = frame.iloc[list(order)]
    got = Sequences.from_table(shuffled, **ROLES, clock="hour", zscore="sequence", window=window)
    assert list(dict.fromkeys(got.ids)) == list(shuffled["night"].unique())  # order of first appearance
    assert_same(in_order_of_ids(got), in_order_of_ids(wanted))


# What comes out


def test_a_small_table_comes_out_as_written():
    columns = {"who": [7, 7, 9], "t": [2, 1, 1], "y": ["x", "z", "x"], "v": [2.0, 1.0, 5.0]}
    data = Sequences.from_table(pd.DataFrame(columns), sequence="who", time="t", label="y", features="v")
    assert data.ids == (7, 9)
    assert data.classes == ("x", "z")
    assert data.features.dtype == np.float32
    assert data.labels.dtype == np.int8
    assert data.clock.dtype == np.float64
    assert data.features[..., 0].tolist() == [[1, 2], [5, 0]]
    assert data.labels[..., 0].tolist() == [[1, 0], [0, -1]]
    assert data.lengths.tolist() == [2, 1]
    assert data.clock.tolist() == [[0, 1], [0, 1]]
    assert data.times.tolist() == [[1, 2], [1, 1]]
    assert data.clean_labels is None
    assert data.annotators is None


def test_several_sequence_columns_give_tuples_as_ids():
    frame = pl.DataFrame({"who": ["b", "b", "a", "a"], "day": [2, 1, 1, 1], "t": [0, 0, 0, 1], "y": [0, 1, 0, 1]})
    data = Sequences.from_table(frame, sequence=["who", "day"], time="t", label="y", features=["t"])
    assert data.ids == (("b", 2), ("b", 1), ("a", 1))
    alone = Sequences.from_table(frame[2:], sequence=["who"], time="t", label="y", features=["t"])
    assert alone.ids == (("a",),)


def test_annotators_become_an_axis_in_sorted_order():
    rows = [
        ("s", 0, "zoe", "x", 1.0),
        ("s", 0, "ann", "y", 1.0),
        ("s", 1, "ann", "x", 2.0),
        ("r", 0, "bob", "y", 3.0),
    ]
    frame = pl.DataFrame(rows, schema=["s", "t", "who", "y", "v"], orient="row")
    data = Sequences.from_table(frame, sequence="s", time="t", label="y", features="v", annotator="who")
    assert data.annotators == ("ann", "bob", "zoe")
    assert data.take([1]).annotators == data.annotators
    assert data.labels.tolist() == [[[1, -1, 0], [0, -1, -1]], [[-1, 1, -1], [-1, -1, -1]]]
    assert data.features[..., 0].tolist() == [[1, 2], [3, 0]]
    assert data.lengths.tolist() == [2, 1]


def test_annotators_never_weigh_in_the_zscore():
    one = {"s": [0, 0, 0], "t": [0, 1, 2], "who": [1, 1, 1], "y": [0, 1, 0], "v": [1.0, 5.0, 9.0]}
    two = {name: [*values, values[0]] for name, values in one.items()} | {"who": [1, 1, 1, 2]}
    roles = {"sequence": "s", "time": "t", "label": "y", "features": "v", "annotator": "who", "zscore": "s"}
    expected = Sequences.from_table(pd.DataFrame(one), **roles).features
    np.testing.assert_array_equal(Sequences.from_table(pd.DataFrame(two), **roles).features, expected)


def test_clean_labels_share_the_classes():
    columns = {"s": [0, 0, 1], "t": [0, 1, 0], "y": ["a", "b", None], "truth": ["a", "c", None]}
    data = Sequences.from_table(pl.DataFrame(columns), sequence="s", time="t", label="y", features="t", clean="truth")
    assert data.classes == ("a", "b", "c")
    assert data.clean_labels.dtype == np.int8
    assert data.clean_labels.tolist() == [[0, 2], [-1, -1]]


# Z-scores


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=20),
    groups=st.lists(st.sampled_from("xyz"), min_size=20, max_size=20),
)
def test_zscores_equal_a_slow_oracle(values, groups):
    groups = groups[: len(values)]
    frame = pd.DataFrame({"s": 0, "t": range(len(values)), "y": [0, 1] + [0] * (len(values) - 2)})
    frame = frame.assign(g=groups, v=values)
    data = Sequences.from_table(frame, sequence="s", time="t", label="y", features="v", zscore="g")
    for group in set(groups):
        own = np.array([value for value, g in zip(values, groups, strict=True) if g == group])
        got = data.features[0, np.array(groups) == group, 0]
        if np.ptp(own) == 0:
            assert (got == 0).all()
        elif own.std() > 1e-3:
            np.testing.assert_allclose(got, (own - own.mean()) / own.std(), rtol=1e-4, atol=1e-4)


def test_a_constant_feature_becomes_zero():
    frame = pd.DataFrame({"s": [0] * 7, "t": range(7), "y": [0, 1] + [0] * 5, "v": [0.1] * 7})
    data = Sequences.from_table(frame, sequence="s", time="t", label="y", features="v", zscore="sequence")
    assert (data.features == 0).all()


def test_zscores_see_the_rows_that_windows_leave_out():
    frame = pd.DataFrame({"s": [0] * 3, "t": range(3), "y": [0, 1, 0], "v": [0.0, 0.0, 3.0]})
    roles = {"sequence": "s", "time": "t", "label": "y", "features": "v", "zscore": "s"}
    data = Sequences.from_table(frame, **roles, window=2, keep_tail=False)
    np.testing.assert_allclose(data.features[0, :, 0], [-(0.5**0.5)] * 2, rtol=1e-6)


# Windows


def windows_of(n_rows, **options):
    frame = pd.DataFrame({"s": 0, "t": range(n_rows), "y": [0, 1] * (n_rows // 2) + [0] * (n_rows % 2)})
    data = Sequences.from_table(frame, sequence="s", time="t", label="y", features="t", **options)
    return [times[:length].tolist() for times, length in zip(data.times, data.lengths, strict=True)]


@settings(max_examples=60, deadline=None)
@given(n_rows=st.integers(2, 40), window=st.integers(1, 12), offset=st.integers(1, 5))
def test_windows_after_an_offset_follow_the_paper(n_rows, window, offset):
    rows = list(range(n_rows))
    expected = [rows[i : i + window] for i in range(offset, n_rows - window, window)]
    if expected:
        assert windows_of(n_rows, window=window, offset=offset, keep_tail=False) == expected
    else:
        with pytest.raises(ValueError, match="No sequence is long enough"):
            windows_of(n_rows, window=window, offset=offset, keep_tail=False)


@settings(max_examples=60, deadline=None)
@given(n_rows=st.integers(2, 40), window=st.integers(1, 45), offset=st.integers(0, 1))
def test_windows_with_their_tail_leave_no_row_out(n_rows, window, offset):
    found = windows_of(n_rows, window=window, offset=offset)
    assert [row for own in found for row in own] == list(range(offset, n_rows))
    assert all(len(own) == window for own in found[:-1])


def test_without_offset_every_full_window_is_kept():
    assert windows_of(6, window=3, keep_tail=False) == [[0, 1, 2], [3, 4, 5]]
    assert windows_of(5, window=3, keep_tail=False) == [[0, 1, 2]]
    assert windows_of(5, offset=2) == [[2, 3, 4]]


def test_a_window_is_the_padded_number_of_steps():
    frame = pd.DataFrame(small_table())
    data = Sequences.from_table(frame, **ROLES, window=10)
    assert data.features.shape == (3, 10, 2)
    np.testing.assert_allclose(data.clock[0], np.linspace(0, 1, 10))
    assert (data.features[~data.mask] == 0).all()
    assert (data.labels[~data.mask] == -1).all()
    assert data.times[1].tolist() == [0, 1] + [2] * 8


# Refusals


def assert_refused(columns, match, **changes):
    for kind in (pd.DataFrame, pl.DataFrame, pa.table):
        with pytest.raises(ValueError, match=match):
            Sequences.from_table(kind(columns), **{**ROLES, **changes})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"window": 0}, "window must be a whole number at least 1"),
        ({"window": 2.5}, "window must be a whole number"),
        ({"offset": -1}, "offset must be a whole number at least 0"),
        ({"window": 6, "keep_tail": False}, "longest has 5 steps"),
        ({"offset": 5}, "longest has 5 steps"),
    ],
)
def test_impossible_windows_are_refused(changes, match):
    assert_refused(small_table(), match, **changes)


def test_too_many_classes_are_refused():
    columns = {"night": [0] * 200, "t": range(200), "stage": range(200), "a": range(200), "b": range(200)}
    with pytest.raises(ValueError, match=r"label column 'stage' must hold at most 127 classes. Got 200"):
        Sequences.from_table(pd.DataFrame(columns), **ROLES)


def test_an_empty_table_is_refused():
    assert_refused({name: [] for name in small_table()}, "at least one row")


@pytest.mark.parametrize("name", ["v", "clock", "truth"])
def test_rows_of_one_step_must_agree(name):
    columns = {"s": [0, 0, 0], "t": [0, 0, 1], "who": [1, 2, 1], "y": [0, 1, 0], "v": [1, 1, 1]}
    columns |= {"clock": [1, 1, 1], "truth": [0, 0, 1]}
    columns[name] = [0, 1, 0]
    roles = {"sequence": "s", "time": "t", "label": "y", "features": "v", "annotator": "who"}
    with pytest.raises(ValueError, match=rf"Column '{name}' must agree .* differs in row 1"):
        Sequences.from_table(pd.DataFrame(columns), **roles, clock="clock", clean="truth")


def test_an_annotator_who_labels_a_step_twice_is_refused():
    columns = {"s": [0, 0, 0], "t": [0, 0, 1], "who": [1, 1, 1], "y": [0, 1, 0]}
    with pytest.raises(ValueError, match=r"sequence, time and annotator may occur once. .* in row 1. Drop"):
        Sequences.from_table(pl.DataFrame(columns), sequence="s", time="t", label="y", features="t", annotator="who")


# Real recordings


@pytest.mark.parametrize(("part", "n_windows"), [("train", 137), ("test", 55)])
def test_the_paper_s_windows_of_human_activity_come_out(part, n_windows):
    folder = os.environ.get("LABELTIDE_DATA")
    if not folder:
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    names = [f"f{i:03d}" for i in range(2, 11)]
    table = parquet.read_table(Path(folder, "uci_har", f"{part}.parquet"))
    table = table.append_column("row", pa.array(np.arange(len(table))))
    data = Sequences.from_table(
        table,
        sequence="subject",
        time="row",
        label="label",
        features=names,
        zscore="subject",
        window=50,
        offset=1,
        keep_tail=False,
    )
    assert data.features.shape == (n_windows, 50, 9)
    assert (data.lengths == 50).all()
