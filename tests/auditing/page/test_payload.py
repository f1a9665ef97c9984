import json

import pyarrow.parquet as pq
import pytest

from auditing.page.fake import write_audit
from labeltide.auditing.page import payload as subject
from labeltide.auditing.page.payload import Results, build_payload, embed


@pytest.fixture
def folder(tmp_path):
    return write_audit(tmp_path, sequences=5, steps=80)


def read(folder):
    return json.loads((folder / "audit.json").read_text())


def test_issues_and_timelines_say_what_the_files_say(folder):
    found = build_payload(Results.in_folder(folder))
    issues, words = pq.read_table(folder / "issues.parquet").to_pylist(), found["words"]
    assert found["issues"]["shown"] == found["issues"]["total"] == len(issues)
    for index, issue in enumerate(issues):
        assert words["class"][found["issues"]["recorded"][index]] == issue["recorded"]
        assert words["sequence"][found["issues"]["sequence"][index]] == issue["sequence"]
        assert found["issues"]["probability_right"][index] == pytest.approx(issue["probability_right"], abs=1e-4)
    labels = pq.read_table(folder / "labels.parquet").to_pylist()
    for timeline in found["timelines"]:
        for track in timeline["tracks"]:
            own = [
                label
                for label in labels
                if label["sequence"] == words["sequence"][timeline["sequence"]]
                and label["annotator"] == words["annotator"][track["annotator"]]
            ]
            assert [words["class"][n] if n >= 0 else None for n in track["recorded"]] == [
                each["recorded"] for each in own
            ]
            assert track["issues"] == [step for step, each in enumerate(own) if each["is_issue"]]


def test_a_folder_of_an_earlier_version_may_lack_columns(folder):
    for name in ("issues.parquet", "labels.parquet"):
        pq.write_table(pq.read_table(folder / name).drop_columns(["corrected", "reason"]), folder / name)
    found = build_payload(Results.in_folder(folder))["issues"]
    assert found["shown"] > 0
    assert set(found["reason"]) == {-1}
    pq.write_table(pq.read_table(folder / "labels.parquet").drop_columns(["is_issue"]), folder / "labels.parquet")
    with pytest.raises(ValueError, match=r"lacks the column 'is_issue'.*Audit again"):
        build_payload(Results.in_folder(folder))


def test_the_step_of_an_issue_is_where_its_timeline_flags_it(folder):
    found = build_payload(Results.in_folder(folder))
    by_sequence = {timeline["sequence"]: timeline for timeline in found["timelines"]}
    issues = found["issues"]
    assert issues["shown"]
    for sequence, step, who in zip(issues["sequence"], issues["step"], issues["annotator"], strict=True):
        track = next(track for track in by_sequence[sequence]["tracks"] if track["annotator"] == who)
        assert step in track["issues"]


def test_a_budget_of_bytes_cuts_rows_and_the_texts_only_they_use(folder, monkeypatch):
    whole = build_payload(Results.in_folder(folder))
    monkeypatch.setattr(subject, "ISSUE_BYTES", 2000)
    monkeypatch.setattr(subject, "TIMELINE_BYTES", 10)
    cut = build_payload(Results.in_folder(folder))
    assert 0 < cut["issues"]["shown"] < whole["issues"]["shown"]
    assert len(json.dumps(cut["issues"])) < 4000
    assert len(cut["timelines"]) == 1  # the first is always there
    used = [n for n in cut["issues"]["sequence"] + [cut["timelines"][0]["sequence"]] if n >= 0]
    assert max(used) < len(cut["words"]["sequence"])
    assert len(cut["words"]["reason"]) <= cut["issues"]["shown"]


def test_a_jump_in_time_is_a_gap():
    assert subject._gaps([0, 1, 2, 3, 30, 31]) == [4]
    assert subject._gaps(["2026-01-01 00:00", "2026-01-01 01:00", "2026-01-01 02:00", "2026-01-02 02:00"]) == [3]
    assert subject._gaps(["a", "b", "c"]) == []
    assert subject._gaps([]) == []


def test_signals_of_any_size_fit_the_scale():
    assert subject._signal("x", [1.0, None, 3.0])["values"] == [0, -1, 1000]
    assert subject._signal("x", [5.0, 5.0])["values"] == [0, 0]
    assert subject._signal("x", [None])["values"] == [-1]
    json.dumps(subject._signal("x", [-1.7e308, 1.7e308]), allow_nan=False)


def test_embedded_data_end_no_element_and_come_back_whole():
    data = {"a": "</script><!--<script>&\u2028]]>"}
    text = embed(data)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == data
