"""The corrected table: the user's own rows, each change with its reason and author, nothing overwritten."""

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import labeltide as lt
from auditing.reviewed import decide
from auditing.tables import make_table
from labeltide.auditing import apply
from labeltide.auditing.apply import apply_decisions

ROLES = {"sequence": "person", "time": "minute", "label": "label", "features": "signal"}
pytestmark = pytest.mark.usefixtures("quick_fit")


@pytest.fixture
def reviewed(tmp_path):
    """A table, and the folder of its audit with three settled labels and a disputed one."""
    path, folder = tmp_path / "study.parquet", tmp_path / "audit"
    parquet.write_table(make_table(), path, row_group_size=50)
    lt.audit(path, out=folder, **ROLES)
    recorded = make_table()["label"].to_pylist()
    other = {"walk": "rest", "rest": "walk"}
    decisions = [("Ada", 3, other[recorded[3]], None), ("Ada", 130, other[recorded[130]], None), ("Ada", 7, None, None)]
    decisions += [("Ada", 9, "walk", None), ("Ben", 9, "rest", None)]
    decide(folder, decisions)
    return path, folder


def test_only_settled_labels_change_and_all_else_stays(reviewed, tmp_path, monkeypatch):
    monkeypatch.setattr(apply, "BATCH_ROWS", 32)  # parts end within row groups
    path, folder = reviewed
    table, result = make_table(), apply_decisions(folder, tmp_path / "new.parquet")
    written = parquet.read_table(tmp_path / "new.parquet")
    assert written.column_names == [*table.column_names, "label_original", "label_reason", "label_author"]
    assert written.drop_columns(["label", *result.columns]).equals(table.drop_columns("label"))
    assert written["label_original"].to_pylist() == table["label"].to_pylist()
    before, after = table["label"].to_pylist(), written["label"].to_pylist()
    assert [row for row in range(240) if before[row] != after[row]] == [3, 130]
    authors = {row: name for row, name in enumerate(written["label_author"].to_pylist()) if name}
    assert authors == {3: "Ada", 7: "Ada", 130: "Ada"}
    assert written["label_reason"][3].as_py() == "changed by review: =looked twice"
    assert written["label_reason"][7].as_py() == "kept by review: =looked twice"
    counts = result.changed_by_reviewers, result.kept_by_reviewers, result.changed_by_model, result.disputed
    assert counts == (2, 1, 0, 1)
    assert path.read_bytes()  # and the table is as it was
    assert parquet.read_table(path).equals(table)


def test_the_model_corrects_what_no_reviewer_saw(reviewed, tmp_path):
    _, folder = reviewed
    result = apply_decisions(folder, tmp_path / "new.parquet", above=0.5)
    written = parquet.read_table(tmp_path / "new.parquet")
    lines = parquet.read_table(folder / "labels.parquet").to_pylist()
    sure = {
        line["row"]
        for line in lines
        if line["suggested_probability"] >= 0.5
        and line["suggested"] != line["recorded"]
        and line["row"] not in (3, 130, 7, 9)
    }
    by_model = {
        row for row, name in enumerate(written["label_author"].to_pylist()) if name == f"labeltide {lt.__version__}"
    }
    assert by_model == sure
    assert result.changed_by_model == len(sure) > 0
    assert all(written["label"][row].as_py() == lines[row]["suggested"] for row in sure)
    assert all("suggested by the model with probability" in written["label_reason"][row].as_py() for row in sure)
    assert written["label"][9].as_py() == lines[9]["recorded"]  # disputed


def test_an_audit_of_what_a_model_corrected_is_said_to_be_circular(reviewed, tmp_path):
    _, folder = reviewed
    by_model = apply_decisions(folder, tmp_path / "new.csv", above=0.5).changed_by_model
    again, before = lt.audit(tmp_path / "new.csv", **ROLES), lt.audit(make_table(), **ROLES)
    found = [check for check in again.summary["diagnostics"] if check["name"] == "circular"]
    assert [str(by_model) in check["sentence"] for check in found] == [True]
    assert "circular" in again._repr_html_()
    assert "circular" not in before._repr_html_()
    reviewed_only = apply_decisions(folder, tmp_path / "people.csv")
    assert reviewed_only.changed_by_reviewers
    assert "circular" not in lt.audit(tmp_path / "people.csv", **ROLES)._repr_html_()


def test_no_text_of_a_csv_starts_a_formula(reviewed, tmp_path):
    _, folder = reviewed
    apply_decisions(folder, tmp_path / "new.csv")
    found = csv.read_csv(tmp_path / "new.csv")
    assert found["label_reason"][3].as_py().startswith("changed by review")
    assert (tmp_path / "new.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    assert found.num_rows == 240


def test_numbers_stay_numbers_and_taken_names_are_avoided(tmp_path):
    table = make_table()
    codes = pa.array([["rest", "walk"].index(label) for label in table["label"].to_pylist()], pa.int8())
    table = table.set_column(table.column_names.index("label"), "label", codes)
    table = table.append_column("label_original", pa.array(["mine"] * 240))
    path = tmp_path / "study.parquet"
    parquet.write_table(table, path)
    lt.audit(path, out=tmp_path / "audit", **ROLES)
    wish = 1 - codes[3].as_py()
    decide(tmp_path / "audit", [("Ada", 3, str(wish), None)])
    result = apply_decisions(tmp_path / "audit", tmp_path / "new.parquet")
    written = parquet.read_table(tmp_path / "new.parquet")
    assert written["label"].type == pa.int8()
    assert written["label"][3].as_py() == wish
    assert result.columns == ("label_original_", "label_reason", "label_author")
    assert written["label_original"].to_pylist() == ["mine"] * 240


def test_each_column_of_labels_has_its_own_corrections(tmp_path):
    table = make_table().rename_columns(["person", "minute", "signal", "a,b", "other"])
    path = tmp_path / "study.parquet"
    parquet.write_table(table, path)
    lt.audit(path, out=tmp_path / "audit", **{**ROLES, "label": ["a,b", "other"]})
    wish = {"walk": "rest", "rest": "walk"}[table["other"][3].as_py()]
    decide(tmp_path / "audit", [("Ada", 3, wish, "other")])
    result = apply_decisions(tmp_path / "audit", tmp_path / "new.parquet")
    written = parquet.read_table(tmp_path / "new.parquet")
    assert len(result.columns) == 6
    assert written["a,b"].to_pylist() == table["a,b"].to_pylist()
    assert written["other"][3].as_py() == wish
    assert written["a,b_author"].null_count == 240
    assert written["other_author"].null_count == 239


def test_a_table_that_changed_moved_or_was_a_frame_is_told(reviewed, tmp_path):
    path, folder = reviewed
    path.rename(tmp_path / "moved.parquet")
    with pytest.raises(ValueError, match=r"The audited table is not at .*--table FILE"):
        apply_decisions(folder, tmp_path / "new.parquet")
    assert apply_decisions(folder, tmp_path / "new.parquet", table=tmp_path / "moved.parquet").rows == 240
    parquet.write_table(make_table(seed=4), path)
    with pytest.raises(ValueError, match="has changed since the audit"):
        apply_decisions(folder, tmp_path / "newer.parquet")
    lt.audit(make_table(), out=tmp_path / "frame", **ROLES)
    decide(tmp_path / "frame", [("Ada", 3, "walk", None)])
    with pytest.raises(ValueError, match="was of a data frame"):
        apply_decisions(tmp_path / "frame", tmp_path / "newer.parquet")
    with pytest.raises(ValueError, match="The labels of the table are not those of the audit"):
        apply_decisions(tmp_path / "frame", tmp_path / "newer.parquet", table=path)
    found = apply_decisions(tmp_path / "frame", tmp_path / "newer.parquet", table=tmp_path / "moved.parquet")
    assert found.rows == 240


def test_nothing_is_overwritten_and_bad_input_is_told(reviewed, tmp_path):
    path, folder = reviewed
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(ValueError, match="The file must be new"):
        apply_decisions(folder, tmp_path / "there.csv")
    assert (tmp_path / "there.csv").read_text() == "mine"
    with pytest.raises(ValueError, match=r"must end in .parquet or .csv"):
        apply_decisions(folder, tmp_path / "new.xlsx")
    with pytest.raises(ValueError, match=r"above must be a number at least 0.5"):
        apply_decisions(folder, tmp_path / "new.csv", above=0.2)
    lt.audit(path, out=tmp_path / "bare", **ROLES)
    with pytest.raises(ValueError, match=r"There is nothing to apply: .* holds no decisions"):
        apply_decisions(tmp_path / "bare", tmp_path / "new.csv")
    assert apply_decisions(tmp_path / "bare", tmp_path / "new.csv", above=0.99).changed_by_reviewers == 0


def test_what_no_csv_can_hold_and_classes_that_are_none_are_told(tmp_path):
    path = tmp_path / "study.parquet"
    parquet.write_table(make_table().append_column("lists", pa.array([[1, 2]] * 240)), path)
    lt.audit(path, out=tmp_path / "audit", **ROLES)
    decide(tmp_path / "audit", [("Ada", 3, "walk", None)])
    with pytest.raises(ValueError, match=r"cannot be written to .*Try a .parquet file"):
        apply_decisions(tmp_path / "audit", tmp_path / "new.csv")
    assert not (tmp_path / "new.csv").exists()
    assert apply_decisions(tmp_path / "audit", tmp_path / "new.parquet").rows == 240
    decide(tmp_path / "audit", [("Ada", 5, "swim", None)])
    with pytest.raises(ValueError, match=r"must be a class of the table. Got 'swim'"):
        apply_decisions(tmp_path / "audit", tmp_path / "newer.parquet")
