import numpy as np
import pandas as pd
import pytest

from datasets import archives
from labeltide_bench.datasets import eeg_eye_state


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(eeg_eye_state, "CLASS_COUNTS", archives.EEG_COUNTS)


def test_the_published_counts_make_the_published_rows():
    assert sum(eeg_eye_state.CLASS_COUNTS) == 14980


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("zipped", [True, False])
def test_every_number_comes_over_in_its_order(tmp_path, zipped):
    if zipped:
        archive = archives.make_eeg(tmp_path / "eeg.zip")
    else:
        archive = tmp_path / "EEG Eye State.arff"
        archive.write_text(archives.eeg_text().replace("\n", "\r\n"))
    eeg_eye_state.convert(archive, tmp_path)
    table = pd.read_parquet(tmp_path / "eeg_eye_state.parquet")
    assert list(table) == [*archives.EEG_NAMES, "eyeDetection"]
    np.testing.assert_array_equal(table, archives.eeg_values())
    assert table.dtypes.astype(str).tolist() == ["float64"] * 14 + ["int8"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@DATA", "", "must have a line @DATA"),
        ("AF3", "AF33", "Got shape .* of AF33"),
        (",0\n", ",1\n", "eyes open and closed. Got"),
        (",1\n", ",one\n", "rows of numbers behind @DATA"),
    ],
)
def test_an_archive_of_other_content_is_refused(tmp_path, old, new, message):
    archive = archives.make_zip(tmp_path / "a.zip", {"EEG Eye State.arff": archives.eeg_text().replace(old, new)})
    with pytest.raises(ValueError, match=message):
        eeg_eye_state.convert(archive, tmp_path)
