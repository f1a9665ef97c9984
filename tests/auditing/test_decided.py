"""Settled labels become trusted ones of the next audit, and what is left out is said."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import labeltide as lt
from auditing.reviewed import decide
from auditing.tables import make_table
from labeltide.auditing.apply import read_decided, trust_decided
from labeltide.auditing.reading import read_audit_steps
from labeltide.tables.roles import Request

ROLES = {"sequence": "person", "time": "minute", "label": "label", "features": "signal"}
pytestmark = pytest.mark.usefixtures("quick_fit")


@pytest.fixture
def reviewed(tmp_path):
    """A table in a file, and the folder of its audit with decisions on rows 3 to 6."""
    path, folder = tmp_path / "study.csv", tmp_path / "old"
    csv.write_csv(make_table(), path)
    lt.audit(path, out=folder, **ROLES)
    decide(
        folder, [("Ada", 3, "walk", None), ("Ada", 4, None, None), ("Ada", 5, "walk", None), ("Ben", 5, "rest", None)]
    )
    return path, folder


def trusted_names(path, folder, table=None, **roles):
    table = str(path) if table is None else table
    steps = read_audit_steps(table, Request(**{**ROLES, **roles}))
    trusted, found = trust_decided(steps.rows, steps.class_names, steps.trusted, read_decided(folder), table)
    return {int(step): steps.class_names[trusted[step]] for step in np.flatnonzero(trusted >= 0)}, found


def test_settled_and_kept_labels_are_trusted_and_disputed_ones_are_left_out(reviewed):
    path, folder = reviewed
    recorded = make_table()["label"].to_pylist()
    names, found = trusted_names(path, folder)
    assert names == {3: "walk", 4: recorded[4]}
    assert found["used"] == 2
    assert found["disputed"] == 1
    expected = "Trusted: 2 labels that reviewers settled in 'old'. Left out: 1 on which reviewers disagree."
    assert found["sentence"] == expected


def test_an_audit_uses_them_and_tells_how_many(reviewed, tmp_path):
    path, folder = reviewed
    result = lt.audit(path, decisions=folder, out=tmp_path / "new", **ROLES)
    assert result.summary["decisions"]["used"] == 2
    assert any("Trusted: 2 labels that reviewers settled" in message for message in result.summary["table"]["messages"])
    assert "Trusted: 2 labels" in (tmp_path / "new" / "report.html").read_text(encoding="utf-8")


def test_rows_of_another_table_are_matched_by_sequence_and_time(reviewed):
    path, folder = reviewed
    table = make_table()
    moved = pa.concat_tables([table.slice(120), table.slice(0, 4)])  # row 4 is gone
    names, found = trusted_names(path, folder, moved)
    steps = read_audit_steps(moved, Request(**ROLES))
    assert list(names.values()) == ["walk"]
    assert steps.rows.steps.step_of_row[123] in names  # the row that was the fourth
    assert found["not_in_the_table"] == 1


def test_a_table_without_times_that_is_another_one_is_refused(reviewed):
    path, folder = reviewed
    with pytest.raises(ValueError, match="without a column of times in both, rows cannot be matched"):
        trusted_names(path, folder, make_table(seed=3).drop_columns("minute"), time=None)


def test_other_sequences_are_refused(reviewed):
    path, folder = reviewed
    table = make_table()
    other = table.set_column(0, "person", pa.array([f"x{name}" for name in table["person"].to_pylist()]))
    with pytest.raises(ValueError, match="has the sequence and time of a row of the table"):
        trusted_names(path, folder, other)


def test_a_class_that_the_table_lacks_is_left_out(reviewed):
    path, folder = reviewed
    table = make_table()
    labels = pa.array(["sit" if label == "walk" else label for label in table["label"].to_pylist()])
    other = table.set_column(table.column_names.index("label"), "label", labels)
    recorded = table["label"][4].as_py()
    if recorded == "walk":  # then both settled labels are of a class that is gone
        with pytest.raises(ValueError, match="of a class that is not in the table"):
            trusted_names(path, folder, other)
    else:
        assert trusted_names(path, folder, other)[1].decisions["other_class"] == 1


def test_the_column_of_trusted_labels_goes_first(reviewed):
    path, folder = reviewed
    table = make_table()
    column = [None] * 240
    column[3] = "rest"
    names, found = trusted_names(path, folder, table.append_column("sure", pa.array(column)), trusted="sure")
    assert names[3] == "rest"
    assert found["trusted_already"] == 1


def test_annotators_settled_differently_at_one_step_are_left_out(tmp_path):
    table = make_table()
    two = table.append_column("second", table["truth"]).drop_columns("truth")
    path, folder = tmp_path / "study.csv", tmp_path / "old"
    csv.write_csv(two, path)
    roles = {**ROLES, "label": "label,second"}
    lt.audit(path, out=folder, **roles)
    decide(folder, [("Ada", 3, "walk", "label"), ("Ada", 3, "rest", "second"), ("Ada", 8, "walk", "second")])
    names, found = trusted_names(path, folder, label="label,second")
    assert names == {8: "walk"}
    assert found["differ_at_one_step"] == 1


def test_folders_without_usable_decisions_are_told(reviewed, tmp_path):
    path, _ = reviewed
    lt.audit(path, out=tmp_path / "bare", **ROLES)
    with pytest.raises(ValueError, match=r"holds no decisions. Make some with: labeltide review"):
        lt.audit(path, decisions=tmp_path / "bare", **ROLES)
    decide(tmp_path / "bare", [("Ada", 3, "walk", None)], audit="another")
    with pytest.raises(ValueError, match="were made for another audit"):
        lt.audit(path, decisions=tmp_path / "bare", **ROLES)
    with pytest.raises(ValueError, match="There is no folder"):
        lt.audit(path, decisions=tmp_path / "nowhere", **ROLES)
    lt.audit(path, out=tmp_path / "open", **ROLES)
    decide(tmp_path / "open", [("Ada", 3, "walk", None), ("Ben", 3, "rest", None)])
    with pytest.raises(ValueError, match=r"settle no label. Reviewers disagree on 1."):
        lt.audit(path, decisions=tmp_path / "open", **ROLES)
