"""A table is opened once, and its columns keep what they hold."""

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv

from labeltide.tables import columns as intake
from labeltide.tables.columns import Column, load_columns, load_table, open_table
from labeltide_bench.tables import read_audit_table

STUDY = {"person": ["a", "b"] * 4, "time": [0, 0, 1, 1, 2, 2, 3, 3], "label": ["x", "y"] * 4, "v": [0.5, 1, 2, 3] * 2}


def test_an_open_table_opens_to_itself():
    opened = open_table(pa.table(STUDY))
    assert open_table(opened) is opened


@pytest.mark.parametrize("roles", [{}, {"sequence": "person", "time": "time", "label": "label", "features": "v"}])
def test_a_file_is_read_once(tmp_path, monkeypatch, roles):
    path, opened = tmp_path / "study.csv", []
    csv.write_csv(pa.table(STUDY), path)
    read = intake.open_file
    monkeypatch.setattr(intake, "open_file", lambda name: opened.append(name) or read(name))
    assert read_audit_table(path, **roles).n_rows == 8
    assert opened == [path]


def test_python_objects_stay_objects_as_columns_and_become_texts_in_arrow_tables():
    opened = open_table(pd.DataFrame({"pair": [("a", 1), ("b", 2)]}))
    column = load_columns(opened, ["pair"])["pair"]
    assert column.array is None
    assert column.to_list() == [("a", 1), ("b", 2)]
    assert load_table(opened)["pair"].to_pylist() == ["('a', 1)", "('b', 2)"]


def test_columns_in_arrow_are_taken_as_they_are():
    column = Column.of_array("v", pa.chunked_array([[1], [2, None]]))
    assert column.to_list() == [1, 2, None]
    assert (column.name, column.kind) == ("v", "Int64")
