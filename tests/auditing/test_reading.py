"""Tables of every shape become the arrays of an audit, and results find their way back to the rows."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

from auditing.lines import lines_of, of_lines
from auditing.test_fuzz import assert_whole
from labeltide import UnanswerableError
from labeltide.auditing.findings import say_files
from labeltide.auditing.reading import read_new_table
from labeltide.data.studies import simulate_study
from labeltide_bench.tables import read_audit_table

LONG = {
    "person": ["p", "p", "p", "q", "q"],
    "time": [1, 0, 0, 0, 1],
    "rater": ["ann", "bob", "ann", "bob", None],
    "label": ["x", "y", "x", "y", None],
    "v": [2.0, 1, 1, 3, 4],
}


def test_rows_of_several_annotators_become_an_axis():
    audit = read_audit_table(pa.table(LONG))
    assert audit.annotator_names == ("ann", "bob")
    assert audit.labels.tolist() == [[[0, 1], [0, -1]], [[-1, 1], [-1, -1]]]
    assert audit.lengths.tolist() == [2, 2]
    assert lines_of(audit).to_pydict() == {
        "row": [0, 1, 2, 3, 4],
        "sequence": ["p", "p", "p", "q", "q"],
        "time": ["1", "0", "0", "0", "1"],
        "annotator": ["ann", "bob", "ann", "bob", None],
        "clock": [1.0, 0.0, 0.0, 0.0, 1.0],
        "recorded": ["x", "y", "x", "y", None],
    }
    assert of_lines(audit, np.arange(0.0, 8.0, 2).reshape(2, 2)).tolist() == [2, 0, 0, 4, 6]
    assert audit.first_lines().tolist() == [1, 0, 3, 4]


def test_a_label_of_an_annotator_without_a_name_is_kept():
    audit = read_audit_table(pa.table({**LONG, "label": ["x", "y", "x", "y", "x"]}))
    assert audit.annotator_names == ("(not named)", "ann", "bob")
    assert lines_of(audit)["recorded"].to_pylist() == ["x", "y", "x", "y", "x"]


def test_columns_of_several_annotators_become_an_axis():
    wide = {"person": ["p", "p"], "time": [1, 0], "a": [1, None], "b": [2, 1], "v": [0.5, 0.1]}
    audit = read_audit_table(pa.table(wide), label="a,b")
    assert audit.annotator_names == ("a", "b")
    assert audit.class_names == ("1", "2")
    assert audit.labels.tolist() == [[[-1, 0], [0, 1]]]
    lines = lines_of(audit)
    assert lines["row"].to_pylist() == [0, 0, 1, 1]
    assert lines["annotator"].to_pylist() == ["a", "b", "a", "b"]
    assert lines["recorded"].to_pylist() == ["1", "2", None, "1"]
    assert audit.columns["label"] == "a,b"


def test_a_label_in_two_windows_counts_once():
    n = 23
    rows = {"person": ["p"] * n, "time": range(n), "label": ["x", "y", "z"] * 7 + ["x"] * 2, "v": np.arange(n) % 5}
    audit = read_audit_table(pa.table(rows), window=8)
    assert_whole(audit)
    assert audit.index.shape[0] > 1
    assert (audit.labels >= 0).sum() > (audit.fit_labels >= 0).sum() == n
    for label in range(3):
        assert (audit.fit_labels == label).sum() == rows["label"].count("xyz"[label])


def test_trusted_labels_are_read_beside_the_recorded_ones():
    rows = {**LONG, "checked": [None, "x", None, "x", None]}
    audit = read_audit_table(pa.table(rows), trusted="checked")
    assert audit.trusted.tolist() == [[0, -1], [0, -1]]
    assert audit.fit_trusted.tolist() == audit.trusted.tolist()
    assert "Trusted: 2 labels in 'checked'." in audit.messages
    for cells, match in (
        (["x", "y", "x", "x", "x"], r"must agree among annotators"),
        (["w", None, None, None, None], r"not among the known ones: 'w'"),
        ([None] * 5, r"must hold some labels"),
    ):
        with pytest.raises(ValueError, match=match):
            read_audit_table(pa.table({**rows, "checked": cells}), trusted="checked")


def test_without_times_steps_follow_the_rows():
    rows = {"person": ["p", "q", "p"], "label": ["x", "y", "y"], "v": [1, 2, 3]}
    audit = read_audit_table(pa.table(rows))
    assert audit.labels[..., 0].tolist() == [[0, 1], [1, -1]]
    assert "No column of times was found, so steps follow the order of the rows." in audit.messages


def test_several_columns_can_name_a_sequence():
    rows = {"person": [1, 1, 2], "night": ["a", "b", "a"], "time": [0, 0, 0], "label": ["x", "y", "x"], "v": [1, 2, 3]}
    audit = read_audit_table(pa.table(rows), sequence="person,night")
    assert audit.sequence_names == ("1 / a", "1 / b", "2 / a")
    assert audit.ids.to_pylist() == ["1 / a", "1 / b", "2 / a"]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"label": ["x"] * 5}, r"label column 'label' must hold at least two classes"),
        ({"label": [None] * 5}, r"label column 'label' must hold labels. Every row is empty"),
        ({"label": [" ", "x", "x", "x", ""]}, r"must hold at least two classes. Got only 'x'"),
        ({name: [] for name in LONG}, r"at least one row"),
    ],
)
def test_tables_that_cannot_answer_say_why(changes, match):
    with pytest.raises(UnanswerableError, match=match):
        read_audit_table(pa.table({**LONG, **changes}))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"rater": ["ann"] * 5}, r"sequence, time and annotator may occur once.* row 2. Drop the repeats"),
        ({"person": [None] * 5}, r"sequence column 'person' .*null"),
        ({"time": [None, 0, 0, 0, 1]}, r"time column 'time' .* null in row 0"),
        ({"rater": [f"r{k}" for k in range(5)]}, r"at most 3 annotators. Got 5"),
    ],
)
def test_broken_tables_are_refused(changes, match, monkeypatch):
    monkeypatch.setattr("labeltide.tables.rows.MAX_ANNOTATORS", 3)
    with pytest.raises(ValueError, match=match):
        read_audit_table(pa.table({**LONG, **changes}), sequence="person")


def test_dates_that_repeat_ask_for_the_time_of_day():
    rows = {
        "person": ["a"] * 4,
        "date": ["20.03.2024"] * 2 + ["21.03.2024"] * 2,
        "label": list("xyxy"),
        "v": [1, 2, 3, 4],
    }
    with pytest.raises(ValueError, match=r"'date' holds dates alone: put the date and the time of day into one column"):
        read_audit_table(pa.table(rows), time="date")


def test_times_that_repeat_without_a_sequence_ask_for_one():
    rows = {"time": [0, 0], "label": ["x", "y"], "v": [1, 2]}
    with pytest.raises(ValueError, match=r"row 1. No column of persons.* \(--sequence COLUMN\). If several"):
        read_audit_table(pa.table(rows))


@pytest.fixture(scope="module")
def study():
    return simulate_study(people=2, days=2)


def test_every_library_and_file_gives_the_same_audit(study, tmp_path):
    expected = read_audit_table(study, clock="hour_of_day")
    parquet.write_table(study, tmp_path / "s.parquet")
    csv.write_csv(study, tmp_path / "s.csv")
    feather.write_feather(study, tmp_path / "s.feather")
    paths = [tmp_path / name for name in ("s.parquet", "s.csv", "s.feather")]
    for kind in (*paths, study.to_pandas(), pl.from_arrow(study), pl.from_arrow(study).lazy(), study.to_batches()[0]):
        audit = read_audit_table(
            pa.Table.from_batches([kind]) if isinstance(kind, pa.RecordBatch) else kind, clock="hour_of_day"
        )
        assert lines_of(audit).equals(lines_of(expected))
        np.testing.assert_allclose(audit.features, expected.features, atol=1e-5)
        assert audit.messages == expected.messages


def test_the_order_of_rows_never_matters(study):
    order = np.random.default_rng(0).permutation(len(study))
    expected, audit = read_audit_table(study), read_audit_table(study.take(order))
    assert lines_of(audit).drop_columns(["row"]).equals(lines_of(expected).drop_columns(["row"]).take(order))
    np.testing.assert_allclose(
        of_lines(audit, audit.features),
        of_lines(expected, expected.features)[order],
        atol=1e-5,
    )


def test_only_named_columns_are_loaded(study):
    frame = study.to_pandas().assign(odd=[object()] * len(study))
    options = {"sequence": "person", "time": "time", "label": "label", "features": "light"}
    assert read_audit_table(frame, **options).feature_names == ("light",)
    assert read_audit_table(frame).n_rows == len(study)


def test_names_that_are_no_texts_are_refused():
    with pytest.raises(ValueError, match=r"named by a text. Got '0' and '1'. Rename"):
        read_audit_table(pd.DataFrame([[1, 2]]))


# Another table for a trained model


def test_the_same_table_without_labels_gives_the_same_features(study):
    audit = read_audit_table(study)
    bare = study.drop_columns(["label", "true_label"])
    new = read_new_table(bare, encoders=audit.encoders, class_names=audit.class_names, window=audit.window)
    assert_whole(new)
    np.testing.assert_array_equal(new.features, audit.features)
    assert (new.labels == -1).all()
    assert lines_of(new)["recorded"].null_count == len(study)
    assert (
        lines_of(new)
        .drop_columns(["recorded"])
        .equals(lines_of(audit).drop_columns(["recorded", "clock"]).add_column(4, "clock", lines_of(audit)["clock"]))
    )


def test_another_table_is_scaled_as_the_first_and_its_new_levels_are_gaps():
    rows = {"person": ["p"] * 4, "t": range(4), "label": ["x", "y"] * 2}
    first = {**rows, "v": [1.0, 2, 3, 4], "where": ["a", "b", "c", "a"], "on": [True, False, True, True]}
    audit = read_audit_table(pa.table(first))
    other = {"person": ["q", "q"], "t": [0, 1], "v": ["4", None], "where": ["b", "moon"], "on": [None, False]}
    new = read_new_table(pa.table(other), encoders=audit.encoders, class_names=("x", "y"), window=9)
    assert new.feature_names == audit.feature_names
    np.testing.assert_allclose(new.signal(0), [4, 4], rtol=1e-6)
    assert new.features[0, :, 1:].tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]
    with pytest.raises(ValueError, match=r"columns on which the model was trained. It has no 'v'"):
        read_new_table(
            pa.table({name: other[name] for name in ("person", "t", "where", "on")}),
            encoders=audit.encoders,
            class_names=("x", "y"),
            window=9,
        )
    with pytest.raises(ValueError, match=r"feature column 'v' cannot be used: text"):
        read_new_table(
            pa.table({**other, "v": ["far", "near"]}), encoders=audit.encoders, class_names=("x", "y"), window=9
        )


REAL = [
    ("uci_har/train.parquet", {}, 6, 1, 265),
    ("lund2013/lund2013_two_coders_500hz.parquet", {"label": "label_MN,label_RA"}, 6, 2, 7),
    ("dod_scorers/dod_hypnograms.parquet", {}, 5, 5, 8),
    ("neonatal_seizure/annotations_1s.parquet", {}, 2, 3, 1),
    ("sleep_edf/sleep_edf_sc_20nights_30s.parquet", {}, 5, 1, 14),
    ("chest_accel/chest_accel_52hz.parquet", {}, 8, 1, 3),
]


@pytest.mark.parametrize(("name", "options", "classes", "annotators", "features"), REAL)
def test_real_recordings_are_read_by_their_names(name, options, classes, annotators, features):
    folder = os.environ.get("LABELTIDE_DATA")
    if not folder or not Path(folder, name).exists():
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    audit = read_audit_table(Path(folder, name), **options)
    assert len(audit.class_names) == classes
    assert audit.labels.shape[2] == annotators
    assert audit.features.shape[2] == features
    assert np.isfinite(audit.features).all()
    assert (of_lines(audit, audit.index) == audit.line_step).all()


def test_files_that_are_one_sequence_are_told_how_to_be_several():
    columns = {"time": range(12), "label": ["x", "y"] * 6, "v": [0.5, 1.0, 2.0] * 4}
    alone, named = (read_audit_table(pa.table(more | columns)) for more in ({}, {"person": ["a", "b", "c"] * 4}))
    assert "pass that column as sequence" in say_files("nights/*.parquet", alone)[0]
    assert say_files("nights/*.parquet", named) == say_files("night.parquet", alone) == []
