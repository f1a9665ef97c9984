"""Files of every kind give the same table, also where their parts disagree; what cannot be read is refused."""

import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, parquet

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
