"""Addresses are opened by pyarrow's own S3 client; what fails is a sentence within seconds that shows no secret."""

import io
import pickle
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import csv, fs, parquet

from labeltide.auditing.options import default_folder
from labeltide.auditing.reading import read_all
from labeltide.auditing.results import check_folder
from labeltide.tables import files as addresses
from labeltide.tables.files import UnreadableFileError, address_path, check_new_file, open_files, without_secrets
from labeltide.tables.stream import RowStream
from s3_server import s3_server

TABLE = pa.table({"person": ["a", "a", "b"], "time": [1, 2, 1], "x": [0.5, 1.5, 2.5]})

pytestmark = pytest.mark.skipif(not hasattr(fs, "S3FileSystem"), reason="this pyarrow was built without S3")


@pytest.fixture
def server():
    with s3_server() as server:
        for number in range(3):
            sinks = io.BytesIO(), io.BytesIO()
            parquet.write_table(TABLE, sinks[0])
            csv.write_csv(TABLE, sinks[1])
            server.objects[f"lab/files/{number}.parquet"] = sinks[0].getvalue()
            server.objects[f"lab/text/a b/{number}.csv"] = sinks[1].getvalue()
        yield server


@pytest.mark.parametrize(
    "path", ["lab/files", "lab/files/*.parquet", "lab/*/[012].parquet", "lab/text/a%20b/*.csv", "lab/text/a b"]
)
def test_a_folder_and_a_glob_in_a_bucket_name_the_same_rows(server, path):
    assert read_all(open_files(server.address(path))).equals(pa.concat_tables([TABLE] * 3).combine_chunks())


def test_a_stream_in_another_process_reads_the_same_rows(server):
    stream = RowStream(open_files(server.address("lab/files")), ["x"], [])
    assert pickle.loads(pickle.dumps(stream)).read(2, 5).equals(stream.read(2, 5))


def test_the_columns_of_a_row_group_come_in_one_call(server):
    stream = RowStream(open_files(server.address("lab/files/0.parquet")), TABLE.column_names, [])
    assert stream.n_rows == 3  # the file is open
    server.calls = 0
    assert stream.read(0, 3).equals(TABLE)
    assert server.calls == 2  # its size, its columns


def test_a_missing_key_is_named_without_its_password(server):
    with pytest.raises(FileNotFoundError, match=r"There are no table files at 's3://\*\*\*@lab/nothing\.parquet"):
        open_files(server.address("lab/nothing.parquet"))


def test_a_server_that_refuses_is_a_sentence_with_a_way_out(server):
    server.denies = True
    with pytest.raises(ValueError, match=r"s3://\*\*\*@lab/files\?.*ACCESS_DENIED.*Check the credentials") as found:
        open_files(server.address("lab/files"))
    assert "hush" not in str(found.value)


def test_a_server_that_is_not_there_is_a_sentence_within_seconds():
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"cannot be opened: .*Check the network"):
        open_files("s3://key:hush@lab/x.parquet?scheme=http&endpoint_override=127.0.0.1:9")
    assert time.monotonic() - started < 20


def test_a_server_that_goes_away_is_a_sentence_that_names_the_file(server, monkeypatch):
    monkeypatch.setattr(addresses, "S3_ATTEMPTS", 1)
    files = open_files(server.address("lab/files"))
    server.ends_after = 0
    with pytest.raises(UnreadableFileError, match=r"The file 'lab/files/0\.parquet' cannot be read"):
        RowStream(files, ["x"], []).read(0, 3)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://host/x.parquet", "Addresses begin with s3://"),
        ("s3://lab/night-?.parquet", "Unexpected query parameter"),
        ("s3:///x.parquet", "Missing bucket name"),
    ],
)
def test_what_pyarrow_does_not_know_is_a_sentence(address, words):
    with pytest.raises(ValueError, match=words):
        open_files(address)


def test_hdfs_without_java_says_what_it_needs(monkeypatch):
    def from_uri(text):
        raise OSError("Unable to load libjvm:\ndlopen(a) failed\ndlopen(b) failed")

    monkeypatch.setattr(addresses, "fs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri)))
    with pytest.raises(ValueError, match=r"cannot be opened: Unable to load libjvm\. hdfs:// needs Java.*CLASSPATH\.$"):
        open_files("hdfs://host:8020/x.parquet")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:hush@lab/x.parquet", "s3://***@lab/x.parquet"),
        ("labeltide audit s3:/key:hush@lab/x", "labeltide audit s3:/***@lab/x"),
        ("abfs://c@host/x?client_secret=hush&tenant_id=1", "abfs://c@host/x?client_secret=***&tenant_id=1"),
        ("gs://anonymous@lab/x?scheme=http", "gs://anonymous@lab/x?scheme=http"),
        ("C:/a@b:c/x.csv", "C:/a@b:c/x.csv"),
        ("/home/a:b/x.csv", "/home/a:b/x.csv"),
    ],
)
def test_secrets_of_addresses_are_not_shown(text, shown):
    assert without_secrets(text) == shown


def test_results_are_named_after_the_key_not_the_query(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address = "s3://key:hush@lab/nights/study.parquet?endpoint_override=host:1&scheme=http"
    assert default_folder(address) == Path("study-audit")
    assert default_folder("s3://lab/nights/*.parquet?region=eu-west-1") == Path("nights-audit")
    assert address_path(address) == "s3://***@lab/nights/study.parquet"
    assert address_path("what?.csv") == "what?.csv"


@pytest.mark.parametrize("check", [check_folder, lambda path: check_new_file(path, ".parquet")])
def test_results_at_an_address_are_refused(check):
    with pytest.raises(ValueError, match=r"a disk of this machine\. Got the address 's3:/\*\*\*@lab/out.parquet'"):
        check(Path("s3://key:hush@lab/out.parquet"))
