"""Files of every kind give the same table, also where their parts disagree; what cannot be read is refused."""

import sys
from datetime import datetime

import openpyxl
import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, parquet

from labeltide.tables import files
from labeltide.tables.columns import open_table
from labeltide.tables.files import open_file

TABLE = pa.table({"who": ["a", "b"], "v": [1, 2], "w": [0.5, None]})


def write(path):
    """Write the small table in the format that the name of the file says."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        parquet.write_table(TABLE, path)
    elif name.endswith((".csv", ".tsv")):
        options = csv.WriteOptions(delimiter="\t" if name.endswith(".tsv") else ",")
        with pa.output_stream(path) as sink:  # packs by the ending of the name
            csv.write_csv(TABLE, sink, options)
    elif name.endswith(".ipc"):
        with ipc.new_stream(path, TABLE.schema) as sink:
            sink.write_table(TABLE)
    else:
        feather.write_feather(TABLE, path)
    return path


@pytest.mark.parametrize("end", ["parquet", "csv", "csv.gz", "tsv", "tsv.gz", "arrow", "feather", "ipc", "CSV"])
def test_every_format_gives_the_same_table(tmp_path, end):
    found = open_file(write(tmp_path / f"t.{end}"))
    assert (found.read() if isinstance(found, parquet.ParquetFile) else found).equals(TABLE)


def write_book(path, *rows, **settings):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for cells in settings.get("merged", ()):
        book.active.merge_cells(cells)
    book.create_sheet("another").append(["not", "read"])
    book.save(path)
    return path


def test_the_first_sheet_of_a_workbook_is_a_table(tmp_path):
    moments = [datetime(2024, 5, 1, 10, 30), datetime(2024, 5, 1, 10, 31)]
    rows = [
        ["who", "v", "w", "when", "mixed"],
        ["a", 1, 0.5, moments[0], 1],
        [None] * 5,
        ["b", 2, None, moments[1], "x"],
    ]
    found = open_file(write_book(tmp_path / "t.xlsx", *rows))
    assert found.select(["who", "v", "w"]).equals(TABLE)
    assert found["when"].to_pylist() == moments
    assert found["mixed"].to_pylist() == ["1", "x"]


@pytest.mark.parametrize(
    ("rows", "settings", "sentence"),
    [
        ([], {}, "the sheet 'Sheet' is empty"),
        ([["a", None], [1, 2]], {}, "column B of the sheet 'Sheet' has no name in the first row"),
        ([["a", "b"], [1, 2]], {"merged": ["A2:B2"]}, "cells of the sheet 'Sheet' are merged: 'A2:B2'. Unmerge them"),
    ],
)
def test_sheets_that_are_no_table_are_refused(tmp_path, rows, settings, sentence):
    with pytest.raises(ValueError, match=rf"cannot be read as xlsx: {sentence}"):
        open_file(write_book(tmp_path / "t.xlsx", *rows, **settings))


def test_broken_workbooks_and_a_missing_openpyxl_are_said(tmp_path, monkeypatch):
    for content in (b"", b"PK\x03\x04broken"):
        (tmp_path / "t.xlsx").write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read as xlsx: it is not a workbook"):
            open_file(tmp_path / "t.xlsx")
    monkeypatch.setattr(files, "MAX_BYTES", 10)
    with pytest.raises(ValueError, match="unpacks to more than"):
        open_file(write_book(tmp_path / "t.xlsx", ["a"], [1]))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ValueError, match=r"pip install 'labeltide\[excel\]'; or save the sheet as CSV"):
        open_file(tmp_path / "t.xlsx")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_are_found_in_the_first_line(tmp_path, separator):
    (tmp_path / "t.csv").write_text(separator.join(['"a,b,c,d"', "v"]) + "\n" + separator.join(["1", "2"]) + "\n")
    assert open_file(tmp_path / "t.csv").to_pydict() == {"a,b,c,d": [1], "v": [2]}


@pytest.mark.parametrize(("later", "kind"), [("0.5", pa.float64()), ("N2", pa.string()), ("2024-13-13", pa.string())])
@pytest.mark.parametrize("first", ["1", ""])
def test_a_column_whose_type_changes_far_down_is_read_by_the_wider_type(tmp_path, first, later, kind):
    lines = ["t,v", *[f"{k},{first}" for k in range(300_000)], f"300000,{later}"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    table = open_file(tmp_path / "t.csv")
    assert table.schema.types == [pa.int64(), kind]
    assert str(table["v"][-1]) == later


def test_a_file_in_an_older_encoding_is_read(tmp_path):
    (tmp_path / "t.csv").write_bytes("größe,name\n1,Müller\n".encode("latin-1"))
    assert open_file(tmp_path / "t.csv").to_pydict() == {"größe": [1], "name": ["Müller"]}
    (tmp_path / "t.csv").write_bytes("größe,name\n1,2\n".encode("latin-1"))
    assert open_file(tmp_path / "t.csv").to_pydict() == {"größe": [1], "name": [2]}


def test_cells_may_hold_several_lines(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n1,"x\ny"\n')
    assert open_file(tmp_path / "t.csv").to_pydict() == {"a": [1], "b": ["x\ny"]}


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz", "t.tsv", "t.arrow", "t.feather"])
@pytest.mark.parametrize("content", [b"", b"\x00\x01broken"])
def test_broken_files_are_refused_in_a_sentence(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    if content and name in ("t.csv", "t.tsv"):
        pytest.skip("any text is a table of one column")
    with pytest.raises(ValueError, match=rf"The file .*{name}' cannot be read as"):
        open_file(tmp_path / name)


def test_rows_of_unequal_length_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(ValueError, match=r"cannot be read as csv: .*Expected 2 columns, got 3"):
        open_file(tmp_path / "t.csv")


def test_a_format_is_added_in_one_place(tmp_path, monkeypatch):
    path = tmp_path / "Visits.SAS7BDAT"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"must end in \.parquet, .* or \.xlsx\. Got"):
        open_table(path)
    sas = files.TableFormat((".sas7bdat",), lambda path: pa.table({"visit": [1, 2]}))
    monkeypatch.setattr(files, "FORMATS", (*files.FORMATS, sas))
    assert open_table(path).names == ["visit"]
    with pytest.raises(ValueError, match=r"or \.sas7bdat\. Got 'Visits\.txt'"):
        open_table("Visits.txt")
