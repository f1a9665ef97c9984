"""What an audit found goes into the files of annotation tools, and is read back at the right place."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv, parquet

import labeltide as lt
from auditing.nights import stages, write_hypnogram, write_night
from auditing.page.fake import write_audit
from auditing.reviewed import decide
from auditing.stub import use_stub
from auditing.tables import make_table
from auditing.test_run import stub as stub
from labeltide.auditing.apply import apply_decisions
from labeltide.auditing.results import draft_of
from labeltide.exporting.spans import FORMATS, export_audit
from labeltide.recordings.recordings import Grid, lay_on_grid
from labeltide.recordings.spans.formats import ADAPTERS, read_spans
from labeltide.recordings.spans.table import by_annotator, by_recording


@pytest.fixture(scope="module")
def audited_nights(tmp_path_factory):
    """An audit of two nights that two people have scored."""
    folder = tmp_path_factory.mktemp("nights")
    lines = ["recording,signals,labels,annotator"]
    for k in (1, 2):
        write_night(folder, f"n0{k}", seed=k)
        write_hypnogram(folder / f"second{k}.edf", stages(k + 9))
        lines += [f"n0{k},n0{k}-PSG.edf,n0{k}-Hypnogram.edf,ann", f"n0{k},n0{k}-PSG.edf,second{k}.edf,bob"]
    (folder / "list.csv").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        use_stub(patch)
        lt.audit(folder / "list.csv", out=folder / "out", fdr=0.6)
    return folder / "out"


@pytest.fixture
def nights(audited_nights, tmp_path):
    """A copy of that audit, for one test to change."""
    return Path(shutil.copytree(audited_nights, tmp_path / "out"))


def expected(labels, recording, annotator, kind, arrow=True):
    """The label of every epoch that an export should hold."""
    rows = [row for row in labels.to_pylist() if (row["sequence"], row["annotator"]) == (recording, annotator)]
    if kind == "corrected":
        return [row["corrected"] for row in rows]
    text = "{recorded} -> {suggested}" if arrow else "{suggested}"
    return [text.format(**row) if row["is_issue"] else None for row in rows]


@pytest.mark.parametrize("to", FORMATS)
def test_every_label_is_read_back(nights, to):
    if ADAPTERS.get(to) and ADAPTERS[to].library:
        pytest.importorskip(ADAPTERS[to].library[0])
    written = export_audit(nights, to)
    labels = parquet.read_table(nights / "labels.parquet")
    seen = set()
    for path in written.files:
        for recording, part in by_recording(read_spans(path).spans).items():
            for annotator, spans in by_annotator(part).items():
                words = f"{path.name} {annotator} {recording}"  # an observation of BORIS names the annotator, too
                kind = "issues" if "issues" in words else "corrected"
                key = ("n01" if "n01" in words else "n02", "bob" if "bob" in words else "ann", kind)
                found = lay_on_grid(spans, Grid(0.0, 30.0, 60)).labels
                assert found == expected(labels, *key, arrow=to != "labelstudio"), key
                seen.add(key)
    assert len(seen) == 8
    with pytest.raises(ValueError, match="needs a folder that is new or empty"):
        export_audit(nights, to)


def test_tasks_of_label_studio_open_the_signals(nights, tmp_path):
    (path,) = export_audit(nights, "labelstudio", tmp_path / "new").files
    tasks = json.loads(path.read_text())
    assert [task["data"]["recording"] for task in tasks] == ["n01", "n02"]
    assert [Path(task["data"]["ts"]).name for task in tasks] == ["n01-PSG.edf", "n02-PSG.edf"]
    assert [one["model_version"] for one in tasks[0]["predictions"]][2:] == ["corrected ann", "corrected bob"]


def test_exported_spans_have_the_confidence_of_the_model(nights, tmp_path):
    labels = parquet.read_table(nights / "labels.parquet").to_pylist()
    for kind, path in zip(("issues", "corrected"), export_audit(nights, "csv", tmp_path / "new").files, strict=True):
        spans = by_annotator(by_recording(read_spans(path).spans)["n01"])["bob"].to_pylist()
        rows = [row for row in labels if (row["sequence"], row["annotator"]) == ("n01", "bob")]
        for span in spans:
            first, last = (round(span["onset"] / 30), round((span["onset"] + span["duration"]) / 30))
            as_recorded = [kind == "corrected" and row["recorded"] == row["corrected"] for row in rows[first:last]]
            names = ["probability_right" if same else "suggested_probability" for same in as_recorded]
            chances = [row[name] for row, name in zip(rows[first:last], names, strict=True)]
            assert span["confidence"] == pytest.approx(sum(chances) / len(chances), abs=1e-4)


def test_an_edf_begins_when_its_recording_did(nights, tmp_path):
    written = export_audit(nights, "edf", tmp_path / "new", "corrected")
    assert len(written.files) == 4
    assert {str(read_spans(path).start) for path in written.files} == {"2024-05-01 22:30:00"}


def test_settled_labels_are_exported_and_are_no_issues(nights, tmp_path):
    labels = parquet.read_table(nights / "labels.parquet").to_pylist()
    issue = next(line for line in labels if line["is_issue"] and line["annotator"] == "bob")
    kept = next(line for line in labels if line["is_issue"] and line["row"] != issue["row"])
    typed = csv.read_csv(nights / "issues.csv").drop_columns(["verdict"])
    at = [(line["row"], line["annotator"]) for line in typed.to_pylist()]
    verdicts = ["Sleep stage N2" if key == (issue["row"], "bob") else None for key in at]
    csv.write_csv(typed.append_column("verdict", pa.array(verdicts, pa.string())), nights / "issues.csv")
    decide(nights, [("Ada", kept["row"], None, kept["annotator"])])
    written = export_audit(nights, "csv", tmp_path / "new")
    assert written.messages == ("2 labels as people settled them, no longer issues.",)
    issues, corrected = (read_spans(path).spans for path in written.files)
    for line, label in ((issue, "Sleep stage N2"), (kept, kept["recorded"])):
        own = [by_annotator(by_recording(spans)[line["sequence"]]) for spans in (corrected, issues)]
        found = [lay_on_grid(part[line["annotator"]], Grid(0.0, 30.0, 60)).labels for part in own]
        assert [each[line["row"] % 60] for each in found] == [label, None]


def test_decisions_made_for_another_audit_are_left_out(nights, tmp_path):
    decide(nights, [("Ada", 3, None, "ann")], audit="other")
    written = export_audit(nights, "csv", tmp_path / "new")
    assert written.messages == ("1 decision made for another audit left out.",)


@pytest.mark.parametrize("line", ["n01,n01-PSG.edf,n01-Hypnogram.edf,ann", "n01,n01-PSG.edf,ann.edf,"])
def test_the_name_of_a_single_annotator_is_kept(tmp_path, stub, line):
    write_night(tmp_path, "n01")
    write_hypnogram(tmp_path / "ann.edf", stages(9))
    (tmp_path / "list.csv").write_text(f"recording,signals,labels,annotator\n{line}\n")
    lt.audit(tmp_path / "list.csv", out=tmp_path / "out", fdr=0.6)
    written = export_audit(tmp_path / "out", "csv", tmp_path / "new", "corrected")
    assert set(read_spans(written.files[0]).spans["annotator"].to_pylist()) == {"ann"}


def test_decisions_on_recordings_are_not_applied_to_a_table(nights, tmp_path):
    with pytest.raises(ValueError, match=r"was of recordings.*labeltide export '.*' --to FORMAT"):
        apply_decisions(nights, tmp_path / "new.csv", above=0.9)


@pytest.mark.parametrize("dated", [False, True])
def test_a_plain_table_is_placed_by_its_times(tmp_path, stub, dated):
    table = make_table(people=4)
    if dated:
        moments = pa.array([1_700_000_000_000_000 + 60_000_000 * m for m in table["minute"].to_pylist()])
        table = table.set_column(1, "minute", moments.cast(pa.timestamp("us")))
    lt.audit(table, sequence="person", time="minute", out=tmp_path / "out")
    written = export_audit(tmp_path / "out", "csv", tmp_path / "new", "corrected")
    labels = parquet.read_table(tmp_path / "out" / "labels.parquet")
    for name, part in by_recording(read_spans(written.files[0]).spans).items():
        found = lay_on_grid(part, Grid(0.0, 60.0, 20)).labels
        assert found == expected(labels, name, None, "corrected")


@pytest.mark.parametrize("to", ["csv", "textgrid", "bids"])
def test_recordings_whose_names_differ_by_a_blank_are_exported_as_two(tmp_path, stub, to):
    table = make_table(people=4)
    people = pc.if_else(pc.equal(table["person"], "p1"), "p0 ", table["person"].cast(pa.string()))
    lt.audit(table.set_column(0, "person", people), sequence="person", time="minute", out=tmp_path / "out")
    written = export_audit(tmp_path / "out", to, tmp_path / "new", "corrected")
    labels = parquet.read_table(tmp_path / "out" / "labels.parquet")
    if to != "csv":
        assert len(written.files) == 4
        return
    parts = by_recording(read_spans(written.files[0]).spans)
    assert len(parts) == 4
    for name, part in zip(["p0", "p0 "], parts.values(), strict=False):
        assert lay_on_grid(part, Grid(0.0, 60.0, 20)).labels == expected(labels, name, None, "corrected")


def test_audits_without_times_and_wrong_choices_are_refused(tmp_path, stub):
    path = tmp_path / "t.csv"
    csv.write_csv(make_table(people=4).drop_columns(["minute"]), path)
    lt.audit(path, sequence="person", out=tmp_path / "out")
    written = export_audit(tmp_path / "out", "csv", tmp_path / "new")
    assert written.messages[0].startswith("The table has no times, so its rows count as seconds")
    spans = by_recording(read_spans(written.files[-1]).spans)["p2"]
    assert spans["onset"][0].as_py() == 0
    with pytest.raises(ValueError, match=r"Unknown to .docx.. Choose one of: csv, "):
        export_audit(tmp_path / "out", "docx")
    with pytest.raises(ValueError, match=r"Unknown what .all.. Choose one of: issues"):
        export_audit(tmp_path / "out", "csv", what="all")
    with pytest.raises(FileNotFoundError, match=r"holds no audit.json"):
        export_audit(tmp_path, "csv")


def test_an_export_that_is_refused_half_way_leaves_nothing(tmp_path, monkeypatch):
    folder = write_audit(tmp_path / "audit")
    csv, calls = ADAPTERS["csv"], []

    def second_is_refused(spans, path, **options):
        calls.append(path)
        if len(calls) == 2:
            raise ValueError("refused")
        return csv.write_file(spans, path, **options)

    monkeypatch.setitem(ADAPTERS, "csv", csv._replace(write_file=second_is_refused))
    with pytest.raises(ValueError, match="refused"):
        export_audit(folder, "csv", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["audit"]


def test_drafts_of_killed_exports_and_applications_are_removed(nights, tmp_path):
    for name in (".new-abcdefgh/new", ".new.csv-abcdefgh"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".new.csv-abcdefgh" / "draft").write_text("half")
    (tmp_path / ".new-mine").mkdir()
    export_audit(nights, "csv", tmp_path / "new")
    with draft_of(tmp_path / "new.csv") as draft:
        draft.write_text("whole")
    hidden = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("."))
    assert hidden == [".new-mine"]


def test_annotators_whose_letters_are_the_same_have_files_of_their_own(tmp_path, stub):
    table = make_table(people=2).append_column("second", make_table(people=2)["truth"])
    table = table.rename_columns(["person", "minute", "signal", "r1", "truth", "r2"])
    lt.audit(table, sequence="person", time="minute", label=["r1", "r2"], features="signal", out=tmp_path / "out")
    written = export_audit(tmp_path / "out", "wfdb", tmp_path / "new", "corrected")
    assert len({path.name for path in written.files}) == len(written.files) == 4
    assert all(path.is_file() for path in written.files)


@pytest.mark.parametrize("to", ["csv", "raven", "nsrr"])
def test_spans_need_no_annotator_recording_or_confidence_and_any_numbers_do(tmp_path, to):
    spans = pa.table({"label": pa.array(["W", "N1"]).dictionary_encode(), "onset": [0, 30], "duration": [30, 30]})
    (path,) = lt.write_spans(spans, tmp_path / to, to).files
    found = read_spans(path).spans
    assert [found[name].to_pylist() for name in ("onset", "duration", "label")] == [[0, 30], [30, 30], ["W", "N1"]]
    with pytest.raises(ValueError, match="Missing: onset"):
        lt.write_spans(spans.drop_columns(["onset"]), tmp_path / "other", to)
