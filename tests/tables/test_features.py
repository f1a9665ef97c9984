"""Columns of every kind become finite features, and what was done to them is said."""

import datetime
import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide import UnanswerableError
from labeltide.auditing.reading import read_new_table
from labeltide.tables.features import encoder_from_json, fill_forward
from labeltide.tables.roles import Request
from labeltide_bench.tables import read_audit_table


def read(n=6, **columns):
    """Read a table of two sequences, half the rows each, with these columns as features."""
    rows = {"person": ["a"] * (n // 2) + ["b"] * (n - n // 2), "t": range(n), "label": ["x", "y"] * (n // 2)}
    return read_audit_table(pa.table({**rows, **columns}))


def feature(audit, name):
    return audit.from_steps(audit.features)[:, audit.feature_names.index(name)]


def test_numbers_become_z_scores():
    values = [1.0, 2, 3, 4, 5, 60]
    audit = read(v=values)
    np.testing.assert_allclose(feature(audit, "v"), (np.array(values) - 12.5) / np.std(values), rtol=1e-6)
    np.testing.assert_allclose(audit.signal(0), values, rtol=1e-5)
    assert "Features are 'v', centred and scaled over the whole table (z-scores)." in audit.messages


@settings(max_examples=100, deadline=None)
@given(cells=st.lists(st.none() | st.floats(-5, 5), min_size=12, max_size=12))
def test_gaps_are_filled_forward_as_a_slow_oracle_does(cells):
    first = np.repeat([0, 4, 5], [4, 1, 7])
    values = np.array([np.nan if cell is None else cell for cell in cells])
    expected, last = [], None
    for step, value in enumerate(values):
        last = None if step == first[step] else last
        last = last if np.isnan(value) else value
        expected.append(-9.0 if last is None else last)
    assert fill_forward(values, first, -9.0).tolist() == expected


@pytest.mark.parametrize("gap", [None, float("nan"), float("inf"), 1e300])
def test_gaps_are_filled_within_the_sequence_and_marked(gap):
    audit = read(v=[1.0, gap, 3.0, gap, 5.0, gap])
    assert audit.feature_names == ("v", "v (missing)")
    np.testing.assert_allclose(
        audit.signal(0), [1, 1, 3, 3, 5, 5], rtol=1e-5
    )  # the median, 3, where nothing came before
    assert feature(audit, "v (missing)").tolist() == [0, 1, 0, 1, 0, 1]
    assert any(sentence.startswith("Gaps in 'v' were filled") for sentence in audit.messages)


def test_levels_become_features_of_their_own():
    audit = read(where=["bed", "sofa", None, "bed", "floor", "sofa"], flag=[True, False, True, True, False, True])
    assert audit.feature_names == ("where=bed", "where=floor", "where=sofa", "flag=True")
    assert feature(audit, "where=sofa").tolist() == [0, 1, 0, 0, 0, 1]
    assert feature(audit, "flag=True").tolist() == [1, 0, 1, 1, 0, 1]
    assert any("'where' and 'flag' became a feature of its own" in sentence for sentence in audit.messages)


def test_values_that_were_not_there_in_training_are_named_in_a_warning():
    audit = read(where=["bed", "sofa", None, "bed", "floor", "sofa"])
    table = pa.table({"where": ["bed", "roof", None, "yard", "floor", "roof"], "time": range(6)})
    with pytest.warns(UserWarning, match="'where' holds values that were not there in training: 'roof' and 'yard'"):
        again = read_new_table(table, audit.encoders, audit.class_names, audit.window, Request(time="time"))
    assert feature(again, "where=bed").tolist()[0] == 1


def test_what_cannot_be_a_feature_is_left_out_and_said():
    n = 60
    audit = read(
        n,
        v=np.arange(n) % 7.0,
        same=[1] * n,
        empty=[None] * n,
        notes=[f"note {k}" for k in range(n)],
        twin=["left", "right"] * (n // 2),
        begun=[datetime.datetime(2026, 1, 1)] * n,
    )
    assert audit.feature_names == ("v",)
    messages = " ".join(audit.messages)
    assert "'same' and 'empty' were left out of the features: a constant column" in messages
    assert "'notes' was left out of the features: text with more than 20 different values (here 60)" in messages
    assert "'twin' was left out of the features: values that follow from the label" in messages


def test_a_feature_that_nearly_follows_the_label_is_kept_and_named():
    audit = read(60, code=[1, 2] * 28 + [2, 1] * 2, wet=[0, 1, 1] * 20)
    assert audit.feature_names == ("code", "wet")
    assert "The label nearly follows from 'code'. If this holds labels" in " ".join(audit.messages)


def test_codes_of_several_classes_and_one_column_for_each_are_left_out_and_said():
    labels = np.random.default_rng(0).permutation(np.repeat(["lie", "stand", "graze"], 40))
    kim = np.unique(labels, return_inverse=True)[1] * 10
    kim[:9] = 20
    rows = {"label": labels, "kim": kim, "is_lying": (labels == "lie") * 1, "wet": np.arange(120) % 3}
    audit = read(120, **rows)
    assert audit.feature_names == ("wet",)
    messages = " ".join(audit.messages)
    assert "'kim' was left out of the features: one value for nearly every class" in messages
    assert "'is_lying' was left out of the features: values that follow from the label" in messages
    named = read_audit_table(pa.table({**rows, "t": range(120)}), features="kim,wet")
    assert named.feature_names == ("kim", "wet")


def test_a_column_of_numbers_with_a_stray_text_is_read_as_numbers():
    cells = [str(k) for k in range(60)]
    cells[7] = "n.a."
    audit = read(60, v=cells)
    assert audit.feature_names == ("v", "v (missing)")
    np.testing.assert_allclose(audit.signal(0)[5:10], [5, 6, 6, 8, 9], rtol=1e-4)


def test_one_artefact_does_not_decide_the_scale():
    values = np.sin(np.arange(2000.0))
    clean = feature(read(2000, v=values), "v")
    values[500] = 7e5
    spoilt = feature(read(2000, v=values), "v")
    np.testing.assert_allclose(np.delete(spoilt, 500), np.delete(clean, 500), atol=0.02)
    assert np.isfinite(spoilt).all()


@pytest.mark.parametrize("values", [[1e15, 1e15 + 1, 1e15 + 2] * 2, [1e-300, 2e-300, 0] * 2, [1e30, -1e30, 0] * 2])
def test_extreme_numbers_stay_finite(values):
    assert np.isfinite(read(v=values).features).all()


def test_numbers_near_zero_keep_their_scale():
    plain = np.random.default_rng(0).normal(size=50)
    np.testing.assert_allclose(feature(read(50, v=plain * 1e-300), "v"), feature(read(50, v=plain), "v"), rtol=1e-5)


def test_numbers_beyond_the_largest_are_gaps_and_that_is_said():
    audit = read(v=[1e31, 1.0, 2.0, 3.0, 1.0, 2.0], w=[1.0, 2.0, 4.0, 1.0, 2.0, 4.0])
    assert "Values of 'v' were taken for gaps where beyond 1e+30." in audit.messages
    audit = read(v=[1e31, 2e31, 3e31] * 2, w=[1.0, 2.0, 4.0, 1.0, 2.0, 4.0])
    assert any("'v' was left out of the features: all of its values are " in sentence for sentence in audit.messages)


def test_rows_of_one_step_must_agree_on_their_features():
    rows = {"s": [0, 0, 0], "t": [0, 0, 1], "who": ["a", "b", "a"], "y": ["x", "z", "x"]}
    options = {"sequence": "s", "time": "t", "label": "y", "annotator": "who"}
    audit = read_audit_table(pa.table({**rows, "v": [1.0, None, 2.0], "sure": [1, 2, 3]}), **options)
    assert audit.feature_names == ("v",)
    assert any("'sure' was left out of the features: it differs" in sentence for sentence in audit.messages)
    with pytest.raises(ValueError, match=r"feature column 'sure' cannot be used: it differs among .*row 0"):
        read_audit_table(pa.table({**rows, "sure": [1, 2, 3]}), **options, features="sure")


def test_named_features_must_be_usable():
    rows = {"s": [0] * 30, "t": range(30), "y": ["a", "b"] * 15, "notes": [f"n{k}" for k in range(30)]}
    with pytest.raises(ValueError, match=r"feature column 'notes' cannot be used: text with more than 20"):
        read_audit_table(pa.table(rows), sequence="s", time="t", label="y", features="notes")


def test_without_features_one_annotator_cannot_be_audited():
    rows = {"person": ["a"] * 4, "t": range(4), "label": ["x", "y"] * 2}
    with pytest.raises(UnanswerableError, match=r"With one annotator, an audit needs features"):
        read_audit_table(pa.table(rows))
    rows["scorer_1"], rows["scorer_2"] = rows.pop("label"), ["x"] * 4
    audit = read_audit_table(pa.table(rows))
    assert audit.feature_names == ("position in the sequence",)
    np.testing.assert_allclose(audit.features[0, :, 0], [-1, -1 / 3, 1 / 3, 1], rtol=1e-6)


def test_encoders_survive_json():
    audit = read(v=[1.0, None, 3, 4, 5, 6], where=["a", "b", "a", "a", "b", "b"])
    again = [encoder_from_json(json.loads(json.dumps(asdict(encoder)))) for encoder in audit.encoders]
    assert tuple(again) == audit.encoders
