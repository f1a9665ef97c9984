"""A study of so many rows is made in bounded memory, and the same seed gives the same bytes."""

import pytest
from pyarrow import parquet

from labeltide.data import studies


def test_the_same_seed_gives_the_same_bytes_in_the_size_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "ROWS_EACH", 90)
    monkeypatch.setattr(studies, "DAYS", 3)
    monkeypatch.setattr(studies, "AT_ONCE", 3)
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    for path, seed in zip(paths, (0, 0, 1), strict=True):
        assert studies.write_large_study(path, 700, seed=seed) == 8
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    table = parquet.read_table(paths[0])
    assert len(table) == 700
    assert len(set(table["person"].to_pylist())) == 8
    others = {"person", "time", "annotator", "label", "true_label"}
    assert len(set(table.column_names) - others) == 7
    assert parquet.ParquetFile(paths[0]).num_row_groups == 3


def test_only_parquet_is_written_in_parts(tmp_path):
    with pytest.raises(ValueError, match=r"\.parquet"):
        studies.write_large_study(tmp_path / "study.csv", 10)
