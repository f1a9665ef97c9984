import os
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from datasets import archives
from labeltide_bench.datasets import har70plus
from labeltide_bench.studies.loading import load_dataset
from studies.toys import our_study

SIZES = {502: 777, 501: 500}
AXES = ["back_x", "back_y", "back_z", "thigh_x", "thigh_y", "thigh_z"]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(har70plus, "N_SUBJECTS", len(SIZES))
    monkeypatch.setattr(har70plus, "N_ROWS", sum(SIZES.values()))


@pytest.fixture
def converted(tmp_path, small):
    har70plus.convert(archives.make_har70(tmp_path / "har70.zip", SIZES), tmp_path)
    return tmp_path


def test_every_label_comes_over_person_by_person(converted):
    table = pd.read_parquet(converted / "labels_50hz.parquet")
    assert table["subject"].tolist() == [501] * 500 + [502] * 777
    assert table["label"].tolist() == [
        *archives.har70_person(501, 500)[1],
        *archives.har70_person(502, 777)[1],
    ]


def test_each_50th_row_is_kept_as_a_second(converted):
    table = pd.read_parquet(converted / "samples_1hz.parquet")
    assert list(table) == ["subject", "second", *AXES, "label"]
    assert table.dtypes.astype(str).tolist() == ["int16", "int16", *["float32"] * 6, "int8"]
    for subject, n_rows in SIZES.items():
        axes, labels = archives.har70_person(subject, n_rows)
        own = table[table["subject"] == subject]
        assert own["second"].tolist() == list(range(len(labels[::50])))
        np.testing.assert_array_equal(own[AXES], axes[::50].astype(np.float32))
        np.testing.assert_array_equal(own["label"], labels[::50])


def test_means_equal_slow_means_over_full_windows(converted):
    table = pd.read_parquet(converted / "means_5s.parquet")
    assert len(table) == 2 + 3
    for row in table.itertuples():
        axes, labels = archives.har70_person(row.subject, SIZES[row.subject])
        rows = range(250 * row.window, 250 * (row.window + 1))
        for i, axis in enumerate(AXES):
            assert getattr(row, f"{axis}_mean") == pytest.approx(sum(axes[k, i] for k in rows) / 250, abs=1e-6)
        lengths = [sum(axes[k, i] ** 2 for i in range(3, 6)) ** 0.5 for k in rows]
        assert row.thigh_mag_mean == pytest.approx(sum(lengths) / 250, rel=1e-6)
        counts = Counter(labels[k] for k in rows)
        best = max(counts.values())
        assert row.label_mode == min(label for label, count in counts.items() if count == best)
        assert row.mode_share == pytest.approx(best / 250)
        assert row.label_first == labels[rows[0]]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [({501: 500}, "Got 500 rows of 1 people"), ({501: 500, 502: 778}, "Got 1278 rows"), ({}, "Got 0 rows")],
)
@pytest.mark.usefixtures("small")
def test_an_archive_of_other_size_is_refused(tmp_path, sizes, message):
    with pytest.raises(ValueError, match=message):
        har70plus.convert(archives.make_har70(tmp_path / "a.zip", sizes), tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "must have columns back_x"),
        (archives.HAR70_HEADER + "\nt,1,2,3,4,5,6,2\n", r"must be among .* Got \[2\] too"),
        (archives.HAR70_HEADER + "\nt,1,2,3,,5,6,1\n", "must be finite"),
        (archives.HAR70_HEADER + "\nt,1,2,3,4,5,6,\n", "must be among"),
        (archives.HAR70_HEADER + "\nt,1,2,3,4,5\n", "must have columns"),
        ("", "must have columns"),
    ],
)
def test_a_file_of_other_content_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        har70plus.convert(archives.make_zip(tmp_path / "a.zip", {"har70plus/501.csv": text}), tmp_path)


def test_window_labels_of_the_real_recordings_come_out():
    folder = os.environ.get("LABELTIDE_DATA")
    if not folder:
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    labels = pd.read_parquet(Path(folder, "har70plus", "labels_50hz.parquet"))
    means = pd.read_parquet(Path(folder, "har70plus", "means_5s.parquet"))
    assert len(labels) == har70plus.N_ROWS
    assert labels["subject"].nunique() == har70plus.N_SUBJECTS
    for subject, own in labels.groupby("subject"):
        person = {name: own[name].to_numpy() for name in own} | {axis: np.zeros(len(own)) for axis in AXES}
        ours, theirs = har70plus.window_means(person), means[means["subject"] == subject]
        for name in ("subject", "window", "label_mode", "label_first", "mode_share"):
            np.testing.assert_array_equal(ours[name], theirs[name])
            assert ours[name].dtype == theirs[name].dtype


def test_the_labels_at_1_hz_give_the_444_windows_of_the_paper(tmp_path):
    folder = os.environ.get("LABELTIDE_DATA")
    if not folder:
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    labels = pd.read_parquet(Path(folder, "har70plus", "labels_50hz.parquet"))
    generator = np.random.default_rng(0)
    people = []
    for _, own in labels.groupby("subject"):
        signals = {axis: generator.normal(size=len(own)) for axis in AXES}  # what is not at hand
        person = {name: own[name].to_numpy() for name in own} | signals
        people.append(pd.DataFrame(har70plus.every_second(person)))
    (tmp_path / "har70plus").mkdir()
    pd.concat(people).to_parquet(tmp_path / "har70plus" / "samples_1hz.parquet")
    study = our_study(Path(__file__).parents[2] / "studies" / "paper-tables.toml")
    spec = next(each for each in study.datasets if each.name == "senior, 1 Hz")
    split = load_dataset(spec, tmp_path)
    assert len(split.train) + len(split.test) == 444
    assert split.train.features.shape[1:] == (100, 6)
