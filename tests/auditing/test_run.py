"""An audit writes all its files or none, on the user's own rows, and can be stopped and gone on with."""

import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

import labeltide as lt
from auditing.stub import use_stub
from auditing.tables import HOSTILE, make_table, studies, tables
from labeltide import UnanswerableError
from labeltide.auditing import fitting
from labeltide.auditing.decisions import file_digest
from labeltide.auditing.page import write_page
from labeltide.auditing.predict import predict_table
from labeltide.auditing.results import OURS, write_new_table
from labeltide.data.studies import simulate_study
from labeltide.demo import compare_with_truth
from labeltide.training import Checkpoint

pytestmark = pytest.mark.usefixtures("few_replicates")

COLUMNS = ["row", "sequence", "time", "annotator", "clock", "recorded", "probability_right"]
COLUMNS += [
    "probability_contested",
    "suggested",
    "suggested_probability",
    "shift",
    "corrected",
    "is_issue",
    "kind",
    "reason",
]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(fitting, "EPOCHS", 3)
    monkeypatch.setattr(fitting, "HIDDEN_SIZE", 8)
    monkeypatch.setattr(fitting, "plant", lambda *_: ())  # the audit of `real` plants errors


@pytest.fixture
def stub(monkeypatch):
    use_stub(monkeypatch)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """One real audit of a small table, and its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "EPOCHS", 8)
        patch.setattr(fitting, "HIDDEN_SIZE", 8)
        folder = tmp_path_factory.mktemp("audit") / "results"
        path = folder.parent / "study.csv"
        csv.write_csv(make_table(), path)
        return lt.audit(path, sequence="person", time="minute", out=folder, command="labeltide audit study.csv")


def test_the_page_from_memory_is_the_page_from_the_folder(real):
    page = (real.folder / "report.html").read_text(encoding="utf-8")
    assert write_page(real.folder).read_text(encoding="utf-8") == page


def test_all_files_are_there_by_the_contract(real):
    assert {path.name for path in real.folder.iterdir()} == OURS
    found = json.loads((real.folder / "audit.json").read_text())
    assert found["format"] == 1
    assert found["table"]["name"] == "study.csv"
    assert found["table"]["digest"] == file_digest(Path(found["table"]["path"]))
    assert found["table"]["labels"] == found["table"]["rows"] == 240
    assert found["command"] == "labeltide audit study.csv"
    assert set(found) >= {"clock", "settings", "versions", "seconds", "noise", "temporality", "issues", "plan"}
    assert len(found["noise"]["clock"]) == len(found["noise"]["curves"][0]["rate"]) <= 200
    assert np.shape(found["noise"]["curves"][0]["class_rate"]) == (2, len(found["noise"]["clock"]))
    assert [each["class"] for each in found["temporality"]["per_class"]] == ["rest", "walk"]
    labels = parquet.read_table(real.folder / "labels.parquet")
    assert labels.column_names == COLUMNS
    assert labels["recorded"].to_pylist() == make_table()["label"].to_pylist()
    issues = parquet.read_table(real.folder / "issues.parquet")
    assert issues.num_rows == found["issues"]["count"] == sum(labels["is_issue"].to_pylist())
    assert all(reason for reason in issues["reason"].to_pylist())
    head = '"annotator","clock","true","recorded","probability"'
    assert (real.folder / "noise.csv").read_text("utf-8-sig").startswith(head)
    assert set(real.noise["clock_name"].to_pylist()) == {"position in the sequence"}
    assert found["other_clocks"] == []
    assert b"study.csv" in (real.folder / "report.html").read_bytes()


def test_a_full_audit_reports_what_became_of_planted_errors(real):
    assert "planted" in {check["name"] for check in real.summary["diagnostics"]}


def test_each_annotator_has_a_curve_a_test_and_a_sentence(tiny, tmp_path):
    table = make_table()
    for name, seed in (("Ada", 3), ("Ben", 4)):
        labels = np.array(table["truth"].to_pylist())
        wrong = np.random.default_rng(seed).random(len(labels)) < 0.2
        table = table.append_column(f"label {name}", [np.where(wrong, "rest", labels)])
    columns = {"sequence": "person", "time": "minute", "label": ["label Ada", "label Ben"], "features": "signal"}
    found = lt.audit(table, **columns, out=tmp_path / "out")
    curves = found.summary["noise"]["curves"]
    assert [curve["annotator"] for curve in curves] == [None, "label Ada", "label Ben"]
    assert [curve["labels"] for curve in curves] == [480, 240, 240]
    tests = found.summary["temporality"]["per_annotator"]
    assert [test["annotator"] for test in tests] == ["label Ada", "label Ben"]
    assert all(0 < test["p_value"] <= 1 and test["best_rate"] <= test["worst_rate"] for test in tests)
    noise = found.noise.filter(pc.equal(found.noise["annotator"], "label Ben"))
    assert noise.num_rows == 20 * 4
    assert np.isfinite(noise["simultaneous_upper"].to_numpy()).all()
    assert (
        found.page.read_text().count("from the start to the end of a sequence (p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
        >= 2
    )


def test_each_clock_has_a_curve_a_test_and_a_sentence(tiny, tmp_path):
    table = make_table(people=40)  # so many that wrong labels are shown
    hours = np.random.default_rng(2).permutation(800) * 24 / 800  # says nothing of the labels
    table = table.append_column("hour", [hours])
    columns = {"sequence": "person", "time": "minute", "features": "signal"}
    found = lt.audit(table, **columns, clock="minute,hour", out=tmp_path / "out")
    (other,) = found.summary["other_clocks"]
    assert [found.summary["clock"]["name"], other["clock"]["name"]] == ["minute", "hour"]
    assert [found.summary["clock"]["period"], other["clock"]["period"]] == [None, 24]
    assert found.estimator.period == (None, 24)
    assert "The clocks are rounded, so that Q is learned at 20 by 24 moments." in found.summary["table"]["messages"]
    for part in (found.summary, other):
        assert len(part["noise"]["clock"]) == len(part["noise"]["curves"][0]["rate"])
        assert 0 < part["temporality"]["p_value"] <= 1
        assert 0 < part["temporality"]["is_noisy_p"] <= 1
        assert part["temporality"]["best_rate"] <= part["temporality"]["worst_rate"]
    assert found.noise.filter(pc.equal(found.noise["clock_name"], "hour"))["clock"].to_pylist()[-1] < 24
    np.testing.assert_allclose(found.labels["clock_2"].to_numpy(), hours)
    page = found.page.read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert 'id="clock-2"' in page
    assert page.count("over the day (p = ") >= 1
    assert "over the day: " in str(found)
    again = lt.load(found.folder / "model" / "model.safetensors")
    assert again.is_noisy_p_ == found.estimator.is_noisy_p_
    assert predict_table(found.folder, table).num_rows == 800


def test_several_clocks_and_annotators_go_together(stub, tmp_path):
    study = simulate_study(people=14, days=2)
    found = lt.audit(study, clock="days,hour_of_day", fdr=0.5, out=tmp_path / "out")
    assert [curve["annotator"] for curve in found.summary["noise"]["curves"]] == [None]
    assert found.summary["temporality"]["per_annotator"] == []
    assert "for all annotators together" in found.page.read_text()


def test_an_audit_finds_wrong_labels(real):
    truth = compare_with_truth(real, make_table()["truth"])
    assert truth["found"] > 0.2
    assert truth["false_alarms"] < 0.3
    assert truth["wrong_after"] < truth["wrong"]


def test_the_share_of_wrong_labels_is_that_of_labels_parquet(real, stub):
    for result in (real, lt.audit(simulate_study(people=14, days=2), clock="hour_of_day")):
        noise, right = result.summary["noise"], result.labels["probability_right"].to_numpy()
        assert noise["rate"] == pytest.approx(1 - np.nanmean(right), abs=1e-6)
        assert noise["rate_lower"] <= noise["rate"] <= noise["rate_upper"]


def test_bouts_are_counted_before_and_after_correction(stub):
    shuffled = simulate_study(people=14, days=2).to_pandas().sample(frac=1, random_state=0)
    result = lt.audit(shuffled, fdr=0.5)
    lines = result.labels.to_pandas().assign(time=lambda lines: lines["row"].map(shuffled["time"].reset_index().time))
    lines = lines.sort_values(["annotator", "sequence", "time"])
    key = lines["annotator"].astype(str) + lines["sequence"].astype(str)
    for each in result.summary["issues"]["bouts"]:
        for name in ("recorded", "corrected"):
            begins = (lines[name] != lines[name].shift()) | (key != key.shift())
            assert each[name] == (begins & (lines[name] == each["class"])).sum()


def test_an_audit_shows_itself(real):
    assert "study.csv: 240 labels in 12 sequences" in str(real)
    assert real._repr_html_().startswith('<div class="labeltide-audit">')
    assert real.issues["rank"].to_pylist() == list(range(1, real.issues.num_rows + 1))


def test_the_truth_is_never_a_feature(real):
    assert real.summary["table"]["features"] == ["signal"]


def test_the_model_of_an_audit_labels_another_table(real, tmp_path):
    new = make_table(people=4, seed=5).drop_columns(["label"])
    for model in (real.folder, real.folder / "model", real.folder / "model" / "model.safetensors"):
        found = predict_table(model, new)
    right = np.mean(np.array(found["predicted"].to_pylist()) == np.array(new["truth"].to_pylist()))
    assert right > 0.6
    path = write_new_table(found, tmp_path / "new" / "found.csv")
    assert csv.read_csv(path).num_rows == 80
    with pytest.raises(ValueError, match="must be new"):
        write_new_table(found, path)
    with pytest.raises(ValueError, match="must be the folder of an audit"):
        predict_table(tmp_path, new)


def test_the_same_seed_gives_the_same_numbers(tiny):
    first, second = (lt.audit(make_table(people=6), seed=3) for _ in range(2))
    assert first.labels.equals(second.labels)
    assert first.folder is first.page is None
    assert "6 sequences" in first._repr_html_()


def test_several_annotators_are_compared(stub, tmp_path):
    study = simulate_study(people=14, days=2)
    found = lt.audit(study, clock="hour_of_day", fdr=0.5, out=tmp_path / "out")
    assert found.summary["table"]["annotators"] == ["Ada", "Ben"]
    curves = found.summary["noise"]["curves"]
    assert [curve["annotator"] for curve in curves] == [None, "Ada", "Ben"]
    for curve in curves[1:]:
        assert np.all(np.diff([curve[f"rate{end}"] for end in ("_lower", "", "_upper")], axis=0) >= 0)
        np.testing.assert_allclose(np.sum(curve["mean"], axis=-1), 1, atol=1e-9)
    assert [each["annotator"] for each in found.summary["temporality"]["per_annotator"]] == ["Ada", "Ben"]
    pair = found.summary["agreement"]["cohen"][0]
    assert (pair["a"], pair["b"]) == ("Ada", "Ben")
    assert 0 < pair["kappa"] < 1
    assert found.summary["timelines"]
    for timeline in found.summary["timelines"]:
        lines = found.labels.take(timeline["rows"])
        assert set(lines["sequence"].to_pylist()) == {timeline["sequence"]}
        assert lines["time"].to_pylist() == timeline["times"]


def test_large_tables_are_learned_from_in_part_and_that_is_said(tiny, monkeypatch):
    monkeypatch.setattr(fitting, "TRAINING_STEPS", 200)
    monkeypatch.setattr(fitting, "INFERENCE_STEPS", 100)
    found = lt.audit(make_table(people=30))
    message = " ".join(found.summary["table"]["messages"])
    assert "learned from 10 of 30 windows" in message
    assert found.labels["probability_right"].null_count == 0


def test_inference_on_some_windows_leaves_the_training_evidence_as_fit_left_it(tiny, monkeypatch):
    monkeypatch.setattr(fitting, "INFERENCE_STEPS", 100)
    result = lt.audit(make_table(people=30))
    assert "Bands and checks rest on 20 of 30 windows" in " ".join(result.summary["table"]["messages"])
    assert len(result.estimator.training_.data.mask) == len(result.estimator.training_.clusters) == 30
    assert {"noise_estimate", "diagnostics", "temporality"} <= set(result.estimator.findings_)


def test_a_stopped_audit_leaves_nothing_in_its_folder_and_goes_on(tiny, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="no interrupted audit"):
        lt.audit(make_table(), out=out, resume=True)
    save, calls = Checkpoint.save, []
    monkeypatch.setattr(Checkpoint, "save", lambda self, *state: (setattr(self, "seconds", 0.0), save(self, *state)))

    def stop(self, share):
        calls.append(share)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("labeltide.auditing.resume.Stages.done", stop)
        with pytest.raises(KeyboardInterrupt):
            lt.audit(make_table(), out=out)
    assert not out.exists()
    assert (tmp_path / ".out-unfinished").is_dir()
    found = lt.audit(make_table(), out=out, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert found.labels.equals(lt.audit(make_table()).labels)


def test_an_audit_stopped_after_its_fit_goes_on_too(stub, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "infer", stop)
        with pytest.raises(KeyboardInterrupt):
            lt.audit(make_table(), out=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == [".out-unfinished"]
    lt.audit(make_table(), out=tmp_path / "out", resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_of_someone_else_is_refused_before_the_work(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"thesis\.tex"):
        lt.audit(make_table(), out=tmp_path)


def test_a_table_that_cannot_answer_says_why():
    with pytest.raises(UnanswerableError, match="at least two sequences or windows"):
        lt.audit(make_table(people=1, steps=6))


def test_one_long_sequence_is_cut(stub):
    found = lt.audit(make_table(people=1, steps=120))
    assert found.summary["settings"]["window"] == 12


@pytest.mark.parametrize(("option", "value"), [("model", "forest"), ("seed", -1), ("fdr", 2), ("device", "abacus")])
def test_wrong_options_are_named(option, value):
    with pytest.raises(ValueError, match=option):
        lt.audit(make_table(), **{option: value})


def audit_or_sentence(table, **options):
    try:
        return lt.audit(table, **options)
    except ValueError as error:
        messages = str(error)
    assert messages[-1] in ".?", messages
    return None


@settings(max_examples=60, deadline=None, suppress_health_check=[*SLOW, HealthCheck.function_scoped_fixture])
@given(table=tables(), data=st.data())
def test_any_table_is_audited_or_gets_a_sentence(stub, table, data):
    there = list(getattr(table, "column_names", getattr(table, "columns", [])))
    roles = data.draw(st.lists(st.sampled_from(["sequence", "time", "label", "clock", "trusted"]), unique=True))
    choices = st.sampled_from([*there, *HOSTILE[:5], "days"])
    audit_or_sentence(table, **{role: data.draw(choices) for role in roles})


@settings(max_examples=60, deadline=None, suppress_health_check=[*SLOW, HealthCheck.function_scoped_fixture])
@given(table=studies(), window=st.none() | st.integers(1, 10), annotator=st.booleans())
def test_any_study_is_audited_with_its_page_or_gets_a_sentence(stub, tmp_path_factory, table, window, annotator):
    options = {"annotator": "who"} if annotator else {}
    out = tmp_path_factory.mktemp("fuzz") / "out"
    found = audit_or_sentence(table, sequence="s", time="t", label="y", window=window, out=out, **options)
    if found is None:
        assert not out.exists()
        return
    assert found.labels["recorded"].to_pylist() == table["y"].to_pylist()
    assert found.labels["sequence"].to_pylist() == table["s"].to_pylist()
    assert (out / "report.html").stat().st_size > 10_000
    json.loads((out / "audit.json").read_text())
    str(found)


def test_a_network_of_ones_own_is_told_the_way_out():
    with pytest.raises(ValueError, match=r"network by name: gru, .*TideClassifier\(model=\.\.\.\)"):
        lt.audit(make_table(), model=dict)
