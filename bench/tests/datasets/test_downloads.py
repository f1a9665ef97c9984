import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pyarrow import parquet

from datasets import annotator_archives, archives, edf_writer
from datasets.traces import assert_fails_without_a_trace, content
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

pytestmark = pytest.mark.usefixtures("small")


class Quiet(SimpleHTTPRequestHandler):
    """A file server that can cut answers short."""

    cut: float | None = None

    def log_message(self, *args):
        pass

    def copyfile(self, source, outputfile):
        content = source.read()
        outputfile.write(content if self.cut is None else content[: int(len(content) * self.cut)])


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The official addresses, on this machine and with small archives."""
    pytest.importorskip("pooch")
    folder = tmp_path / "server"
    (folder / "sleep-cassette").mkdir(parents=True)
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
    base = f"http://127.0.0.1:{httpd.server_address[1]}/"
    archives.make_har(folder / "human activity.zip", 12)
    archives.make_eeg(folder / "eeg.zip")
    archives.make_har70(folder / "har70.zip", archives.HAR70_SIZES)
    make_nights(folder)
    annotator_archives.make_dreem(folder / "dreem.zip", annotator_archives.few_stages())
    annotator_archives.make_lund(folder / "lund.zip", annotator_archives.few_gazes())
    annotator_archives.make_neonates(folder / "zenodo", annotator_archives.few_marks())
    for module, name in (
        (uci_har, "human+activity.zip"),
        (eeg_eye_state, "eeg.zip"),
        (har70plus, "har70.zip"),
        (dod_scorers, "dreem.zip"),
        (lund2013, "lund.zip"),
    ):
        monkeypatch.setattr(module, "URL", base + name.replace("+", "%20"))
    monkeypatch.setattr(sleep_nights, "BASE", base)
    monkeypatch.setattr(neonatal_seizure, "URLS", [base + f"zenodo/{name}" for name in neonatal_seizure.NAMES.values()])
    yield folder
    httpd.shutdown()
    httpd.server_close()


def make_nights(folder):
    sums = []
    for name, letter in archives.NIGHTS.items():
        for file in edf_writer.write_night(folder / "sleep-cassette", name, letter):
            sums.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()} sleep-cassette/{file.name}\n")
    (folder / "SHA256SUMS.txt").write_text("".join(sums))


@pytest.mark.parametrize("name", public.DATASETS)
def test_a_fetched_data_set_is_present_and_nothing_else_is_left(tmp_path, server, name):
    data = tmp_path / "deep" / "data"
    seen = []
    folder = public.fetch(name, data, on_progress=lambda *news: seen.append(news))
    assert folder == data / name
    assert sorted(content(data)) == sorted([name, *(f"{name}/{f}" for f in public.DATASETS[name].files)])
    assert {row.name: row.present for row in public.list_datasets(data)}[name]
    assert all(0 <= done <= total for _, done, total in seen)
    assert seen[-1][1] == seen[-1][2] > 0
    for file in folder.glob("*.parquet"):
        assert parquet.read_metadata(file).row_group(0).column(0).compression == "ZSTD"


def test_fetching_again_replaces_its_own_files_and_leaves_others(tmp_path, server):
    folder = tmp_path / "data" / "eeg_eye_state"
    folder.mkdir(parents=True)
    (folder / "eeg_eye_state.parquet").write_text("old")
    (folder / "mine.txt").write_text("mine")
    public.fetch("eeg_eye_state", tmp_path / "data")
    assert parquet.read_metadata(folder / "eeg_eye_state.parquet").num_rows == sum(archives.EEG_COUNTS)
    assert (folder / "mine.txt").read_text() == "mine"
    assert len(content(tmp_path / "data")) == 3


@pytest.mark.parametrize("name", public.DATASETS)
def test_a_half_finished_download_leaves_nothing_behind(data, server, monkeypatch, name):
    monkeypatch.setattr(Quiet, "cut", 0.5)
    assert_fails_without_a_trace(data, name, "could not be downloaded in 3 attempts.*Run it again")


def test_a_missing_file_leaves_nothing_behind(data, server):
    (server / "har70.zip").unlink()
    assert_fails_without_a_trace(data, "har70plus", "404.*or download by hand")


def test_a_broken_connection_is_tried_again(tmp_path, server, monkeypatch):
    retrieve, calls = source.Source._retrieve, []

    def flaky(self, *arguments):
        calls.append(arguments)
        if len(calls) < 3:
            raise ConnectionError("gone")
        return retrieve(self, *arguments)

    monkeypatch.setattr(source.Source, "_retrieve", flaky)
    assert (public.fetch("eeg_eye_state", tmp_path / "data") / "eeg_eye_state.parquet").is_file()
    assert len(calls) == 3


def test_a_wrong_checksum_in_the_last_night_leaves_nothing_behind(data, server):
    file = server / "sleep-cassette" / "SC4012E0-PSG.edf"
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.write_bytes(bytes(changed))
    assert_fails_without_a_trace(data, "sleep_edf", "SC4012E0-PSG.edf could not be downloaded.*hash")


def test_a_missing_night_leaves_nothing_behind(data, server):
    sums = (server / "SHA256SUMS.txt").read_text().splitlines()
    (server / "SHA256SUMS.txt").write_text("\n".join(sums[:2]))
    assert_fails_without_a_trace(data, "sleep_edf", "must name 2 cassette nights. It names 1")


def test_only_one_night_is_on_the_disk_at_a_time(tmp_path, server):
    most = 0

    def count(*news):
        nonlocal most
        most = max(most, len(list((tmp_path / "data").rglob("*-PSG.edf"))))

    public.fetch("sleep_edf", tmp_path / "data", on_progress=count)
    assert most == 1
