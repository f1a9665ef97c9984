"""An audit of a table as people have it: what was left out is counted, and results stand at the user's own rows."""

import json
from pathlib import Path

import pandas as pd
import pytest

import labeltide as lt

PEOPLE = Path(__file__).parents[1] / "tables" / "people"
pytestmark = pytest.mark.usefixtures("quick_fit")


def test_bad_rows_are_counted_and_results_stand_at_the_users_rows(tmp_path):
    frame = pd.read_csv(PEOPLE / "duplicates.csv")
    result = lt.audit(PEOPLE / "duplicates.csv", drop_bad_rows=True, out=tmp_path / "out")
    about = json.loads((tmp_path / "out" / "audit.json").read_text())["table"]
    assert (about["rows"], about["labels"]) == (len(frame), 60) == (78, 60)
    assert any("18 rows that repeat an earlier one exactly" in sentence for sentence in about["messages"])
    assert [each["role"] for each in about["overview"]] == ["sequence", "time", "feature", "label"]
    lines = result.to_frame()
    assert (frame.loc[lines["row"], "label"].to_numpy() == lines["recorded"].to_numpy()).all()
    assert len(result.corrected(frame)) == 78
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What was read and decided: 4 columns, 4 of them used" in page
    assert "<title>duplicates.csv: label audit</title>" in page


def test_a_page_without_issues_and_plan_says_so(tmp_path):
    from auditing.page.fake import write_audit
    from labeltide.auditing.page import write_page

    folder = write_audit(tmp_path, sequences=1, steps=1, annotators=None, classes=("only",), timelines=0, plan=[])
    page = write_page(folder).read_text(encoding="utf-8")
    assert "There is no plan" in page
    assert "There is nothing to draw" in page
