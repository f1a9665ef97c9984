import os
from functools import partial
from pathlib import Path

import pytest
from pyarrow import parquet

from datasets import archives, edf_writer
from labeltide_bench import datasets as public

pytestmark = pytest.mark.usefixtures("small")


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("uci_har", "train.parquet", "train.parquet"),
        ("uci_har", "test.parquet", "test.parquet"),
        ("eeg_eye_state", "eeg_eye_state.parquet", "eeg_eye_state.parquet"),
        ("har70plus", "labels_50hz.parquet", "labels_50hz.parquet"),
        ("har70plus", "means_5s.parquet", "means_5s.parquet"),
        ("sleep_edf", "sleep_edf_sc_30s.parquet", "sleep_edf_sc_20nights_30s.parquet"),
    ],
)
def test_columns_and_types_are_those_of_the_shared_copies(tmp_path, name, ours, theirs):
    folder = os.environ.get("LABELTIDE_DATA")
    if not folder:
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    make = {
        "uci_har": partial(archives.make_har, n_features=12),
        "eeg_eye_state": archives.make_eeg,
        "har70plus": partial(archives.make_har70, sizes=archives.HAR70_SIZES),
        "sleep_edf": lambda path: edf_writer.write_night(path.parent),
    }
    made = public.fetch(name, tmp_path / "data", archives=make[name](tmp_path / "a.zip"))
    schema = parquet.read_schema(made / ours).remove_metadata()
    shared = parquet.read_schema(Path(folder, name, theirs)).remove_metadata()
    n = len(schema) if name == "uci_har" else len(shared)  # the shared features are the first of ours
    assert [(f.name, f.type) for f in schema] == [(f.name, f.type) for f in shared][:n]
