"""What is written is read back label for label, and what the libraries of each format write is read as it is."""

import csv
import json
from datetime import datetime

import edfio
import mne
import numpy as np
import pympi
import pytest
import wfdb
from praatio import textgrid as praat

from labeltide.recordings.spans.formats import ADAPTERS, adapter_of, from_raw, read_spans
from labeltide.recordings.spans.table import make_spans
from spans.some_spans import ASCII, differences, random_spans

delimited, edf, elan, label_studio = (ADAPTERS[name] for name in ("csv", "edf", "elan", "labelstudio"))
mne_annotations, nsrr, textgrid, wfdb_notes = (ADAPTERS[name] for name in ("mne", "nsrr", "textgrid", "wfdb"))
NAMES = ("onset", "duration", "label")
# format → file, what write takes, what random_spans takes, tolerance
FORMATS = {
    "csv": (delimited, "n.csv", {}, {"annotators": ("ann", "bob")}, 0),
    "tsv": (delimited, "n.tsv", {}, {"annotators": ("ann", "bob")}, 0),
    "bids": (delimited, "n_events.tsv", {"bids": True}, {"annotators": ("ann", "bob")}, 0),
    "raven": (ADAPTERS["raven"], "n.txt", {}, {}, 1e-9),
    "audacity": (ADAPTERS["audacity"], "n.txt", {}, {}, 1e-6),
    "edf": (edf, "n.edf", {}, {}, 0),
    "label studio": (label_studio, "n.json", {}, {"annotators": ("ann", "bob")}, 1e-9),
    "label studio export": (label_studio, "n.json", {"annotations": True}, {"annotators": ("7", "a@b.c")}, 1e-9),
    "nsrr": (nsrr, "n.xml", {}, {}, 0),
    "elan": (elan, "n.eaf", {}, {"annotators": (None, "bob")}, 1e-9),
    "textgrid": (textgrid, "n.TextGrid", {}, {"annotators": (None, "bob")}, 1e-9),
    "wfdb": (wfdb_notes, "n.ann", {"rate": 1000}, {"annotators": ("ann",), "labels": ASCII}, 1e-9),
    "mne": (mne_annotations, "n-annot.fif", {}, {"digits": 2}, 1e-4),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("gaps", [True, False])
def test_written_spans_are_read_back(tmp_path, name, gaps):
    adapter, file, options, kind, tolerance = FORMATS[name]
    spans = random_spans(1, gaps=gaps, **kind)
    adapter.write(spans, tmp_path / file, **options)
    assert differences(read_spans(tmp_path / file).spans, spans, tolerance=tolerance) == 0
    assert adapter_of(tmp_path / file).read_file is adapter.read_file


@pytest.mark.parametrize(
    "name", ["csv", "bids", "raven", "audacity", "edf", "label studio", "nsrr", "textgrid", "wfdb", "mne"]
)
def test_events_without_duration_are_read_back(tmp_path, name):
    adapter, file, options, _, tolerance = FORMATS[name]
    annotator = "ann" if name == "wfdb" else None
    spans = make_spans([1.0, 5.0, 9.5], [0, 4, 0], ["a", "b", "c"], annotator, "n")[0]
    adapter.write(spans, tmp_path / file, **options)
    assert differences(adapter.read(tmp_path / file).spans, spans, tolerance=tolerance) == 0


def test_edf_of_edfio_with_signals(tmp_path):
    spans = random_spans(2)
    notes = [edfio.EdfAnnotation(*line) for line in zip(*(spans[name].to_pylist() for name in NAMES), strict=True)]
    data = np.sin(np.arange(100 * 60))
    signal = edfio.EdfSignal(data, 100, label="EEG Fpz-Cz", physical_dimension="uV")
    about = edfio.Recording(startdate=datetime(2024, 5, 1).date())
    edfio.Edf([signal], annotations=notes, recording=about, starttime=datetime(2024, 5, 1, 22, 30).time()).write(
        tmp_path / "n.edf"
    )
    found = edf.read(tmp_path / "n.edf")
    assert differences(found.spans, spans) == 0
    assert found.start == datetime(2024, 5, 1, 22, 30)
    (channel,) = found.signals
    assert (channel.name, channel.unit, channel.rate, channel.count) == ("EEG Fpz-Cz", "uV", 100, 6000)
    np.testing.assert_allclose(channel.load(250, 450), data[250:450], atol=1e-4)


def test_a_written_edf_begins_when_its_recording_does(tmp_path):
    start = datetime(2024, 5, 1, 22, 30, 15)
    edf.write(random_spans(3), tmp_path / "n.edf", start=start)
    assert edf.read(tmp_path / "n.edf").start == start


def test_elan_of_pympi(tmp_path):
    document = pympi.Elan.Eaf(author="someone")
    document.add_tier("child", parent=None)
    for tier, start, end, label in (
        ("default", 0, 1500, "rest"),
        ("child", 1500, 2250, "größe"),
        ("child", 1600, 3000, "x"),
    ):
        document.add_annotation(tier, start, end, label)
    document.to_file(tmp_path / "n.eaf")
    found = elan.read(tmp_path / "n.eaf").spans
    assert found["label"].to_pylist() == ["größe", "x", "rest"]
    assert found["annotator"].to_pylist() == ["child", "child", "default"]
    assert found["onset"].to_pylist() == [1.5, 1.6, 0.0]


@pytest.mark.parametrize("form", ["short_textgrid", "long_textgrid"])
def test_textgrids_of_praatio(tmp_path, form):
    document = praat.Textgrid()
    document.addTier(praat.IntervalTier("words", [(0, 1.5, "a b"), (2, 2.5, 'q"t')], 0, 3))
    document.addTier(praat.PointTier("clicks", [(0.25, "click")], 0, 3))
    document.save(str(tmp_path / "n.TextGrid"), form, includeBlankSpaces=True)
    found = textgrid.read(tmp_path / "n.TextGrid").spans
    assert list(zip(*(found[name].to_pylist() for name in (*NAMES, "annotator")), strict=True)) == [
        (0.25, 0.0, "click", "clicks"),
        (0.0, 1.5, "a b", "words"),
        (2.0, 0.5, 'q"t', "words"),
    ]


def test_wfdb_of_wfdb_with_beats_rhythms_and_signals(tmp_path):
    wfdb.wrsamp(
        "r1", fs=250, units=["mV"], sig_name=["ECG"], p_signal=np.ones((2500, 1)), fmt=["16"], write_dir=tmp_path
    )
    wfdb.wrann(
        "r1",
        "atr",
        np.array([0, 100, 500, 1250]),
        symbol=["+", "N", "V", "+"],
        aux_note=["(N", "", "", "(AFIB"],
        write_dir=str(tmp_path),
    )
    found = wfdb_notes.read(tmp_path / "r1.atr").spans
    assert list(zip(*(found[name].to_pylist() for name in NAMES), strict=True)) == [
        (0.0, 5.0, "N"),
        (0.4, 0.0, "N"),
        (2.0, 0.0, "V"),
        (5.0, 5.0, "AFIB"),
    ]
    (channel,) = wfdb_notes.read(tmp_path / "r1.hea").signals
    assert (channel.name, channel.rate, channel.count) == ("ECG", 250, 2500)
    np.testing.assert_allclose(channel.load(100, 200), 1, atol=1e-3)


def test_a_stage_of_physionet_at_sample_0_vanishes_in_wfdb_and_ours_does_not(tmp_path):
    wfdb.wrann("s", "st", np.array([0, 300]), symbol=['"', '"'], aux_note=["W", "2"], fs=10, write_dir=str(tmp_path))
    assert wfdb_notes.read(tmp_path / "s.st").spans["label"].to_pylist() == ["2"]
    spans = make_spans([0, 30], [30, 30], ["W", "2"], "ann", "s")[0]
    assert wfdb_notes.write(spans, tmp_path / "s.ann", rate=10) == ()
    assert differences(wfdb_notes.read(tmp_path / "s.ann").spans, spans) == 0
    event = make_spans([0.0], [0.0], ["lights off"], "ann", "s")[0]
    (message,) = wfdb_notes.write(event, tmp_path / "t.ann", rate=10)
    assert "sample 0 written at sample 1" in message
    assert wfdb_notes.read(tmp_path / "t.ann").spans["onset"].to_pylist() == [0.1]


def test_mne_annotations_and_raw(tmp_path):
    raw = mne.io.RawArray(
        np.full((2, 6000), 2e-5), mne.create_info(["Fpz", "chin"], 100, ["eeg", "emg"]), verbose=False
    )
    raw.set_annotations(mne.Annotations([1.5, 30], [3, 10], ["W", "N1"]))
    raw.crop(1.0)  # onsets now count from a first sample that is not 0
    raw.save(tmp_path / "n_raw.fif", verbose=False)
    for found in (from_raw(raw), mne_annotations.read(tmp_path / "n_raw.fif")):
        assert found.spans["onset"].to_pylist() == pytest.approx([0.5, 29])
        assert found.signals[0].unit == "uV"
        np.testing.assert_allclose(found.signals[0].load(0, 10), 20, rtol=1e-6)


def test_bids_events_with_na(tmp_path):
    (tmp_path / "sub-01_events.tsv").write_text("onset\tduration\ttrial_type\n0\t30\tW\n30\tn/a\tclick\n40\t5\tn/a\n")
    found = delimited.read(tmp_path / "sub-01_events.tsv")
    assert found.spans["duration"].to_pylist() == [30, 0]
    assert found.spans["recording"].to_pylist() == ["sub-01_events"] * 2
    assert found.messages == ("1 span without a label left out.",)


def test_none_is_a_behaviour_and_na_is_missing(tmp_path):
    spans = make_spans([0, 1, 2], [1, 1, 1], ["none", "NA", "null"], None, "n")[0]
    delimited.write(spans, tmp_path / "n.csv")
    assert differences(delimited.read(tmp_path / "n.csv").spans, spans) == 0
    with pytest.raises(ValueError, match="n/a stands for what is missing"):
        delimited.write(make_spans([0], [1], ["n/a"])[0], tmp_path / "n.csv")


def test_starts_and_ends_with_other_names_and_separators(tmp_path):
    (tmp_path / "a.csv").write_text("Start;End;Stage;Scorer\n0;30;W;ann\n30,5;60;N1;ann\n")
    found = delimited.read(tmp_path / "a.csv").spans
    assert (found["onset"].to_pylist(), found["duration"].to_pylist()) == ([0, 30.5], [30, 29.5])
    assert found["annotator"].to_pylist() == ["ann", "ann"]


BORIS = ["Observation id", "Observation date", "Subject", "Behavior", "Behavioral category", "Behavior type"]


def test_boris_aggregated_events(tmp_path):
    lines = [[*BORIS, "Start (s)", "Stop (s)", "Duration (s)"]]
    lines += [["cage 1", "2024", "mouse A", "groom", "", "STATE", "1.5", "4.0", "2.5"]]
    lines += [["cage 1", "2024", "mouse A", "sniff", "", "POINT", "5.25", "5.25", "0"]]
    with (tmp_path / "b.tsv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(lines)
    found = delimited.read(tmp_path / "b.tsv").spans
    assert found["label"].to_pylist() == ["groom", "sniff"]
    assert found["duration"].to_pylist() == [2.5, 0]
    assert found["recording"].to_pylist() == ["cage 1 mouse A", "cage 1 mouse A"]


@pytest.mark.parametrize("duration", ["NA", "nan", ""])
def test_point_events_among_aggregated_events_of_boris_are_events(tmp_path, duration):
    lines = [[*BORIS, "Start (s)", "Stop (s)", "Duration (s)"]]
    lines.append(["o1", "2026-01-01", "a", "rest", "", "STATE", "0.000", "4.500", "4.500"])
    lines.append(["o1", "2026-01-01", "a", "squeak", "", "POINT", "2.000", "2.000", duration])
    (tmp_path / "o1.csv").write_text("\n".join(",".join(line) for line in lines))
    found = delimited.read(tmp_path / "o1.csv")
    assert found.spans["duration"].to_pylist() == [4.5, 0.0]
    assert found.messages == ()


@pytest.mark.parametrize("tabular", [False, True])
def test_subjects_of_one_observation_are_recordings_in_both_exports_of_boris(tmp_path, tabular):
    lines = [[*BORIS, *(["Time"] if tabular else ["Start (s)", "Stop (s)", "Duration (s)"])]]
    for subject, behaviour in [("a", "walk"), ("b", "rest"), ("No focal subject", "rain"), ("", "rain")]:
        head = ["o1", "2025-05-01 10:00:00", subject, behaviour, ""]
        events = [["START", "0"], ["STOP", "10"]] if tabular else [["STATE", "0", "10", "10"]]
        lines += [[*head, *event] for event in events]
    with (tmp_path / "o.tsv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(lines)
    found = delimited.read(tmp_path / "o.tsv")
    assert found.spans["recording"].to_pylist() == ["o1", "o1", "o1 a", "o1 b"]
    assert found.observations == {"o1": "o1", "o1 a": "o1", "o1 b": "o1"}


@pytest.mark.parametrize("preface", [[], [["Observation id", "cage 1"], ["Media file(s)"], ["Player #1", "a.avi"]]])
def test_boris_tabular_events_are_joined(tmp_path, preface):
    lines = [*preface, [*BORIS, "Time"]]
    for subject, behaviour, kind, time in [
        ("A", "groom", "START", "1.5"),
        ("B", "groom", "START", "2"),
        ("A", "groom", "STOP", "4"),
        ("A", "sniff", "POINT", "5"),
        ("B", "groom", "STOP", "6"),
        ("B", "rear", "START", "7"),
    ]:
        lines.append(["cage", "2024", subject, behaviour, "", kind, time])
    with (tmp_path / "b.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    found = delimited.read(tmp_path / "b.csv")
    assert list(zip(*(found.spans[n].to_pylist() for n in (*NAMES, "recording")), strict=True)) == [
        (1.5, 2.5, "groom", "cage A"),
        (5.0, 0.0, "sniff", "cage A"),
        (2.0, 4.0, "groom", "cage B"),
    ]
    assert found.messages == ("1 line of BORIS without a matching start or stop left out.",)


def test_projects_of_boris_hold_states_and_points_of_each_observation(tmp_path):
    boris = ADAPTERS["boris"]
    onset, duration, label = [0, 4, 5, 2], [4, 2, 3, 0], ["groom", "rest", "groom", "squeak"]
    spans = make_spans(onset, duration, label, ["ann"] * 4, ["o1"] * 3 + ["o2"])[0]
    assert boris.write(spans, tmp_path / "p.boris") == ()
    project = json.loads((tmp_path / "p.boris").read_text())
    assert {each["code"]: each["type"] for each in project["behaviors_conf"].values()} == {
        "groom": "State event",
        "rest": "State event",
        "squeak": "Point event",
    }
    assert project["behavioral_categories_config"] == {}  # BORIS 9 adds it and calls the project changed
    found = boris.read(tmp_path / "p.boris")
    assert differences(found.spans, spans, annotators=False) == 0
    assert found.observations == {"o1 ann": "o1 ann", "o2 ann": "o2 ann"}
    project["observations"]["o1 ann"]["events"][0][1] = project["observations"]["o1 ann"]["events"][1][1] = "mouse A"
    (tmp_path / "q.boris").write_text(json.dumps(project))
    assert set(boris.read(tmp_path / "q.boris").observations) >= {"o1 ann mouse A", "o1 ann"}


def test_touching_spans_of_a_behaviour_are_one_in_boris_which_could_not_tell_their_ends(tmp_path):
    spans = make_spans([0, 4, 9], [4, 3, 1], ["groom"] * 3, None, "o1")[0]
    (message,) = ADAPTERS["boris"].write(spans, tmp_path / "p.boris")
    assert message.startswith("1 spans of BORIS joined")
    found = read_spans(tmp_path / "p.boris").spans
    assert (found["onset"].to_pylist(), found["duration"].to_pylist()) == ([0, 9], [7, 1])
    mixed = make_spans([0, 9], [4, 0], ["groom"] * 2, None, "o1")[0]
    with pytest.raises(ValueError, match="state or a point event"):
        ADAPTERS["boris"].write(mixed, tmp_path / "q.boris")


def test_selections_of_raven_count_once_whatever_the_views(tmp_path):
    head = "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tSpecies"
    lines = [f"{k}\t{view} 1\t1\t{k}.5\t{k}.75\t100\t900\tgwwa" for k in (1, 2) for view in ("Waveform", "Spectrogram")]
    (tmp_path / "r.txt").write_text("\n".join([head, *lines]))
    found = read_spans(tmp_path / "r.txt").spans
    assert list(zip(*(found[name].to_pylist() for name in NAMES), strict=True)) == [
        (1.5, 0.25, "gwwa"),
        (2.5, 0.25, "gwwa"),
    ]


def test_label_tracks_of_audacity_with_frequencies_and_decimal_commas(tmp_path):
    (tmp_path / "a.txt").write_text("0.500000\t1.250000\tsong, long\n\\\t100.0\t900.0\n2.000000\t2.000000\tclick\n")
    (tmp_path / "b.txt").write_text("0,500000\t1,250000\tsong, long\n2,000000\t2,000000\tclick\n")
    for name in ("a.txt", "b.txt"):
        found = read_spans(tmp_path / name).spans
        lines = list(zip(*(found[name].to_pylist() for name in NAMES), strict=True))
        assert lines == [(0.5, 0.75, "song, long"), (2.0, 0.0, "click")]


@pytest.mark.parametrize("name", ["bids", "nwb"])
def test_annotators_and_their_confidence_are_read_back(tmp_path, name):
    adapter, file, options = delimited, "n_events.tsv", {"bids": True}
    if name != "bids":
        adapter, file, options = ADAPTERS[name], f"n.{name}", {}
        pytest.importorskip(adapter.library[0])
    spans = make_spans([0, 4.5, 9], [4.5, 1, 2], ["a", "b", "a"], ["x", None, "y"], "n", [0.25, None, 1.0])[0]
    adapter.write(spans, tmp_path / file, **options)
    found = adapter.read(tmp_path / file).spans
    assert differences(found, spans) == 0
    assert found["confidence"].to_pylist() == spans["confidence"].to_pylist()


def test_nwb_begins_when_its_recording_does_and_other_tables_are_left_out(tmp_path):
    pynwb = pytest.importorskip("pynwb")
    start = datetime(2024, 5, 1, 22, 30, 15)
    content = pynwb.NWBFile(session_description="x", identifier="x", session_start_time=start.astimezone())
    content.add_trial(start_time=1.0, stop_time=2.0)
    bouts = pynwb.epoch.TimeIntervals(name="ann", description="bouts")
    bouts.add_column("behavior", "what the mouse does")
    bouts.add_interval(3.0, 4.5, behavior="groom")
    content.add_time_intervals(bouts)
    with pynwb.NWBHDF5IO(str(tmp_path / "n.nwb"), "w") as file:
        file.write(content)
    found = read_spans(tmp_path / "n.nwb")
    assert found.start == start
    assert [found.spans[name].to_pylist() for name in (*NAMES, "annotator")] == [[3.0], [1.5], ["groom"], ["ann"]]
    ADAPTERS["nwb"].write(found.spans, tmp_path / "m.nwb", start=start)
    assert read_spans(tmp_path / "m.nwb").start == start


def test_events_of_sleap_last_to_the_end_of_their_last_frame(tmp_path):
    sleap = pytest.importorskip("sleap_io")
    video = sleap.Video(filename="cage 1.mp4", open_backend=False)
    mouse = sleap.Track(name="mouse1")
    events = [
        sleap.UserEvent(type="rear", video=video, start_frame=0, end_frame=29, subject=mouse),
        sleap.PredictedEvent(type="groom", video=video, start_frame=30, end_frame=30, score=0.5),
    ]
    labels = sleap.Labels(videos=[video], tracks=[mouse], events=events)
    sleap.save_file(labels, str(tmp_path / "s.slp"))
    with pytest.raises(ValueError, match="Give it as rate="):
        read_spans(tmp_path / "s.slp")
    found = read_spans(tmp_path / "s.slp", rate=30).spans
    assert found["recording"].to_pylist() == ["cage 1", "cage 1 mouse1"]
    assert found["duration"].to_pylist() == pytest.approx([1 / 30, 1.0])
    assert found["annotator"].to_pylist() == ["predicted", None]
    assert found["confidence"].to_pylist() == [0.5, None]


def test_exports_of_label_studio(tmp_path):
    region = {"start": 3, "end": 7.5, "instant": False, "timeserieslabels": ["Run", "Fast"]}
    other = {"type": "choices", "value": {"choices": ["good"]}}
    labelled = {"type": "timeserieslabels", "from_name": "label", "to_name": "ts", "value": region}
    annotation = {"completed_by": {"email": "a@b.c"}, "result": [labelled, other]}
    task = {"id": 1, "data": {"csv": "/data/run.csv"}, "annotations": [annotation], "predictions": []}
    minimal = {"id": 1, "csv": "/data/run.csv", "label": [region], "annotator": 3}
    for content, who in ((task, "a@b.c"), (minimal, "3")):
        (tmp_path / "e.json").write_text(json.dumps([content]))
        found = label_studio.read(tmp_path / "e.json").spans
        assert found["label"].to_pylist() == ["Run", "Fast"]
        assert found["duration"].to_pylist() == [4.5, 4.5]
        assert found["annotator"].to_pylist() == [who] * 2
        assert found["recording"].to_pylist() == ["/data/run.csv"] * 2


def test_nsrr_stages_without_apnoeas(tmp_path):
    event = "<ScoredEvent><EventType>{}</EventType><EventConcept>{}</EventConcept>"
    event += "<Start>{}</Start><Duration>{}</Duration></ScoredEvent>"
    events = event.format("Stages|Stages", "Stage 2 sleep|2", 0, 60) + event.format(
        "Respiratory|Respiratory", "Hypopnea|Hypopnea", 10, 20
    )
    (tmp_path / "n.xml").write_text(
        f"<?xml version='1.0'?><PSGAnnotation><ScoredEvents>{events}</ScoredEvents></PSGAnnotation>"
    )
    found = nsrr.read(tmp_path / "n.xml")
    assert found.spans["label"].to_pylist() == ["Stage 2 sleep"]
    assert found.messages == ("1 events other than sleep stages left out.",)
    assert nsrr.read(tmp_path / "n.xml", events="all").spans["label"].to_pylist() == [
        "Stage 2 sleep",
        "Hypopnea|Hypopnea",
    ]


@pytest.mark.parametrize("name", ["spans.csv", "spans.tsv"])
def test_names_that_differ_by_a_blank_stay_two(tmp_path, name):
    spans, messages = make_spans([0, 1, 0], [1, 1, 1], ["a", "b", "a"], ["x", "x ", "x"], ["p0", "p0", "p0 "])
    assert messages == ()
    assert spans["recording"].unique().to_pylist() == ["p0", "p0 "]
    delimited.write(spans, tmp_path / name)
    assert read_spans(tmp_path / name).spans.equals(spans)


def test_blanks_around_names_go_where_they_tell_nothing_apart(tmp_path):
    (tmp_path / "spans.csv").write_text("onset,duration,label,annotator,recording\n0,1,a, x,p0 \n1,1,b, x,p0 \n")
    found = read_spans(tmp_path / "spans.csv").spans
    assert (found["annotator"].unique().to_pylist(), found["recording"].unique().to_pylist()) == (["x"], ["p0"])
