"""Small archives pass for the published ones, and data folders that must not change."""

import pytest

from datasets import annotator_archives, archives
from labeltide_bench import datasets as public
from labeltide_bench.datasets import (
    dod_scorers,
    eeg_eye_state,
    har70plus,
    lund2013,
    neonatal_seizure,
    sleep_nights,
    source,
    uci_har,
)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(source, "WAIT_SECONDS", 0)
    monkeypatch.setattr(uci_har, "N_FEATURES", 12)
    monkeypatch.setattr(uci_har, "CLASS_COUNTS", archives.HAR_COUNTS)
    monkeypatch.setattr(eeg_eye_state, "CLASS_COUNTS", archives.EEG_COUNTS)
    monkeypatch.setattr(har70plus, "N_SUBJECTS", len(archives.HAR70_SIZES))
    monkeypatch.setattr(har70plus, "N_ROWS", sum(archives.HAR70_SIZES.values()))
    monkeypatch.setattr(sleep_nights, "N_NIGHTS", len(archives.NIGHTS))
    monkeypatch.setattr(dod_scorers, "N_NIGHTS", {"dodh": 1})
    monkeypatch.setattr(dod_scorers, "N_EPOCHS", len(annotator_archives.few_stages()))
    monkeypatch.setattr(lund2013, "N_TRIALS", 1)
    monkeypatch.setattr(lund2013, "N_SAMPLES", len(annotator_archives.few_gazes()))
    monkeypatch.setattr(neonatal_seizure, "N_RECORDS", 2)
    monkeypatch.setattr(neonatal_seizure, "N_SECONDS", len(annotator_archives.few_marks()))


@pytest.fixture(params=["new", "old"])
def data(tmp_path, request):
    """A data folder that is not there yet, or one with an earlier copy and a file of the user's."""
    folder = tmp_path / "data"
    if request.param == "old":
        for dataset in public.DATASETS.values():
            (folder / dataset.folder).mkdir(parents=True)
            for name in (dataset.files[0], "mine.txt"):
                (folder / dataset.folder / name).write_text("old")
    return folder
