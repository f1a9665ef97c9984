"""A record is whole or not there."""

import gzip
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeltide_bench.studies import records
from labeltide_bench.studies.records import RECORDS_FILE, append_records, drop_torn_line, read_records


def lines(n: int) -> list[dict]:
    return [{"key": f"run {i}", "values": [i, None, "ä\n|"]} for i in range(n)]


def test_what_is_appended_is_read(tmp_path):
    append_records(tmp_path, lines(2))
    append_records(tmp_path, lines(3)[2:])
    assert list(read_records(tmp_path)) == lines(3)


def test_torn_anywhere_only_the_last_line_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "SEARCH_BYTES", 7)  # so that the search goes over several blocks
    append_records(tmp_path, lines(3))
    path = tmp_path / RECORDS_FILE
    content = path.read_bytes()
    for end in range(len(content) + 1):
        path.write_bytes(content[:end])
        whole = content[:end].count(b"\n")
        assert list(read_records(tmp_path)) == lines(3)[:whole]
        append_records(tmp_path, [{"key": "next"}])
        assert list(read_records(tmp_path)) == [*lines(3)[:whole], {"key": "next"}]


def test_a_file_that_is_not_there_has_no_torn_line(tmp_path):
    drop_torn_line(tmp_path / "none.jsonl")
    assert list(read_records(tmp_path)) == []


numbers = st.one_of(st.floats(), st.integers(), st.none(), st.booleans(), st.text())
values = st.recursive(numbers, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(values)
def test_no_value_fails_a_finished_run(value):
    line = json.loads(records._line({"key": "k", "value": value}))
    assert line["key"] == "k"


def test_what_json_does_not_know_becomes_what_it_knows():
    record = {"a": np.array([1.0, np.nan]), "b": np.float32(math.inf), "c": (np.int64(3),), "d": Path("x"), 5: True}
    assert json.loads(records._line(record)) == {"a": [1.0, None], "b": None, "c": [3], "d": "x", "5": True}


def test_packed_files_are_read_too(tmp_path):
    with gzip.open(tmp_path / "records-1.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines(2))
    (tmp_path / "records.jsonl.partial").write_text("nothing")
    append_records(tmp_path, [{"key": "own"}])
    assert {record["key"] for record in read_records(tmp_path)} == {"run 0", "run 1", "own"}


@pytest.mark.parametrize("broken", ["{no record}\n", "[1]\n", '{"a": 1}\n'])
def test_a_broken_line_is_named(tmp_path, broken):
    append_records(tmp_path, lines(2))
    path = tmp_path / RECORDS_FILE
    path.write_text(path.read_text() + broken + '{"key": "after"}\n')
    with pytest.raises(ValueError, match=r"records\.jsonl cannot be read near line 3: .*delete it"):
        list(read_records(tmp_path))


def test_a_packed_file_cut_short_is_named(tmp_path):
    content = gzip.compress("".join(json.dumps(line) + "\n" for line in lines(50)).encode())
    (tmp_path / "records.jsonl.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"records\.jsonl\.gz cannot be read"):
        list(read_records(tmp_path))


def test_reading_records_never_loads_torch():
    code = "import sys, labeltide_bench.studies.records, labeltide_bench.studies; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_that_benchmark_does_not_have_is_named():
    import labeltide_bench.studies

    with pytest.raises(AttributeError, match="It has: Study, published_settings, read_records"):
        labeltide_bench.studies.nonsense  # noqa: B018
