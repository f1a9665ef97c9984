import zipfile

import numpy as np
import pandas as pd
import pytest

from datasets import archives
from labeltide_bench.datasets import files, uci_har

N = 12


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(uci_har, "N_FEATURES", N)
    monkeypatch.setattr(uci_har, "CLASS_COUNTS", archives.HAR_COUNTS)


def test_the_published_counts_make_the_published_rows():
    assert {part: sum(counts) for part, counts in uci_har.CLASS_COUNTS.items()} == {
        "train": 7352,
        "test": 2947,
    }


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("nested", [True, False])
def test_every_number_comes_over_in_its_order(tmp_path, nested):
    if nested:
        archive = archives.make_har(tmp_path / "har.zip", N)
    else:
        archive = archives.make_zip(tmp_path / "har.zip", archives.har_files(N))
    uci_har.convert(archive, tmp_path)
    for part in ("train", "test"):
        features, labels, subjects = archives.har_numbers(part, N)
        table = pd.read_parquet(tmp_path / f"{part}.parquet")
        assert list(table) == ["subject", "label", *(f"f{i:03d}" for i in range(1, N + 1))]
        np.testing.assert_array_equal(table["label"], labels)
        np.testing.assert_array_equal(table["subject"], subjects)
        np.testing.assert_allclose(table.iloc[:, 2:], features, rtol=1e-6)
        assert set(table.dtypes.astype(str)[:2]) == {"int8"}
        assert set(table.dtypes.astype(str)[2:]) == {"float32"}
    names = pd.read_csv(tmp_path / "feature_names.csv")
    assert names["column"].tolist() == [f"f{i:03d}" for i in range(1, N + 1)]
    assert names["feature_name"].tolist() == [f"tBodyAcc-arCoeff()-X,{i}" for i in range(1, N + 1)]


def drop_row(text):
    return text.split("\n", 1)[1]


def drop_number(text):
    return text.replace(" ", "", 3).split(" ", 1)[1]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("member", "change", "message"),
    [
        ("train/X_train.txt", None, "exactly one train/X_train.txt. It holds 0"),
        ("train/X_train.txt", drop_row, "must have 8 rows of 12 features"),
        ("train/X_train.txt", drop_number, "rows of numbers"),
        ("train/X_train.txt", lambda text: "NaN " + text.split(maxsplit=1)[1], "must be finite"),
        ("test/y_test.txt", lambda text: "1\n" * 6, "windows of activity 1 to 6"),
        ("test/subject_test.txt", drop_row, "5 subjects"),
        ("features.txt", drop_row, "must name 12 features"),
    ],
)
def test_an_archive_of_other_content_is_refused(tmp_path, member, change, message):
    files = archives.har_files(N)
    name = "UCI HAR Dataset/" + member
    files = {key: text for key, text in files.items() if key != name or change is not None}
    if change is not None:
        files[name] = change(files[name])
    with pytest.raises(ValueError, match=message):
        uci_har.convert(archives.make_har(tmp_path / "har.zip", N, files), tmp_path)


def test_an_archive_that_inflates_to_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.txt", "0" * 100_000)
    with pytest.raises(ValueError, match="it is not the published one"), zipfile.ZipFile(tmp_path / "a.zip") as archive:
        files.find_member(archive, "features.txt")
