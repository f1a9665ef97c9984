"""Annotators compared without signals: tables, files of spans, the page, and the consensus as spans."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv

import labeltide as lt
from labeltide import cli

CLASSES = np.array(["rest", "walk", "eat"])


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["labeltide", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0


def labels_of(sequences=8, steps=50, annotators=3, seed=0):
    """True labels, and what annotators recorded, of whom the last one errs most and more towards the end."""
    truth = lt.make_sequences(n=sequences, n_steps=steps, n_features=2, n_classes=3, stay=0.95, random_state=seed)
    steady, tires = lt.make_noise("static", 3, steps, rate=0.05), lt.make_noise("growth", 3, steps, rate=0.3)
    noises = [*[steady] * (annotators - 1), tires]
    y = [lt.corrupt(truth.clean_labels, noise, random_state=seed + k) for k, noise in enumerate(noises)]
    return truth.clean_labels, np.stack(y, -1)


def wide_table(y):
    sequences, steps, annotators = y.shape
    columns = {
        "person": np.repeat([f"p{k}" for k in range(sequences)], steps),
        "second": np.tile(np.arange(steps), sequences),
    }
    for number in range(annotators):
        columns["abc"[number]] = CLASSES[y[..., number].ravel()]
    return pa.table(columns)


def long_table(y, **more):
    sequences, steps, annotators = y.shape
    size = sequences * steps
    columns = {
        "person": np.repeat([f"p{k}" for k in range(sequences)], steps * annotators),
        "second": np.tile(np.repeat(np.arange(steps), annotators), sequences),
        "rater": np.tile(list("abc"[:annotators]), size),
        "label": CLASSES[y.ravel()],
    }
    return pa.table(columns | more)


def write_span_files(folder, y):
    """A file for each recording and annotator: p0_a.csv and so on."""
    for recording in range(len(y)):
        for number in range(y.shape[2]):
            lines = [f"{t},1,{CLASSES[code]}" for t, code in enumerate(y[recording, :, number].tolist())]
            (folder / f"p{recording}_{'abc'[number]}.csv").write_text(
                "\n".join(["onset,duration,label", *lines]) + "\n"
            )


@pytest.fixture(scope="module")
def study():
    truth, y = labels_of()
    return truth, y, lt.compare_annotators(wide_table(y), annotators="a,b,c", sequence="person", time="second")


def test_the_annotator_who_errs_more_and_more_is_named(study):
    truth, _, report = study
    found = {entry["annotator"]: entry for entry in report.summary["annotators"]}
    assert found["c"]["against_p"] < 0.05
    assert found["c"]["against_lower"] > 0
    assert found["c"]["change_p"] < 0.05 < found["a"]["change_p"]
    consensus = np.array(report.steps["consensus"].to_pylist()).reshape(truth.shape)
    assert (consensus == CLASSES[truth]).mean() > 0.93
    assert '"c" differs more often than the others' in str(report)


def test_tables_of_both_layouts_and_spans_give_the_same(study, tmp_path):
    _, y, report = study
    long = lt.compare_annotators(long_table(y), label="label", annotator="rater", sequence="person", time="second")
    assert long.steps.equals(report.steps)
    write_span_files(tmp_path, y)
    spans = lt.compare_annotators(tmp_path)
    assert spans.steps["consensus"].equals(report.steps["consensus"])
    assert spans.spans.equals(report.spans)


def test_two_annotators_are_not_ranked():
    _, y = labels_of(annotators=2)
    report = lt.compare_annotators(wide_table(y), annotators="a,b", sequence="person", time="second")
    assert all(entry["against_p"] is None for entry in report.summary["annotators"])
    assert "Two annotators differ equally" in str(report)


def test_each_annotator_may_have_a_clock_of_its_own():
    _, y = labels_of()
    worked = np.tile(np.arange(50), 8)[:, None] + [0, 100, 200]
    table = long_table(y, worked=worked.ravel())
    roles = {"label": "label", "annotator": "rater", "sequence": "person", "time": "second"}
    report = lt.compare_annotators(table, clock="worked", **roles)
    assert report.consensus.clock.min() == 0
    assert report.consensus.clock.max() == 249
    with pytest.raises(ValueError, match="compare_annotators"):
        lt.audit(table.append_column("x", pa.array(np.arange(len(table)) % 7 / 7)), clock="worked", **roles)


def test_the_consensus_is_written_as_spans_that_are_read_back(study, tmp_path):
    *_, report = study
    for to in ("boris", "csv", "elan", "textgrid", "labelstudio"):
        written = lt.write_spans(report.spans, tmp_path / to, to)
        found = pa.concat_tables([lt.read_spans(path).spans for path in written.files])
        found = found.sort_by([("recording", "ascending"), ("onset", "ascending")])
        assert found["label"].equals(report.spans["label"]), to
        recording = pc.replace_substring(found["recording"], " consensus", "")  # observations of BORIS name both
        assert recording.equals(report.spans["recording"]), to
        np.testing.assert_allclose(found["duration"], report.spans["duration"])


def test_steps_that_nobody_labelled_have_no_consensus():
    _, y = labels_of()
    table = wide_table(y)
    for name in "abc":
        late = pc.greater_equal(table["second"], 40)
        table = table.set_column(table.column_names.index(name), name, pc.if_else(late, None, table[name]))
    report = lt.compare_annotators(table, annotators="a,b,c", sequence="person", time="second")
    assert report.steps["consensus"].null_count == 80
    assert max(report.spans["onset"].to_pylist()) < 40


def test_the_command_writes_a_page_without_anything_from_elsewhere(study, tmp_path, monkeypatch, capsys):
    _, y, _ = study
    monkeypatch.chdir(tmp_path)
    csv.write_csv(wide_table(y), "table.csv")
    words = ["table.csv", "--annotators", "a,b,c", "--sequence", "person", "--time", "second"]
    run(monkeypatch, "consensus", *words, "--to", "boris")
    printed = capsys.readouterr().out
    assert "\nDiffers    " in printed
    assert "table-consensus/spans\n" in printed
    folder = tmp_path / "table-consensus"
    assert {path.name for path in folder.iterdir()} == {
        "annotators.csv",
        "consensus.csv",
        "consensus.json",
        "report.html",
        "spans",
    }
    page = (folder / "report.html").read_text()
    assert "http" not in page.split("</style>")[1]
    assert "<script" not in page
    run(monkeypatch, "consensus", *words, "--format", "json")
    assert json.loads(capsys.readouterr().out)["labels"] == y.size


def test_an_audit_without_features_hands_over(study, tmp_path, monkeypatch, capsys):
    _, y, _ = study
    monkeypatch.chdir(tmp_path)
    csv.write_csv(wide_table(y), "table.csv")
    run(monkeypatch, "audit", "table.csv", "--label", "a,b,c", "--sequence", "person", "--time", "second")
    found = capsys.readouterr()
    assert "annotators are compared" in found.err
    assert "\nAgreement  " in found.out
    assert (tmp_path / "table-consensus" / "report.html").is_file()
    with pytest.raises(lt.UnanswerableError, match="compare_annotators"):
        lt.audit("table.csv", label="a,b,c", sequence="person", time="second")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"annotators": "a"}, "at least two annotators"),
        ({"annotators": "a,x"}, "no column 'x'"),
        ({"annotators": "a,b", "clock": "position,odd"}, "one clock"),
        ({"annotators": "a,b", "features": "c"}, "option"),
    ],
)
def test_wrong_use_is_refused(study, options, words):
    _, y, _ = study
    table = wide_table(y).append_column("odd", pa.array(np.arange(len(y) * 50) % 7))
    with pytest.raises(ValueError, match=words):
        lt.compare_annotators(table, **{"sequence": "person", "time": "second", **options})


def test_a_folder_of_others_is_left_alone(study, tmp_path):
    _, y, _ = study
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="must be new"):
        lt.compare_annotators(wide_table(y), annotators="a,b,c", sequence="person", time="second", out=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
