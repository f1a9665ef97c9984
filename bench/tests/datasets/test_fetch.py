import os
import sys
from functools import partial

import pytest

from datasets import archives, edf_writer
from datasets.traces import assert_fails_without_a_trace, content
from labeltide_bench import datasets as public
from labeltide_bench.datasets import har70plus, staging

pytestmark = pytest.mark.usefixtures("small")


# What is here


def test_the_list_says_what_is_present_and_what_is_missing(tmp_path):
    rows = {row.name: row for row in public.list_datasets(tmp_path / "nowhere")}
    assert list(rows)[:4] == ["uci_har", "eeg_eye_state", "har70plus", "sleep_edf"]
    assert list(rows)[4:] == ["dod_scorers", "lund2013", "neonatal_seizure"]
    assert not any(row.present for row in rows.values())
    assert rows["uci_har"].missing == ("train.parquet", "test.parquet", "feature_names.csv")
    assert all(row.title and row.licence and row.size for row in rows.values())
    (tmp_path / "har70plus").mkdir()
    for name in ("labels_50hz.parquet", "means_5s.parquet"):
        (tmp_path / "har70plus" / name).touch()
    row = public.list_datasets(str(tmp_path))[2]
    assert (row.present, row.missing) == (False, ("samples_1hz.parquet",))
    (tmp_path / "har70plus" / "samples_1hz.parquet").touch()
    assert public.list_datasets(tmp_path)[2].present


OFFICIAL = (
    "https://archive.ics.uci.edu/",
    "https://physionet.org/",
    "https://github.com/Dreem-Organization/dreem-learning-evaluation",  # these three are the authors' own
    "https://github.com/richardandersson/EyeMovementDetectorEvaluation",
    "https://zenodo.org/records/4940267",
)


def test_only_official_addresses_are_named():
    for dataset in public.DATASETS.values():
        for url in (*dataset.archives, dataset.page):
            assert url.startswith(OFFICIAL)


# Archives given by hand


def test_archives_given_by_hand_are_converted_and_kept(tmp_path):
    archive = archives.make_har(tmp_path / "any name.zip", 12)
    public.fetch("uci_har", tmp_path / "data", archives=archive)
    public.fetch("eeg_eye_state", tmp_path / "data", [str(archives.make_eeg(tmp_path / "eeg.zip"))])
    nights = edf_writer.write_night(tmp_path)
    public.fetch("sleep_edf", tmp_path / "data", archives=nights)
    assert [row.present for row in public.list_datasets(tmp_path / "data")][:4] == [True, True, False, True]
    assert archive.exists()
    assert all(file.exists() for file in nights)


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_truncated_zip_leaves_nothing_behind(data, share):
    for name, make in (
        ("eeg_eye_state", archives.make_eeg),
        ("uci_har", partial(archives.make_har, n_features=12)),
    ):
        archive = make(data.parent / "a.zip")
        archive.write_bytes(archive.read_bytes()[: int(share * archive.stat().st_size)])
        assert_fails_without_a_trace(data, name, "not a zip file.*Download again from", archives=archive)


def test_a_zip_with_a_flipped_byte_leaves_nothing_behind(data):
    archive = archives.make_eeg(data.parent / "a.zip")
    changed = bytearray(archive.read_bytes())
    changed[200] ^= 255
    archive.write_bytes(bytes(changed))
    assert_fails_without_a_trace(data, "eeg_eye_state", "eeg_eye_state could not be converted", archives=archive)


def test_a_missing_member_leaves_nothing_behind(data):
    files = archives.har_files(12)
    del files["UCI HAR Dataset/test/X_test.txt"]
    archive = archives.make_har(data.parent / "a.zip", 12, files)
    assert_fails_without_a_trace(data, "uci_har", "exactly one test/X_test.txt", archives=archive)


def test_a_truncated_recording_leaves_nothing_behind(data):
    edf_writer.write_night(data.parent)
    (recording, _) = edf_writer.write_night(data.parent, "SC4012")
    recording.write_bytes(recording.read_bytes()[:-1000])
    nights = sorted(data.parent.glob("*.edf"))
    assert_fails_without_a_trace(data, "sleep_edf", "it was cut off", archives=nights)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError(28, "No space left on device")])
def test_an_interruption_in_the_middle_leaves_nothing_behind(data, monkeypatch, error):
    archive = archives.make_har70(data.parent / "a.zip", archives.HAR70_SIZES)
    before = content(data.parent)

    def stop(person):
        assert list(data.rglob("labels_50hz.parquet"))  # one file is already made
        raise error

    monkeypatch.setattr(har70plus, "window_means", stop)
    with pytest.raises(public.FetchError if isinstance(error, OSError) else error):
        public.fetch("har70plus", data, archives=archive)
    assert content(data.parent) == before


def test_a_file_that_cannot_be_replaced_brings_the_others_back(data):
    (data / "har70plus" / "means_5s.parquet").mkdir(parents=True)
    (data / "har70plus" / "means_5s.parquet" / "in the way").touch()
    archive = archives.make_har70(data.parent / "a.zip", archives.HAR70_SIZES)
    assert_fails_without_a_trace(data, "har70plus", "could not be converted", archives=archive)


def test_requests_that_cannot_be_met_are_refused_at_the_door(tmp_path):
    with pytest.raises(ValueError, match=r"Unknown data set 'moving'. Choose one of: uci_har"):
        public.fetch("moving", tmp_path)
    with pytest.raises(ValueError, match=r"gone\.zip is not"):
        public.fetch("uci_har", tmp_path, archives=tmp_path / "gone.zip")
    with pytest.raises(ValueError, match="at least one file"):
        public.fetch("uci_har", tmp_path, archives=[])
    archive = archives.make_eeg(tmp_path / "a.zip")
    with pytest.raises(public.FetchError, match="must be one file"):
        public.fetch("uci_har", tmp_path, archives=[archive, archive])
    with pytest.raises(public.FetchError, match="could not be converted"):
        public.fetch("eeg_eye_state", archive, archives=archive)


def test_without_pooch_the_error_says_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(public.FetchError, match="pip install pooch"):
        public.fetch("uci_har", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_what_a_killed_fetch_left_is_swept_after_a_day(tmp_path):
    old, running = tmp_path / ".uci_har-old", tmp_path / ".uci_har-running"
    for folder in (old, running):
        (folder / "made").mkdir(parents=True)
        (folder / "made" / "train.parquet").touch()
    for path in [old, *old.rglob("*")]:
        os.utime(path, (0, 0))
    os.utime(running, (0, 0))  # what is in it is new
    with staging.workplace(tmp_path, "uci_har"):
        assert not old.exists()
        assert running.exists()
