"""A table that is read in parts from an S3 address gives the bytes that its copy on a local disk gives."""

import json

import pytest
from pyarrow import fs, parquet

import labeltide as lt
from auditing.streaming.quick import WINDOW, stream_quickly, study
from labeltide.auditing import judging
from labeltide.auditing.predict import predict_to_file
from labeltide.tables import files
from s3_server import s3_server

FILES = ("labels.parquet", "issues.parquet", "issues.csv", "noise.csv")

pytestmark = pytest.mark.skipif(not hasattr(fs, "S3FileSystem"), reason="this pyarrow was built without S3")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No training, small parts, and every file read in parts."""
    stream_quickly(monkeypatch)
    monkeypatch.setattr(files, "S3_ATTEMPTS", 1)


@pytest.fixture
def path(tmp_path):
    parquet.write_table(study(), tmp_path / "study.parquet", row_group_size=170)
    return tmp_path / "study.parquet"


def run(table, out, **more):
    return lt.audit(table, window=WINDOW, out=out, device="cpu", **more)


def test_an_audit_from_a_bucket_has_the_bytes_of_a_local_one_though_the_server_went_away(tmp_path, path, monkeypatch):
    local = run(path, tmp_path / "local")
    judge, calls = judging.judge_lines, []
    with s3_server() as server:
        server.objects["lab/study.parquet"] = path.read_bytes()
        address = server.address("lab/study.parquet")

        def judge_and_end(*arguments):
            calls.append(1)
            if len(calls) == 2:
                server.ends_after = 0
            return judge(*arguments)

        monkeypatch.setattr(judging, "judge_lines", judge_and_end)
        with pytest.raises(ValueError, match=r"'lab/study.parquet' cannot be read.*with resume \(--resume\) continues"):
            run(address, tmp_path / "remote")
        assert list((tmp_path / ".remote-unfinished").glob("part-*"))
        server.ends_after = 10**9
        remote = run(address, tmp_path / "remote", resume=True)
    for name in FILES:
        assert (local.folder / name).read_bytes() == (remote.folder / name).read_bytes(), name
    assert json.loads((remote.folder / "audit.json").read_text())["table"]["name"] == "study.parquet"
    assert not any(b"hush" in file.read_bytes() for file in remote.folder.rglob("*") if file.is_file())


def test_predictions_from_a_bucket_have_the_bytes_of_local_ones(tmp_path, path):
    run(path, tmp_path / "local")
    with s3_server() as server:
        server.objects["lab/study.parquet"] = path.read_bytes()
        predict_to_file(tmp_path / "local", server.address("lab/study.parquet"), tmp_path / "remote.parquet")
    predict_to_file(tmp_path / "local", path, tmp_path / "local.parquet")
    assert (tmp_path / "remote.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()
