"""Names in CSV files are kept as written, unless all of them are plain numbers."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

import labeltide as lt
from labeltide.auditing.reading import open_all, read_audit_steps
from labeltide.auditing.sampling import find_roles
from labeltide.recordings.recordings import find_files
from labeltide.tables.files import open_file, open_files
from labeltide.tables.roles import Reading, Request
from labeltide.tables.tidy import name_files
from labeltide_bench.tables import read_audit_table

ROLES = {"sequence": "person", "time": "minute", "label": "label", "features": "signal"}
CASES = [
    (["01", "1", "2"], ["01", "1", "2"]),
    (["007", "N1"], ["007", "N1"]),
    (["1e5", "2e5"], ["1e5", "2e5"]),
    (["3.50", "2.25"], ["2.25", "3.50"]),
    (["NA", "b", "c"], ["NA", "b", "c"]),
    (["null", "1", "2"], ["1", "2", "null"]),
    (["true", "false"], ["false", "true"]),
    (["1", "2", "10"], [1, 2, 10]),
    (["0.5", "1", "2.25"], [0.5, 1.0, 2.25]),
]


def write(path, labels, people=("000123", "123", "1e5"), steps=12):
    lines = ["person,minute,signal,label"]
    for number, person in enumerate(people):
        lines += [f"{person},{step},{(number + step) % 7}.50,{labels[step % len(labels)]}" for step in range(steps)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(("labels", "classes"), CASES)
def test_labels_and_sequences_are_kept_as_written_in_memory_and_in_parts(tmp_path, labels, classes):
    path = write(tmp_path / "table.csv", labels)
    read = read_audit_table(path, **ROLES, missing="none")
    assert list(read.class_names) == [str(name) for name in classes]
    assert list(read.sequence_names) == ["000123", "123", "1e5"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = lt.Sequences.from_table(path, **ROLES, missing="none")
    assert sorted(data.classes) == sorted(classes)
    assert data.ids == ("000123", "123", "1e5")
    files = open_files(tmp_path)
    several = read_audit_table(open_all(files), **ROLES, missing="none")
    assert (several.class_names, several.sequence_names) == (read.class_names, read.sequence_names)
    named = name_files(files, find_roles(files, Request(**ROLES)), "none")
    opened = open_all(named)
    column = opened.load(["label"]).to_native()["label"]
    assert set(column.to_pylist()) == set(classes)


def test_the_same_numbers_with_a_gap_stay_numbers_and_what_is_missing_is_stated(tmp_path):
    path = write(tmp_path / "table.csv", ["1", "2", "NA", "", "10", "?"])
    read = read_audit_table(path, **ROLES)
    assert read.class_names == ("1", "2", "10")
    assert any("Read as missing labels: '?' and 'NA'" in sentence for sentence in read.messages)
    assert int((read.labels < 0).sum()) == 3 * 6
    files = open_files(tmp_path)
    roles = find_roles(files, Request(**ROLES))
    column = open_all(name_files(files, roles)).load(["label"]).to_native()["label"]
    assert column.type == pa.int64()
    assert column.null_count == 3 * 6
    assert any("missing labels" in sentence for sentence in roles.messages)


def test_columns_of_labels_are_numbers_together_or_texts_together(tmp_path):
    path = tmp_path / "table.csv"
    rows = [f"p,{step},{step % 5}.1,{step % 2 + 1},0{step % 2 + 1}" for step in range(20)]
    path.write_text("\n".join(["person,minute,signal,ada,ben", *rows]))
    roles = {**ROLES, "label": "ada,ben"}
    assert read_audit_table(path, **roles).class_names == ("01", "02", "1", "2")


def test_features_of_csv_files_are_numbers_however_they_are_written(tmp_path):
    path = write(tmp_path / "table.csv", ["a", "b"])
    read = read_audit_table(path, **ROLES)
    assert np.unique(read.signal(0).round(3)).tolist() == [k + 0.5 for k in range(7)]


def test_a_table_that_is_written_again_keeps_its_names(tmp_path):
    path = write(tmp_path / "table.csv", ["01", "1"])
    table = open_file(path, ["person", "label"])
    assert set(table["label"].to_pylist()) == {"01", "1"}
    assert table["signal"].type == pa.float64()
    assert set(table["person"].to_pylist()) == {"000123", "123", "1e5"}


def test_a_manifest_keeps_its_names(tmp_path):
    manifest = tmp_path / "list.csv"
    manifest.write_text("recording,signals,labels,annotator\n007,a.edf,a.csv,01\n7,b.edf,b.csv,NA\n")
    found = find_files(manifest, [])
    assert [(each.name, each.labels[0][1]) for each in found] == [("007", "01"), ("7", "NA")]


def test_a_fixed_list_of_classes_refuses_other_labels_by_name(tmp_path):
    path = write(tmp_path / "table.csv", ["walk", "sit", "Sit"])
    with pytest.raises(ValueError, match=r"--classes.*'Sit'"):
        read_audit_steps(path, Request(**ROLES), Reading(classes="walk,sit"))
    steps = read_audit_steps(path, Request(**ROLES), Reading(classes=["walk", "sit", "Sit"]))
    assert steps.class_names == ("Sit", "sit", "walk")
