"""Records come back from one columnar file as they went in."""

import numpy as np
import pytest

from labeltide_bench.studies.records import append_records, pack_records, read_records

RECORDS = [
    {"key": "a|0", "level": {"rate": 0.3}, "metrics": {"test_error": 0.25}, "noise": [[[0.9, 0.1], [0.2, 0.8]]]},
    {"key": "b|1", "level": {"constants": {"a": 0.49}}, "metrics": {"test_error": 0.5, "absolute": 0.1}, "draw": 3},
]


def test_packed_records_are_what_was_run(tmp_path):
    append_records(tmp_path, RECORDS)
    assert pack_records(tmp_path).name == "records.parquet"
    assert [path.name for path in tmp_path.iterdir()] == ["records.parquet"]
    found = list(read_records(tmp_path))
    np.testing.assert_allclose(found[0].pop("noise"), RECORDS[0]["noise"], rtol=1e-6)
    assert found == [{name: value for name, value in record.items() if name != "noise"} for record in RECORDS]


def test_what_is_left_out_is_described_by_its_checksum(tmp_path):
    append_records(tmp_path, RECORDS)
    pack_records(tmp_path, arrays=False)
    assert "noise" not in next(read_records(tmp_path))
    assert "records.jsonl" in (tmp_path / "records.txt").read_text()


def test_a_study_goes_on_beside_packed_records(tmp_path):
    append_records(tmp_path, RECORDS[:1])
    pack_records(tmp_path)
    append_records(tmp_path, RECORDS[1:])
    assert [record["key"] for record in read_records(tmp_path)] == ["a|0", "b|1"]


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no records.jsonl to pack. Run the study first"):
        pack_records(tmp_path)
