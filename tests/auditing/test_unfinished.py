"""Work of an audit is kept until it ends: killed anywhere it goes on, and nothing that people wrote is lost."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

import labeltide as lt
from auditing.tables import make_table
from labeltide.auditing import fitting, resume, run
from labeltide.auditing.options import default_folder
from labeltide.auditing.results import restore_interrupted
from labeltide.auditing.resume import read_evidence, write_evidence
from labeltide.estimators import TideClassifier

pytestmark = pytest.mark.usefixtures("few_replicates")

TIMES = ("created", "seconds")


@pytest.fixture(autouse=True, scope="module")
def tiny():
    """A short fit of a small network in all audits of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "EPOCHS", 8)  # of which a fast audit takes a quarter
        patch.setattr(fitting, "HIDDEN_SIZE", 8)
        yield


def interrupt(*_):
    raise KeyboardInterrupt


def summary_of(folder: Path) -> dict:
    found = json.loads((folder / "audit.json").read_text())
    return {name: value for name, value in found.items() if name not in TIMES}


def audit(out: Path, **options):
    return lt.audit(make_table(), out=out, fast=True, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of an audit that nobody stopped."""
    return audit(tmp_path_factory.mktemp("whole") / "out").folder


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory):
    """The folder of an audit that was stopped after its fit."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "make_scorer", interrupt)
        with pytest.raises(KeyboardInterrupt):
            audit(folder / "out")
    return folder


@pytest.fixture
def stopped(stopped_once, tmp_path) -> Path:
    """A copy of it for each test: where the results will be."""
    shutil.copytree(stopped_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out"


@pytest.mark.parametrize("index", ["run.make_scorer", "fitting.infer", "run.describe_settings"])
def test_an_audit_stopped_after_its_fit_never_fits_again_and_ends_with_the_same_bytes(
    index, whole, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(f"labeltide.auditing.{index}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            audit(out)
    monkeypatch.setattr(TideClassifier, "fit", interrupt)
    if index == "run.describe_settings":
        monkeypatch.setattr(TideClassifier, "_estimate", interrupt)  # bands were kept, too
    audit(out, resume=True)
    assert summary_of(out) == summary_of(whole)
    for name in ("labels.parquet", "noise.csv", "issues.csv"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert not (tmp_path / ".out-unfinished").exists()


def test_a_wrong_column_name_costs_no_work_of_an_earlier_audit(stopped, monkeypatch):
    with pytest.raises(ValueError, match="lable"):
        audit(stopped, label="lable")
    monkeypatch.setattr(TideClassifier, "fit", interrupt)
    audit(stopped, resume=True)


def test_other_settings_or_another_table_do_not_go_on(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "fit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lt.audit(make_table(), out=out)
    with pytest.raises(ValueError, match="seed was '0' and is now '7'"):
        lt.audit(make_table(), out=out, seed=7, resume=True)
    with pytest.raises(ValueError, match="the table has changed"):
        lt.audit(make_table(people=9), out=out, resume=True)


def test_damaged_work_is_refused_with_the_way_out(stopped):
    path = stopped.with_name(".out-unfinished") / resume.EVIDENCE
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="Leave out --resume to start over"):
        audit(stopped, resume=True)
    audit(stopped)


def test_evidence_comes_back_as_it_was(tmp_path):
    estimator = TideClassifier(epochs=1, hidden_size=4, random_state=0)
    X, y = np.random.default_rng(0).normal(size=(8, 6, 2)), np.random.default_rng(1).integers(0, 2, (8, 6))
    training = estimator.fit(X, y, clusters=np.arange(8) // 2).training_
    write_evidence(tmp_path / "file", training)
    again = read_evidence(tmp_path / "file")
    assert again.families == training.families
    assert again.data.gaps == training.data.gaps
    assert np.array_equal(again.grid, training.grid)
    assert again.data.evidence.equal(training.data.evidence)
    assert again.clusters.equal(training.clusters)


def test_two_audits_into_one_folder_are_refused(tmp_path, quick_fit):
    out = tmp_path / "out"
    hold = (
        "import sys, time, pathlib\nfrom labeltide.auditing.resume import unfinished_work\n"
        "out = pathlib.Path(sys.argv[1])\n"
        "with unfinished_work(out.with_name('.out-unfinished'), out, False):\n"
        "    print('locked', flush=True)\n    time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", hold, str(out)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "locked\n"
        with pytest.raises(ValueError, match="Another audit is writing"):
            audit(out)
        out.mkdir()
        (tmp_path / "link").symlink_to(out)
        with pytest.raises(ValueError, match="Another audit is writing"):
            audit(tmp_path / "link")
    finally:
        child.kill()
        child.wait()
    audit(out)


def test_a_kill_between_two_renames_loses_no_earlier_results(tmp_path):
    out, work = tmp_path / "out", tmp_path / ".out-abcd_123"
    for name in ("old", "new"):
        (work / name).mkdir(parents=True)
        (work / name / "audit.json").write_text(name)
    (work / "new" / "decisions.sqlite").write_text("kept")
    (tmp_path / ".out-abcd_124" / "new").mkdir(parents=True)
    restore_interrupted(out)
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert (out / "audit.json").read_text() == "old"
    assert (out / "decisions.sqlite").read_text() == "kept"


def test_an_audit_anew_keeps_decisions_and_what_was_typed_into_the_issues(tmp_path, quick_fit):
    out = tmp_path / "out"
    audit(out)
    (out / "decisions.sqlite").write_bytes(b"decisions")
    audit(out)
    assert not (out / "issues-edited-1.csv").exists()
    typed = (out / "issues.csv").read_text() + "seen,and,agreed\n"
    (out / "issues.csv").write_text(typed)
    audit(out)
    assert (out / "decisions.sqlite").read_bytes() == b"decisions"
    assert (out / "issues-edited-1.csv").read_text() == typed
    assert parquet.read_table(out / "issues.parquet").num_rows + 1 == len((out / "issues.csv").read_text().splitlines())


def test_default_folders_do_not_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert default_folder(Path("ward.2024.csv")) == Path("ward.2024-audit")
    assert default_folder(Path("data/ward.csv.gz")) == Path("ward-audit")
    assert default_folder("s3://lab/night/*.parquet") == Path("night-audit")
    Path("ward-audit").mkdir()
    Path("ward-audit/audit.json").write_text(json.dumps({"table": {"name": "ward.csv"}}))
    assert default_folder(Path("ward.csv")) == Path("ward-audit")
    with pytest.raises(ValueError, match=r"holds the audit of 'ward\.csv', not of 'ward\.parquet'"):
        default_folder(Path("ward.parquet"))
