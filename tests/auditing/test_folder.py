"""Results appear whole or not at all, over nothing but an earlier audit, and every program can read them."""

import json
import os
import stat

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from auditing.lines import lines_of
from auditing.tables import studies, texts
from labeltide._files import to_json
from labeltide.auditing.audit_json import load_audit_json
from labeltide.auditing.results import OURS, check_folder, new_results, rank_issues, write_findings
from labeltide.tables.columns import with_verdicts, write_safe_csv
from labeltide_bench.tables import read_audit_table

AUDIT = {"format": 1, "labeltide": "0", "rate": float("nan"), "curve": np.array([1.0, np.inf]), "classes": ("a", "b")}
LABELS = pa.table(
    {
        "row": [0, 1, 2, 3],
        "sequence": ["=cmd", "b", "c", "d"],
        "time": ["-5", "1", "2", "3"],
        "recorded": ["x", "y", "x", None],
        "probability_right": [0.2, 0.9, 0.1, None],
        "is_issue": [True, False, True, False],
    }
)
NOISE = pa.table({"annotator": pa.array([None], pa.string()), "clock": [0.5], "true": ["@x"], "probability": [0.25]})


def save_model(path):
    path.write_bytes(b"model")


def write(folder, audit_json=AUDIT, labels=LABELS, save_model=save_model, write_page=lambda draft: None):
    with new_results(folder) as draft:
        issues = rank_issues(labels)
        parquet.write_table(labels, draft / "labels.parquet")
        parquet.write_table(issues, draft / "issues.parquet")
        write_safe_csv(with_verdicts(issues), draft / "issues.csv")
        write_findings(draft, audit_json, NOISE, save_model)
        write_page(draft)
    return folder


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_all_files_are_there_and_nothing_else(tmp_path):
    out = write(tmp_path / "new" / "out", write_page=lambda draft: (draft / "report.html").write_text("page"))
    assert everything(out) == sorted([*OURS, "model/model.safetensors"])
    assert everything(tmp_path) == sorted(["new", "new/out", *(f"new/out/{name}" for name in everything(out))])
    assert stat.S_IMODE(out.stat().st_mode) == 0o777 & ~_umask()


def test_issues_are_ranked_and_safe(tmp_path):
    out = write(tmp_path / "out")
    issues = parquet.read_table(out / "issues.parquet")
    assert issues["rank"].to_pylist() == [1, 2]
    assert issues["row"].to_pylist() == [2, 0]
    assert issues["sequence"].to_pylist() == ["c", "=cmd"]
    shown = csv.read_csv(out / "issues.csv")
    assert shown["sequence"].to_pylist() == ["c", "'=cmd"]
    assert shown["time"].to_pylist() == [2, -5]
    assert shown.column_names == [*issues.column_names, "verdict"]
    assert csv.read_csv(out / "noise.csv")["true"].to_pylist() == ["'@x"]
    assert parquet.read_table(out / "labels.parquet").equals(LABELS)


def test_numbers_in_json_are_finite_or_null(tmp_path):
    content = json.loads((write(tmp_path / "out") / "audit.json").read_text(), parse_constant=pytest.fail)
    assert content["rate"] is None
    assert content["curve"] == [1.0, None]
    assert content["classes"] == ["a", "b"]


@settings(max_examples=100, deadline=None)
@given(value=st.recursive(st.none() | st.floats() | st.booleans() | st.text() | st.integers(), st.lists))
def test_any_content_becomes_json(value):
    json.dumps(to_json({"value": value, "array": np.array([1, 2], np.int8), "path": os}), allow_nan=False)


def test_an_earlier_audit_is_replaced(tmp_path):
    out = write(tmp_path / "out")
    (out / "report.html").write_text("old")
    write(out, audit_json={**AUDIT, "format": 2})
    assert json.loads((out / "audit.json").read_text())["format"] == 2
    assert not (out / "report.html").exists(), "a page of other numbers"
    assert everything(tmp_path) == sorted(["out", *(f"out/{name}" for name in everything(out))])


@pytest.mark.parametrize("name", ["thesis.docx", ".hidden", "model/other.bin"])
def test_other_peoples_files_are_never_touched(tmp_path, name):
    out = write(tmp_path / "out")
    (out / name).write_text("mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=rf"must be new, empty or .*It also holds '{name}'\. Name another folder"):
        write(out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_files_with_our_names_need_an_audit_among_them(tmp_path):
    for content in ("no json", "[]", '{"format": 1}'):
        (tmp_path / "noise.csv").write_text("mine")
        (tmp_path / "audit.json").write_text(content)
        with pytest.raises(ValueError, match=r"but no audit.json"):
            check_folder(tmp_path)


def test_a_file_or_a_dead_link_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name in ("file", "link"):
        with pytest.raises(ValueError, match="The results need a folder"):
            write(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"


def test_an_empty_folder_and_a_link_to_one_are_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "empty" / "audit.json").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
@pytest.mark.parametrize("where", ["save_model", "write_page", "rename"])
def test_what_stops_half_way_leaves_everything_as_it_was(tmp_path, monkeypatch, error, where):
    out = write(tmp_path / "kept")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def stop(*_):
        raise error("stop")

    if where == "rename":
        rename, calls = os.rename, []

        def second_fails(old, new):
            calls.append(new)
            return stop() if len(calls) == 2 else rename(old, new)

        monkeypatch.setattr(os, "rename", second_fails)
    for folder in (out, tmp_path / "parent" / "new"):
        if where == "rename" and folder != out:
            continue
        with pytest.raises(error):
            write(folder, **({} if where == "rename" else {where: stop}))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(table=studies(), issue=st.randoms(), reason=texts)
def test_any_study_can_be_written_and_read_again(tmp_path_factory, table, issue, reason):
    try:
        audit = read_audit_table(table, sequence="s", time="t", label="y", features="v", annotator="who")
    except ValueError:
        return
    lines = lines_of(audit)
    chosen = [issue.random() < 0.5 for _ in range(len(lines))]
    lines = lines.append_column("is_issue", pa.array(chosen, pa.bool_()))
    lines = lines.append_column("probability_right", pa.array([issue.random() for _ in chosen]))
    lines = lines.append_column("reason", pa.array([reason.encode("utf-8", "replace").decode()] * len(lines)))
    out = write(tmp_path_factory.mktemp("any") / "out", labels=lines, audit_json={**AUDIT, "messages": audit.messages})
    assert parquet.read_table(out / "labels.parquet").equals(lines)
    assert len(parquet.read_table(out / "issues.parquet")) == sum(chosen)
    assert json.loads((out / "audit.json").read_text())["messages"] == list(audit.messages)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def type_into(folder, word):
    path = folder / "issues.csv"
    path.write_bytes(path.read_bytes().rstrip(b"\n") + word.encode() + b"\n")


def test_what_was_typed_is_never_overwritten(tmp_path):
    out = write(tmp_path / "out")
    (out / "issues-edited-2.csv").write_text("mine")  # the first was removed
    type_into(out, "typed")
    write(out)
    assert (out / "issues-edited-2.csv").read_text() == "mine"
    assert "typed" in (out / "issues-edited-3.csv").read_text()  # the latest has the highest number


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"no parquet")])
def test_typed_verdicts_are_kept_where_issues_parquet_is_missing_or_damaged(tmp_path, damage):
    out = write(tmp_path / "out")
    type_into(out, "typed")
    damage(out / "issues.parquet")
    write(out)
    assert "typed" in (out / "issues-edited-1.csv").read_text()


def test_messages_of_earlier_folders_are_read(tmp_path):
    earlier = {"format": 1, "table": {"classes": ["a", "b"], "said": ["One."]}, "compare": {"said": ["Two."]}}
    (tmp_path / "audit.json").write_text(json.dumps(earlier))
    audit = load_audit_json(tmp_path)
    assert (audit["table"]["messages"], audit["compare"]["messages"]) == (["One."], ["Two."])
    (tmp_path / "audit.json").write_text(json.dumps({"format": 1, "table": {"said": [1]}}))
    with pytest.raises(ValueError, match=r"table\.messages\[0\] must be a text"):
        load_audit_json(tmp_path)
