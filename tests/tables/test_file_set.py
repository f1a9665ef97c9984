"""Folders, globs and addresses name the files of one table, and a file that differs is named."""

import gzip

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from labeltide.auditing.reading import read_all
from labeltide.tables.files import is_address, open_files

TABLE = pa.table({"person": ["a", "a", "b"], "time": [1, 2, 1], "x": [0.5, 1.5, 2.5]})


def fill(folder, ending=".parquet", count=3):
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number}{ending}"
        if ending == ".parquet":
            parquet.write_table(TABLE, path)
        else:
            with pa.output_stream(str(path)) as sink:
                csv.write_csv(TABLE, sink)
    return folder


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
def test_a_folder_a_glob_and_an_address_name_the_same_rows(tmp_path, ending):
    folder = fill(tmp_path / "files", ending)
    for address in (folder, f"{folder}/*{ending}", f"{tmp_path}/*/[012]{ending}", folder.as_uri()):
        assert is_address(address)
        files = open_files(address)
        assert read_all(files).equals(pa.concat_tables([TABLE] * 3).combine_chunks())


def test_files_beside_the_table_are_left_out(tmp_path):
    folder = fill(tmp_path / "files")
    (folder / "_SUCCESS").touch()
    (folder / ".part.parquet").touch()
    (folder / "readme.txt").write_text("hello")
    assert len(open_files(folder).paths) == 3


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (TABLE.drop_columns(["x"]), "has no 'x'"),
        (TABLE.append_column("y", TABLE["x"]), "also has 'y'"),
        (TABLE.set_column(2, "x", pa.array(["u", "v", "w"])), r"differs in 'x' \(string, not double\)"),
        (TABLE.select(["time", "person", "x"]), "has its columns in a different order"),
    ],
)
def test_the_file_that_differs_is_named(tmp_path, other, words):
    folder = fill(tmp_path / "files")
    parquet.write_table(other, folder / "9.parquet")
    with pytest.raises(ValueError, match=rf"9\.parquet' {words}"):
        open_files(folder)


def test_csv_files_share_the_wider_type(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "1.csv").write_text("a,x\nu,1\n")
    (folder / "2.csv").write_text("a,x\nv,1.5\n")
    (folder / "3.csv").write_text("a,x\n,\n")
    (folder / "4.csv").write_text("a,x\n")
    (folder / "5.csv").write_bytes(b"")
    assert read_all(open_files(folder))["x"].to_pylist() == [1.0, 1.5, None]
    (folder / "6.csv").write_text("a,x\nw,word\n")
    with pytest.raises(ValueError, match=r"6\.csv' differs in 'x'"):
        open_files(folder)


def test_no_match_says_what_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\*\.parquet"):
        open_files(f"{tmp_path}/nothing*.parquet")
    with pytest.raises(FileNotFoundError, match="There are no table files"):
        open_files(tmp_path)


def test_files_of_two_kinds_are_refused(tmp_path):
    folder = fill(tmp_path / "files")
    with gzip.open(folder / "4.csv.gz", "wt") as file:
        file.write("person,time,x\n")
    with pytest.raises(ValueError, match="of one kind"):
        open_files(folder)


def test_an_unknown_address_is_a_sentence():
    with pytest.raises(ValueError, match="cannot be opened"):
        open_files("nowhere://bucket/file.parquet")
