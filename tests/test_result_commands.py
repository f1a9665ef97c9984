"""The loop on the command line: audit, decide, audit again, compare, apply, and limits for pipelines."""

import json
from contextlib import closing
from dataclasses import replace

import pytest
from pyarrow import csv, parquet

from auditing.conftest import quick_fit as quick_fit
from auditing.reviewed import decide
from auditing.stub import StubTide
from auditing.tables import make_table
from labeltide.auditing.page import summary_text, write_page
from labeltide.reviewing.session import open_session, view_item
from labeltide.reviewing.summary import summarise
from test_cli import run as run

pytestmark = pytest.mark.usefixtures("quick_fit")
ROLES = ("--sequence", "person", "--time", "minute", "--label", "label", "--features", "signal")


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    csv.write_csv(make_table(), "study.csv")


@pytest.mark.parametrize("words", [("compare",), ("apply",)])
def test_every_command_has_help(run, words):
    code, out, _ = run(*words, "--help")
    assert code == 0
    assert out.startswith(f"Usage: labeltide {words[0]}")


def test_exit_codes_are_in_the_help(run):
    out = run("--help")[1]
    assert "Exit codes: 0 success; 2 invalid input; 3 the data do not allow an answer; 4 more labels are wrong" in out
    assert "--fail-above" in run("audit", "--help")[1]


def test_the_loop_from_an_audit_to_a_corrected_table(run, study, tmp_path):
    assert run("audit", "study.csv", *ROLES, "--out", "old", "--quiet") == (0, "", "")
    decide(tmp_path / "old", [("Ada", 3, "walk", None), ("Ada", 4, None, None)])
    code, out, err = run("audit", "study.csv", *ROLES, "--decisions", "old", "--baseline", "old", "--out", "new")
    assert (code, err.split()[0]) == (0, "Read")  # what was read and decided, for a person
    assert "Decisions Trusted: 2 labels that reviewers settled in 'old'." in out
    assert "Baseline " in out
    assert out.endswith("Page new/report.html")
    code, out, _ = run("compare", "old", "new", "--out", "pages/compare.html")
    assert code == 0
    assert "240 labels matched by sequence and time." in out
    assert out.endswith("Page pages/compare.html")
    code, out, _ = run("apply", "old", "--out", "corrected.parquet")
    assert code == 0
    assert out.startswith("240 rows: corrected.parquet")
    assert parquet.read_table("corrected.parquet")["label"][3].as_py() == "walk"


def test_results_of_an_earlier_version_with_timing_and_difficulty_are_still_read(run, study, tmp_path):
    for name in ("plain", "old"):
        assert run("audit", "study.csv", *ROLES, "--out", name, "--quiet") == (0, "", "")
    about = json.loads((tmp_path / "old" / "audit.json").read_text())
    assert not {"timing", "difficulty"} & set(about)
    late = {"annotator": None, "from": "rest", "to": "walk", "mean": 2.9, "lower": 2.6, "upper": 3.2, "spread": 1.0}
    about["timing"] = [late | {"transitions": 90.0, "step": 1.0, "unit": ""}]
    about["difficulty"] = [{"level": index + 1, "labels": 30, "wrong": 0.5 - index / 20} for index in range(8)]
    (tmp_path / "old" / "audit.json").write_text(json.dumps(about))
    decide(tmp_path / "old", [("Ada", 3, "walk", None)])
    assert run("compare", "old", "plain", "--out", "compare.html")[0] == 0
    assert run("apply", "old", "--out", "corrected.parquet")[0] == 0
    assert run("export", "old", "--to", "csv")[0] == 0
    assert summary_text(about) == summary_text(json.loads((tmp_path / "plain" / "audit.json").read_text()))
    session = open_session(tmp_path / "old")
    assert summarise(session.audit, session.store)
    session.store.close()


def test_a_column_of_slips_that_earlier_versions_wrote_is_ignored(run, study, tmp_path):
    for name in ("old", "new"):
        assert run("audit", "study.csv", *ROLES, "--out", name, "--quiet") == (0, "", "")
    for path in (tmp_path / "old" / "labels.parquet", tmp_path / "old" / "issues.parquet"):
        table = parquet.read_table(path)
        number = table.column_names.index("probability_contested")
        parquet.write_table(table.add_column(number, "probability_slip", table["probability_contested"]), path)
    audit = json.loads((tmp_path / "old" / "audit.json").read_text())
    for part in (audit["contested"], *audit["contested"]["by_class"], *audit["contested"]["over_clock"]):
        part["slip"] = 0.1
    (tmp_path / "old" / "audit.json").write_text(json.dumps(audit))

    assert "slip" not in write_page(tmp_path / "old").read_text(encoding="utf-8")
    session = open_session(tmp_path / "old", items=5, sample=5)
    with closing(session.store):
        assert "slip" not in view_item(session, 0, "Ada")["model"]
    decide(tmp_path / "old", [("Ada", 3, "walk", None)])
    again = ("--decisions", "old", "--baseline", "old", "--out", "again", "--quiet")
    for words in (
        ("compare", "old", "new"),
        ("compare", "new", "old"),
        ("audit", "study.csv", *ROLES, *again),
        ("apply", "old", "--out", "corrected.parquet"),
        ("export", "old", "--to", "csv", "--out", "spans"),
    ):
        code, _, err = run(*words)
        assert code == 0, err


def test_a_limit_ends_with_code_4_where_the_interval_is_above(run, study):
    # the stub says 0 to 20 %, and its labels are wrong with 19 % on average
    code, out, _ = run("audit", "study.csv", *ROLES, "--out", "a", "--fail-above", "5%")
    assert code == 0
    assert "Limit Passed: about 19 % of the labels are wrong" in out


@pytest.mark.parametrize(
    ("form", "quiet"), [((), False), ((), True), (("--format", "json"), True), (("--format", "github"), False)]
)
def test_a_limit_that_is_passed_is_said_in_every_form(run, study, monkeypatch, form, quiet):
    estimate = StubTide._estimate
    monkeypatch.setattr(StubTide, "_estimate", lambda self, grid: replace(estimate(self, grid), total_lower=0.08))
    more = (*form, "--quiet") if quiet else form
    code, out, err = run("audit", "study.csv", *ROLES, "--out", "a", "--fail-above", "0.05", *more)
    assert code == 4
    assert "Failed: about 19 % of the labels are wrong" in (out + err).replace("%25", "%")
    if "json" in form:
        assert json.loads(out)["exit_code"] == 4
        assert err == ""
    elif quiet:
        assert out == ""
    if "github" in form:
        assert "::error title=Limit on wrong labels::Failed" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "nowhere", "nowhere"), "labeltide: An audit is a folder that `labeltide audit` wrote."),
        (("compare", "a", "b", "--out", "page.pdf"), "labeltide: The file must end in .html."),
        (
            ("compare", "a", "b", "--format", "xml"),
            "labeltide: Unknown format 'xml'. Choose one of: text, json, github.",
        ),
        (("apply", "nowhere", "--out", "new.csv"), "labeltide: An audit is a folder that `labeltide audit` wrote."),
        (("audit", "study.csv", "--fail-above", "5"), "labeltide: --fail-above must be a share"),
        (("audit", "study.csv", *ROLES, "--baseline", "nowhere"), "labeltide: An audit is a folder"),
        (("audit", "study.csv", *ROLES, "--decisions", "nowhere"), "labeltide: An audit is a folder"),
    ],
)
def test_wrong_use_ends_with_a_sentence_and_code_2(run, study, words, message):
    code, out, err = run(*words)
    assert code == 2
    assert message in err
    assert out == ""


def test_json_is_one_document_and_nothing_else(run, study):
    code, out, err = run("audit", "study.csv", *ROLES, "--out", "a", "--format", "json")
    assert (code, err.split()[0]) == (0, "Read")  # what was read and decided, for a person
    assert json.loads(out)["labels"] == 240
    code, out, err = run("compare", "a", "a", "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["issues"]["new"]["count"] == 0


def test_a_place_that_the_system_refuses_is_told_in_our_words(run, study, tmp_path):
    assert run("audit", "study.csv", *ROLES, "--out", "a", "--quiet") == (0, "", "")
    for command in (
        ("apply", "a", "--above", "0.9", "--out", "study.csv/new.csv"),
        ("export", "a", "--to", "csv", "--out", "study.csv/new"),
        ("compare", "a", "a", "--out", "study.csv/new.html"),
    ):
        code, _, err = run(*command)
        assert code == 2
        assert err.startswith("labeltide: ")
        assert "study.csv' cannot be read or written: File exists." in err
        assert "Errno" not in err


def test_an_audit_of_several_files_is_not_called_a_data_frame(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    table = make_table()
    for name, part in (("a", table.slice(0, 120)), ("b", table.slice(120))):
        csv.write_csv(part, tmp_path / "parts" / f"{name}.csv")
    assert run("audit", "parts", *ROLES, "--out", "a", "--quiet")[0] == 0
    code, _, err = run("apply", "a", "--above", "0.9", "--out", "new.csv")
    assert code == 2
    assert "or of several files. Name one file with the same table: --table FILE." in err
