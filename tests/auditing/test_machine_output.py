"""Results for pipelines: a limit, JSON and workflow commands that nothing can break."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditing.page.fake import HOSTILE, write_audit
from labeltide.auditing.compare import compare_audits
from labeltide.auditing.page import summary as machine_output
from labeltide.auditing.page.payload import Results


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05), (".5", 0.5), ("0", 0), ("12.5%", 0.125)]
)
def test_a_share_is_read_as_people_write_it(text, share):
    assert machine_output.read_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "100%", "-1%", "", "five", "nan", "1e-2", "5%%"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(ValueError, match="--fail-above must be a share"):
        machine_output.read_share(text)


def rates(rate, lower, upper):
    return {"noise": {"rate": rate, "rate_lower": lower, "rate_upper": upper}}


def test_the_lower_end_of_the_interval_decides():
    assert machine_output.check_limit(rates(0.08, 0.04, 0.12), 0.05).exit_code == 0
    found = machine_output.check_limit(rates(0.08, 0.06, 0.12), 0.05)
    assert found.exit_code == 4
    assert found.sentence.startswith("Failed: about 8.0")
    assert machine_output.check_limit(rates(0.08, 0.05, 0.12), 0.05).exit_code == 0  # not above
    assert machine_output.check_limit(rates(0.08, None, None), 0.05).exit_code == 3


@pytest.fixture
def hostile(tmp_path):
    names = [*HOSTILE, "a\n::error::taken", "b\r\n::set-output name=x::1"]
    folder = write_audit(tmp_path / "a", sequences=10, steps=40, names=names, classes=tuple(names[-3:]))
    return Results.in_folder(folder)


def commands(results, **changes):
    issues = pq.read_table(results.issues)
    audit = {**results.audit, **changes}
    return list(machine_output.github_audit(audit, issues, Path("data/a,b:c.csv"), None))


def test_workflow_commands_stay_on_their_line_and_are_few(hostile):
    lines = commands(hostile)
    assert all(line.startswith(("::warning ", "::notice", "::error")) for line in lines)
    assert all("\n" not in line and "\r" not in line for line in lines)
    assert len([line for line in lines if line.startswith("::warning")]) <= machine_output.ANNOTATIONS
    assert lines[0].startswith("::warning file=data/a%2Cb%3Ac.csv,line=")
    assert "100%25" in machine_output._command("notice", "100% sure", {}) or "100%" not in lines[0]


def test_reasons_are_sentences_that_end(hostile):
    issues = pq.read_table(hostile.issues).slice(0, 1)
    for reason in ("recorded walk, but 8 of 9 neighbours say sit", "The signals fit.", None):
        changed = issues.set_column(issues.column_names.index("reason"), "reason", pa.array([reason], pa.string()))
        text = next(machine_output.github_audit(hostile.audit, changed, Path("a.csv"), None))
        assert f"{(reason or '').rstrip('.')}. The label is right with probability" in text
        assert text.count("recorded ") == (0 if reason == "The signals fit." else 1)


def test_lines_are_those_of_the_file_after_its_names(hostile):
    first = pq.read_table(hostile.issues).to_pylist()[0]
    assert f",line={first['row'] + 2}," in commands(hostile)[0]
    issues = pq.read_table(hostile.issues)
    other = next(machine_output.github_audit(hostile.audit, issues, Path("a.parquet"), None))
    assert other.startswith("::warning file=a.parquet,title=")


def test_one_document_holds_what_a_machine_needs(hostile, tmp_path):
    check = machine_output.check_limit(hostile.audit, 0.0)
    found = json.loads(machine_output.audit_document(hostile.audit, tmp_path, check))
    assert found["rate"] == hostile.audit["noise"]["rate"]
    assert found["exit_code"] == check.exit_code
    assert found["fail_above"]["limit"] == 0.0
    assert found["page"].endswith("report.html")
    compare = compare_audits(hostile, hostile).summary
    with_baseline = json.loads(machine_output.audit_document({**hostile.audit, "compare": compare}, None, None))
    assert "first" not in with_baseline["compare"]["issues"]["new"]
    assert json.loads(machine_output.comparison_document(compare, None))["command"] == "compare"
    assert list(machine_output.github_comparison(compare))[-1].startswith("::notice title=Then and now::")
