"""Bad and hostile files end in a sentence; spans that a format cannot hold are refused before anything is written."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labeltide.recordings.spans.formats import ADAPTERS, read_spans
from labeltide.recordings.spans.table import make_spans
from spans.some_spans import ASCII, random_spans
from spans.test_round_trips import FORMATS, edf, elan, mne_annotations, nsrr, textgrid, wfdb_notes

ENDS = ["csv", "tsv", "edf", "bdf", "json", "xml", "eaf", "TextGrid", "atr", "hea", "fif"]
LAUGHS = '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><PSGAnnotation>&b;</PSGAnnotation>'


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("content", [b"", b"\x00\x01broken", b"\xff" * 300, b"[[[1", b"<a><b></a>", b"0" * 600])
def test_a_broken_file_ends_in_a_sentence(tmp_path, end, content):
    (tmp_path / f"n.{end}").write_bytes(content)
    with pytest.raises(ValueError, match=r"^The file .* cannot be read as [^\n]*\.$"):
        read_spans(tmp_path / f"n.{end}")


@pytest.mark.parametrize("end", ENDS)
def test_a_file_that_is_not_there_is_said(tmp_path, end):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_spans(tmp_path / f"n.{end}")


def test_an_unknown_ending_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"A file of labels must end in one of .csv, .*Got .*n.docx"):
        read_spans(tmp_path / "n.docx")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_read_or_refused(tmp_path, name, data):
    adapter, file, options, kind, _ = FORMATS[name]
    adapter.write(random_spans(1, count=4, **kind), tmp_path / file, **options)
    content = bytearray((tmp_path / file).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(content)))
    (tmp_path / file).write_bytes(bytes(content[:cut]))
    try:
        spans = adapter.read(tmp_path / file).spans
    except (ValueError, OSError):
        return
    assert np.isfinite(spans["onset"].to_numpy()).all()
    assert spans["label"].null_count == 0


@pytest.mark.parametrize("end", ["xml", "eaf"])
def test_entities_are_refused(tmp_path, end):
    (tmp_path / f"n.{end}").write_text(LAUGHS)
    with pytest.raises(ValueError, match="document type declarations and entities are not allowed"):
        read_spans(tmp_path / f"n.{end}")


def test_deep_xml_and_deep_json_are_refused(tmp_path):
    (tmp_path / "n.xml").write_text("<a>" * 500 + "</a>" * 500)
    with pytest.raises(ValueError, match="more than 100 deep"):
        read_spans(tmp_path / "n.xml")
    (tmp_path / "n.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="cannot be read as a Label Studio export"):
        read_spans(tmp_path / "n.json")


def test_dates_of_label_studio_are_refused_with_the_way_out(tmp_path):
    region = {"value": {"start": "2024-01-01 10:00", "end": "2024-01-01 10:01", "timeserieslabels": ["a"]}}
    (tmp_path / "n.json").write_text(json.dumps([{"data": {}, "annotations": [{"result": [region]}]}]))
    with pytest.raises(
        ValueError, match=r"'2024-01-01 10:00', which is not a number of seconds. Export with a time column"
    ):
        read_spans(tmp_path / "n.json")


def test_a_table_without_the_columns_of_spans_is_refused(tmp_path):
    (tmp_path / "n.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"no line names the columns of spans. They are onset"):
        read_spans(tmp_path / "n.csv")
    (tmp_path / "n.csv").write_text("onset,label\n1,2\n")
    with pytest.raises(ValueError, match="no column of durations or ends"):
        read_spans(tmp_path / "n.csv")


def test_spans_out_of_order_or_without_numbers_are_left_out_and_counted(tmp_path):
    (tmp_path / "n.csv").write_text("start,end,label\n9,3,a\nx,3,b\n1,2,c\n")
    found = read_spans(tmp_path / "n.csv")
    assert found.spans["label"].to_pylist() == ["c"]
    assert found.messages == ("2 spans without a valid onset and duration in seconds left out.",)


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_format_cannot_hold_is_refused_and_nothing_is_written(tmp_path, name):
    adapter, file, options, *_ = FORMATS[name]
    bad = make_spans([0.0], [1.0], ["two\nlines"], None, "n")[0]
    for spans, sentence in ((bad, "control characters"), (bad.slice(0, 0), "at least one span")):
        with pytest.raises(ValueError, match=sentence):
            adapter.write(spans, tmp_path / file, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("adapter", [edf, nsrr, wfdb_notes, mne_annotations])
def test_two_annotators_need_two_files_in_some_formats(tmp_path, adapter):
    spans = random_spans(1, labels=ASCII, annotators=("ann", "bob"))
    options = {"rate": 100} if adapter is wfdb_notes else {}
    file = {nsrr: "n.xml", edf: "n.edf", wfdb_notes: "n.ann", mne_annotations: "n-annot.fif"}[adapter]
    with pytest.raises(ValueError, match=r"holds the spans of one annotator. Got 2. Write one file for each"):
        adapter.write(spans, tmp_path / file, **options)


def test_overlaps_that_a_format_cannot_hold_are_refused(tmp_path):
    spans = make_spans([0, 1], [5, 5], ["a", "b"], None, "n")[0]
    with pytest.raises(ValueError, match=r"A tier of a TextGrid holds no overlaps. 1 spans begin"):
        textgrid.write(spans, tmp_path / "n.TextGrid")
    with pytest.raises(ValueError, match="spans must not overlap"):
        wfdb_notes.write(spans, tmp_path / "n.ann", rate=10)
    elan.write(spans, tmp_path / "n.eaf")
    assert len(elan.read(tmp_path / "n.eaf").spans) == 2


def test_letters_that_fif_cannot_hold_are_refused(tmp_path):
    with pytest.raises(ValueError, match="FIF holds letters of Latin-1 alone"):
        mne_annotations.write(random_spans(1, labels=["眠り"]), tmp_path / "n-annot.fif")


def test_elan_rounds_to_milliseconds_and_says_it(tmp_path):
    spans = make_spans([0.00049, 1], [0.5, 1], ["a", "b"], None, "n")[0]
    assert elan.write(spans, tmp_path / "n.eaf") == ("1 onsets rounded to whole milliseconds, as ELAN counts.",)
    with pytest.raises(ValueError, match=r"no spans shorter than a millisecond. Drop the 1 spans"):
        elan.write(make_spans([0], [0], ["a"], None, "n")[0], tmp_path / "n.eaf")


def test_a_header_of_wfdb_that_lies_is_said(tmp_path):
    (tmp_path / "r.hea").write_text("r 1 50 100\n../other.dat 16 200 16 0 0 0 0 ECG\n")
    with pytest.raises(ValueError, match=r"cannot be read as WFDB"):
        read_spans(tmp_path / "r.hea")
    (tmp_path / "r.hea").write_text("r 1 50 100\nr.dat 99 200 16 0 0 0 0 ECG\n")
    (signal,) = read_spans(tmp_path / "r.hea").signals
    with pytest.raises(ValueError, match=r"r.hea' cannot be read as WFDB"):
        signal.load(0, 10)


def test_names_and_notes_of_wfdb(tmp_path):
    for spans, file, sentence in (
        (random_spans(1, labels=["a"]), "two words.ann", "letters, digits, - and _"),
        (random_spans(1, labels=["größe"]), "n.ann", "ASCII"),
    ):
        with pytest.raises(ValueError, match=sentence):
            wfdb_notes.write(spans, tmp_path / file, rate=100)


@pytest.mark.parametrize(
    ("module", "end", "extra"),
    [("edfio", "edf", "edf"), ("wfdb", "atr", "wfdb"), ("pympi", "eaf", "elan"), ("mne", "fif", "mne")],
)
def test_a_missing_extra_says_what_to_install(tmp_path, monkeypatch, module, end, extra):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / f"n.{end}").write_bytes(b"")
    with pytest.raises(
        ValueError, match=rf"needs {module}, which is not installed. .*pip install 'labeltide\[{extra}\]'"
    ):
        read_spans(tmp_path / f"n.{end}")


def test_reading_spans_loads_no_library_until_it_is_needed():
    libraries = ("edfio", "wfdb", "pympi", "praatio", "mne")
    code = (
        f"import sys, labeltide.recordings.spans.formats; print([name for name in {libraries} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_adapter_reads_and_all_but_that_of_sleap_write():
    for name, adapter in ADAPTERS.items():
        assert callable(adapter.read_file)
        assert callable(adapter.write_file) or name == "sleap"
