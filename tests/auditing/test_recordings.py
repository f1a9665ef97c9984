"""Signals and spans become a table of epochs, from one file, a folder, a manifest, a table of signals or MNE."""

import json
from datetime import date, time

import edfio
import mne
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import labeltide as lt
from auditing.nights import STAGES, stages, write_hypnogram, write_night
from auditing.test_run import stub as stub
from labeltide import UnanswerableError
from labeltide.recordings.epoch_features import field_of
from labeltide.recordings.recordings import RecordingRequest, read_epochs
from labeltide.recordings.spans import delimited
from labeltide.recordings.spans.table import make_spans


def read(source, labels=None, **asked):
    return read_epochs(source, RecordingRequest(labels, **asked))


def test_one_recording_with_its_hypnogram(tmp_path):
    states = write_night(tmp_path, "n01")
    found = read(tmp_path / "n01-PSG.edf", tmp_path / "n01-Hypnogram.edf")
    assert found.table["label"].to_pylist() == states
    assert found.table["onset"].to_pylist() == list(range(0, 1800, 30))
    assert set(found.table["recording"].to_pylist()) == {"n01-PSG"}
    assert {name.split(": ")[0] for name in found.features} == {"EEG Fpz-Cz", "EMG chin"}
    slow = np.array([state.endswith("N2") for state in states])
    delta, alpha = (found.table[f"EEG Fpz-Cz: log {band}"].to_numpy() for band in ("delta", "alpha"))
    assert delta[slow].min() > delta[~slow].max()
    assert alpha[slow].max() < alpha[~slow].min()
    file = found.described["files"][0]
    assert (file["first_row"], file["rows"], file["began"]) == (0, 60, "2024-05-01T22:30:00")
    assert "Epochs of 30 s: every span is a whole number of them." in found.described["messages"]


def test_a_band_holds_the_power_of_its_sine(tmp_path):
    """A sine of amplitude 40 has a power of 800."""
    states = write_night(tmp_path, "n01")
    delta = read(tmp_path / "n01-PSG.edf", tmp_path / "n01-Hypnogram.edf").table["EEG Fpz-Cz: log delta"].to_numpy()
    assert 10 ** delta[states.index("Sleep stage N2")] == pytest.approx(800, rel=0.05)


def test_a_folder_pairs_files_by_the_beginning_of_their_names(tmp_path):
    expected = [state for k in (1, 2) for state in write_night(tmp_path, f"SC400{k}E0", seed=k)]
    for k in (1, 2):  # as in Sleep-EDF: SC4001E0-PSG.edf and SC4001EC-Hypnogram.edf
        (tmp_path / f"SC400{k}E0-Hypnogram.edf").rename(tmp_path / f"SC400{k}EC-Hypnogram.edf")
    found = read(tmp_path)
    assert found.table["label"].to_pylist() == expected
    assert [file["first_row"] for file in found.described["files"]] == [0, 60]
    (tmp_path / "other.csv").write_text("onset,duration,label\n0,30,W\n")
    with pytest.raises(ValueError, match=r"'other.csv' could belong to several recordings: .*List them in a manifest"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("signals", "labels"),
    [
        ("night{}", "night{}_{}"),
        ("n{}", "n{}.{}"),
        ("night{}-PSG", "night{}-{}"),
        ("SC40{}1E0-PSG", "SC40{}1EC-{}"),
        ("sub_{}_psg", "sub-{} ({})"),
    ],
)
def test_in_a_folder_the_rest_of_the_name_of_a_file_is_the_annotator(tmp_path, signals, labels):
    for night in (1, 2, 10):
        write_night(tmp_path, "n", seed=night, labels=False)
        (tmp_path / "n-PSG.edf").rename(tmp_path / f"{signals.format(night)}.edf")
        for who in ("ann", "bob")[: 1 if night == 2 else 2]:
            write_hypnogram(tmp_path / f"{labels.format(night, who)}.edf", stages(night))
    found = read(tmp_path)
    assert found.labels == ["ann", "bob"]
    assert found.table["bob"].null_count == 60
    assert found.table["ann"].null_count == 0


def test_in_a_folder_a_file_named_as_its_recording_has_no_annotator_of_its_own(tmp_path):
    for night in (1, 2):
        write_night(tmp_path, f"n{night}", seed=night)
        spans = make_spans([0], [1800], ["Sleep stage W"])[0]
        delimited.write(spans, tmp_path / f"n{night}-PSG.csv")
    assert read(tmp_path).labels == ["Hypnogram", "label"]


def test_in_a_folder_two_files_of_a_recording_are_never_one_annotator(tmp_path):
    write_night(tmp_path, "night", labels=False)
    for name in ("ann", "bob"):
        write_hypnogram(tmp_path / f"{name}.edf", stages(9))
    assert read(tmp_path).labels == ["ann", "bob"]
    for name in ("ann", "bob"):
        (tmp_path / f"{name}.edf").unlink()
    spans = make_spans([0], [1800], ["Sleep stage W"])[0]
    for end in ("csv", "tsv"):
        delimited.write(spans, tmp_path / f"night-PSG.{end}")
    assert read(tmp_path).labels == ["night-PSG.csv", "night-PSG.tsv"]


def test_a_manifest_names_annotators_and_relative_paths(tmp_path):
    states = write_night(tmp_path, "n01")
    write_hypnogram(tmp_path / "second.edf", stages(9))
    lines = "recording,signals,labels,annotator\n"
    lines += "first,n01-PSG.edf,n01-Hypnogram.edf,ann\nfirst,n01-PSG.edf,second.edf,bob\n"
    (tmp_path / "list.csv").write_text(lines)
    found = read(tmp_path / "list.csv")
    assert found.labels == ["ann", "bob"]
    assert found.table["ann"].to_pylist() == states
    assert set(found.table["recording"].to_pylist()) == {"first"}
    (tmp_path / "list.csv").write_text(lines.replace("first,n01-PSG.edf,second", "first,second.edf,second"))
    with pytest.raises(ValueError, match=r"A recording has one file of signals"):
        read(tmp_path / "list.csv")


def test_several_files_of_labels_are_several_annotators(tmp_path):
    write_night(tmp_path, "n01")
    write_hypnogram(tmp_path / "second.edf", stages(9))
    found = read(tmp_path / "n01-PSG.edf", f"{tmp_path}/n01-Hypnogram.edf,{tmp_path}/second.edf")
    assert found.labels == ["n01-Hypnogram", "second"]


@pytest.mark.parametrize(("day", "minute", "shift"), [(1, 31, 2), (1, 29, -2), (9, 31, 0)])
def test_labels_that_begin_at_another_moment_are_moved(tmp_path, day, minute, shift):
    write_night(tmp_path, "n01", labels=False)
    about = {"recording": edfio.Recording(startdate=date(2024, 5, day)), "starttime": time(22, minute)}
    states = stages(5)
    write_hypnogram(tmp_path / "later.edf", states, **about)
    found = read(tmp_path / "n01-PSG.edf", tmp_path / "later.edf", epoch=30)
    labels = [STAGES[state] for state in states]
    expected = [labels[k - shift] if 0 <= k - shift < 60 else None for k in range(60)]
    assert found.table["label"].to_pylist() == expected
    assert any("later.edf" in message for message in found.described["messages"])


def test_signals_from_a_table_with_spans_of_behaviour(tmp_path):
    t = np.arange(0, 60, 0.04)
    walks = (t % 20) < 10
    table = {"time": t, "acc_x": np.where(walks, np.sin(4 * np.pi * t), 0.0), "acc_y": t * 0, "acc_z": t * 0 + 1}
    parquet.write_table(pa.table(table), tmp_path / "cage.parquet")
    spans = make_spans([0, 20, 40], [10, 10, 10], ["walk"] * 3, None, "cage")[0]
    delimited.write(spans, tmp_path / "spans.csv")
    found = read(tmp_path / "cage.parquet", tmp_path / "spans.csv", epoch=1.0)
    labels = found.table["label"].to_pylist()
    assert labels == [("walk" if k % 20 < 10 else None) for k in range(60)]
    assert found.table["acc_x: dominant frequency"][0].as_py() == pytest.approx(2, abs=0.1)
    assert {"magnitude: mean", "magnitude: sd"} <= set(found.features)
    assert any(message.startswith("30 epochs of 1 s without a label") for message in found.described["messages"])


def test_a_table_of_several_recordings_takes_spans_by_name(tmp_path):
    t = np.tile(np.arange(10.0), 2)
    csv.write_csv(pa.table({"animal": np.repeat(["a", "b"], 10), "time": t, "v": t}), tmp_path / "all.csv")
    spans = make_spans([0, 0], [10, 5], ["run", "rest"], None, ["a", "b"])[0]
    found = read(tmp_path / "all.csv", spans, epoch=1.0)
    assert found.table["label"].to_pylist() == ["run"] * 10 + ["rest"] * 5 + [None] * 5
    assert found.features == ["v: mean"]  # one sample in an epoch


def write_mice(folder, names, spans):
    """A table of the signals of several mice, and aggregated events of BORIS: (observation, subject, behaviour)."""
    t = np.tile(np.arange(10.0), len(names))
    csv.write_csv(pa.table({"recording": np.repeat(names, 10), "time": t, "v": t}), folder / "mice.csv")
    lines = ["Observation id,Subject,Behavior,Behavior type,Start (s),Stop (s)"]
    lines += [f"{observation},{subject},{behaviour},STATE,0,10" for observation, subject, behaviour in spans]
    (folder / "boris.csv").write_text("\n".join(lines))
    return folder / "mice.csv", folder / "boris.csv"


def test_labels_of_recordings_that_the_signals_lack_are_counted_and_named(tmp_path):
    files = write_mice(tmp_path, ["mouse1", "mouse2"], [("mouse1", "", "run"), ("Mouse 2", "", "rest")])
    found = read(*files, epoch=1.0)
    assert found.table["label"].to_pylist() == ["run"] * 10 + [None] * 10
    message = "1 span of recordings without signals left out: 'Mouse 2'."
    assert message in found.described["messages"]


@pytest.mark.parametrize("others", [[], [("Mouse2", "", "rest"), ("Mouse3", "", "rest"), ("Mouse4", "", "rest")]])
def test_where_no_name_matches_both_sides_are_named(tmp_path, others):
    files = write_mice(tmp_path, ["mouse1", "mouse2"], [("Mouse1", "", "run"), *others])
    with pytest.raises(
        UnanswerableError, match=r"The labels name 'Mouse1'.*, the signals 'mouse1' and 'mouse2'\..*mani"
    ):
        read(*files, epoch=1.0)


def test_an_observation_with_one_subject_is_found_by_its_own_name(tmp_path):
    events = [("o1", "a", "run"), ("o2", "a", "rest"), ("o2", "b", "run"), ("o3", "b", "rest")]
    found = read(*write_mice(tmp_path, ["o1", "o2", "o3", "o2 b"], events), epoch=1.0)
    assert found.table["label"].to_pylist() == ["run"] * 10 + [None] * 10 + ["rest"] * 10 + ["run"] * 10
    message = found.described["messages"]
    assert "Observations with one subject go by the observation alone: 'o1' and 'o3'." in message
    assert "1 span of recordings without signals left out: 'o2 a'." in message


def test_uneven_times_are_moved_and_gaps_are_missing(tmp_path):
    t = np.array([0, 1, 2, 3.2, 10, 11, 12])
    csv.write_csv(pa.table({"time": t, "v": t}), tmp_path / "a.csv")
    found = read(tmp_path / "a.csv", make_spans([0], [13], ["x"])[0], epoch=1.0)
    assert found.table["v: mean"].to_pylist()[:6] == [0, 1, 2, 3.2, None, None]
    assert any("moved by up to 0.2 s" in message for message in found.described["messages"])


def test_own_features_and_their_rule(tmp_path):
    write_night(tmp_path, "n01")
    source, labels = tmp_path / "n01-PSG.edf", tmp_path / "n01-Hypnogram.edf"
    found = read(
        source, labels, features=lambda samples, rates: {"sd": samples["EMG chin"].std(), "r": rates["EMG chin"]}
    )
    assert found.features == ["sd", "r"]
    assert found.table["r"].to_pylist() == [50.0] * 60
    with pytest.raises(ValueError, match="at least one named number"):
        read(source, labels, features=lambda samples, rates: {})


def test_a_raw_of_mne_is_a_recording():
    info = mne.create_info(["Cz"], 100, ["eeg"])
    raw = mne.io.RawArray(np.random.default_rng(0).normal(0, 1e-5, (1, 12_000)), info, verbose=False)
    raw.set_annotations(mne.Annotations([0, 60], [60, 60], ["W", "N1"]))
    found = read(raw, epoch=30)
    assert found.table["label"].to_pylist() == ["W", "W", "N1", "N1"]


@pytest.mark.parametrize(
    ("name", "unit", "field"),
    [
        ("EEG Fpz-Cz", "uV", "eeg"),
        ("C4-M1", "", "eeg"),
        ("EOG left", "uV", "eeg"),
        ("ECG", "mV", "ecg"),
        ("EMG submental", "uV", "muscle"),
        ("acc_x", "", "movement"),
        ("wrist", "g", "movement"),
        ("gaze_x", "deg", "gaze"),
        ("Temp rectal", "DegC", "plain"),
    ],
)
def test_the_field_of_a_channel(name, unit, field):
    assert field_of(name, unit) == field
    assert field_of(name, unit, "plain") == "plain"


@pytest.mark.parametrize("field", ["eeg", "muscle", "ecg", "movement", "gaze", "plain", "sleep"])
def test_every_field_gives_features_of_flat_and_missing_signals(tmp_path, field):
    t = np.arange(0, 30, 0.01)
    v = np.where(t < 10, 0.0, np.sin(2 * np.pi * t))
    csv.write_csv(
        pa.table({"time": t, "v": pa.array(np.where(t > 20, np.nan, v), from_pandas=True)}), tmp_path / "a.csv"
    )
    found = read(tmp_path / "a.csv", make_spans([0], [30], ["x"])[0], epoch=10.0, field=field)
    assert found.table.num_rows == 3
    for name in found.features:
        values = found.table[name].to_numpy(zero_copy_only=False).astype(float)
        assert not np.isinf(values).any()


def test_heart_rate_of_a_made_up_ecg(tmp_path):
    t = np.arange(0, 60, 0.004)
    csv.write_csv(pa.table({"time": t, "ECG": np.exp(-(((t % 0.8) - 0.4) ** 2) / 2e-4)}), tmp_path / "a.csv")
    found = read(tmp_path / "a.csv", make_spans([0], [60], ["x"])[0], epoch=30.0)
    assert found.table["ECG: heart rate"].to_pylist() == pytest.approx([75, 75], rel=0.01)


def test_an_audit_of_a_recording_keeps_what_the_way_back_needs(tmp_path, stub):
    for k in range(4):
        write_night(tmp_path, f"n{k}", seed=k)
    result = lt.audit(tmp_path, out=tmp_path / "out", clock="hour_of_day")
    audit = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert audit["recordings"]["epoch"] == 30
    assert [file["recording"] for file in audit["recordings"]["files"]] == [f"n{k}-PSG" for k in range(4)]
    assert audit["table"]["columns"]["sequence"] == "recording"
    assert any("Epochs of 30 s" in message for message in audit["table"]["messages"])
    assert result.labels["time"][0].as_py().startswith("2024-05-01 22:30")


def test_what_cannot_be_audited_is_said(tmp_path):
    write_night(tmp_path, "n01")
    source, labels = tmp_path / "n01-PSG.edf", tmp_path / "n01-Hypnogram.edf"
    with pytest.raises(UnanswerableError, match="none were found in the recordings"):
        read(source)
    with pytest.raises(ValueError, match=r"must hold signals. It holds annotations alone"):
        read(labels)
    with pytest.raises(ValueError, match="lasts 1800 s, less than an epoch of 3600 s"):
        read(source, labels, epoch=3600)
    with pytest.raises(FileNotFoundError, match=r"There is no file 'nowhere.edf'"):
        read(source, "nowhere.edf")
    with pytest.raises(ValueError, match="epoch must be"):
        read(source, labels, epoch=0)
    with pytest.raises(ValueError, match="field"):
        read(source, labels, field="dance")
    with pytest.raises(ValueError, match="are for recordings"):
        lt.audit(pa.table({"a": [1]}), epoch=30)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="It holds none with signals"):
        read(tmp_path / "none")


@pytest.mark.parametrize("times", ["Time", "Start (s),Stop (s),Duration (s)"])
def test_an_export_of_boris_in_place_of_a_table_is_refused_by_its_name(tmp_path, times):
    header = f"Observation id,Subject,Behavior,Behavior type,{times}\n"
    (tmp_path / "KL.csv").write_text(header + "o1,a,rest,START,0,1,1\no1,a,rest,STOP,1,2,1\n")
    with pytest.raises(ValueError, match=r"'KL.csv' is an export of BORIS.*--labels KL.csv"):
        lt.audit(tmp_path / "KL.csv")
