"""Two audits side by side: what is new, resolved and persisting, and whether the noise differs."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import labeltide as lt
from auditing.page.fake import HOSTILE, write_audit
from auditing.page.test_render import Outline
from auditing.tables import make_table
from labeltide.auditing.compare import COLUMNS, compare_audits
from labeltide.auditing.page import write_page
from labeltide.auditing.page.page import write_comparison

ROLES = {"sequence": "person", "time": "minute", "label": "label", "features": "signal", "fdr": 0.6}
pytestmark = pytest.mark.usefixtures("quick_fit")


def audit(table, folder, **changes):
    return lt.audit(table, out=folder, **{**ROLES, **changes})


def relabel(table, rows, name="walk"):
    labels = np.array(table["label"].to_pylist(), dtype=object)
    labels[rows] = name
    return table.set_column(table.column_names.index("label"), "label", pa.array(list(labels)))


def test_an_audit_compared_with_itself_has_nothing_new(tmp_path):
    audit(make_table(), tmp_path / "a")
    found = compare_audits(tmp_path / "a", tmp_path / "a")
    counts = {kind: each["count"] for kind, each in found.summary["issues"].items()}
    assert counts["new"] == counts["resolved"] == 0 < counts["persisting"]
    assert found.summary["rate"]["p_value"] == 1
    assert found.summary["rate"]["method"] == "people"
    assert found.summary["matched"] | {"by": ""} == {
        "by": "",
        "labels": 240,
        "relabelled": 0,
        "only_old": 0,
        "only_new": 0,
    }
    assert "no evidence of a difference" in str(found)


def test_kinds_of_issues_are_those_of_a_slow_count(tmp_path):
    table = make_table(seed=1)
    later = relabel(table, slice(20, 60)).slice(20)  # the first person is gone
    later = pa.concat_tables([later, relabel(make_table(people=1, seed=5), slice(0, 0))])
    ids = pa.array([*later["person"].to_pylist()[:-20], *["new"] * 20])
    later = later.set_column(0, "person", ids)
    audit(table, tmp_path / "a")
    audit(later, tmp_path / "b")
    found = compare_audits(tmp_path / "a", tmp_path / "b")
    then, now = (
        {
            (line["sequence"], line["time"]): line
            for line in parquet.read_table(tmp_path / name / "labels.parquet").to_pylist()
        }
        for name in "ab"
    )
    flagged = {
        name: {key for key, line in lines.items() if line["is_issue"]} for name, lines in (("a", then), ("b", now))
    }
    expected = {
        "new": flagged["b"] - flagged["a"],
        "resolved": flagged["a"] - flagged["b"],
        "persisting": flagged["a"] & flagged["b"],
    }
    for kind, keys in expected.items():
        lines = [line for line in found.issues.to_pylist() if line["change"] == kind]
        assert {(line["sequence"], line["time"]) for line in lines} == keys
        assert found.summary["issues"][kind]["count"] == len(keys)
    gone = {key for key in expected["resolved"] if key not in now}
    assert found.summary["issues"]["resolved"]["not_in_the_other"] == len(gone) > 0
    assert found.summary["matched"]["only_old"] == found.summary["matched"]["only_new"] == 20
    changed = sum(then[key]["recorded"] != now[key]["recorded"] for key in then.keys() & now.keys())
    assert found.summary["matched"]["relabelled"] == changed > 0


def test_the_order_of_rows_does_not_matter_where_there_are_times(tmp_path):
    table = make_table()
    audit(table, tmp_path / "a")
    audit(table.take(pa.array(np.random.default_rng(0).permutation(len(table)))), tmp_path / "b")
    found = compare_audits(tmp_path / "a", tmp_path / "b").summary
    assert found["matched"]["labels"] == 240
    assert found["issues"]["new"]["count"] == found["issues"]["resolved"]["count"] == 0


def test_without_times_rows_are_matched_by_number_and_that_is_said(tmp_path):
    for name in "ab":
        audit(make_table().drop_columns("minute"), tmp_path / name, time=None)
    found = compare_audits(tmp_path / "a", tmp_path / "b").summary
    assert found["matched"]["by"] == "sequence and row number"
    assert "matched by row number" in found["messages"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": "minute"}, "The new audit has no column of times"),
        ({"person": "x"}, "No sequence and time occurs in both audits"),
        ({"who": ("A", "B", "C", "D")}, "No annotator is in both audits"),
    ],
)
def test_what_cannot_be_matched_is_told(tmp_path, change, message):
    table = make_table()
    old, new, roles = table, table, {}
    if "drop" in change:
        new, roles = table.drop_columns("minute"), {"time": None}
    if "person" in change:
        new = table.set_column(0, "person", pa.array([f"x{name}" for name in table["person"].to_pylist()]))
    if "who" in change:
        first, second = (pa.array([change["who"][index + row % 2] for row in range(240)]) for index in (0, 2))
        old, new = table.append_column("who", first), table.append_column("who", second)
        roles = {"annotator": "who"}
    audit(old, tmp_path / "a", **(roles if "who" in change else {}))
    audit(new, tmp_path / "b", **roles)
    found = compare_audits(tmp_path / "a", tmp_path / "b")
    assert found.summary["issues"] is None
    assert found.summary["rate"]["p_value"] is not None
    assert message in found.summary["messages"][0]
    assert "No label could be matched" in str(found)


def test_annotators_of_one_audit_alone_are_told(tmp_path):
    table = make_table()
    people = [("Ada", "Ben"), ("Ada", "Cem")]
    for name, who in zip("ab", people, strict=True):
        audit(table.append_column("who", pa.array([*who] * 120)), tmp_path / name, annotator="who")
    found = compare_audits(tmp_path / "a", tmp_path / "b").summary
    assert found["matched"]["by"] == "sequence, time and annotator"
    assert found["matched"]["labels"] == found["matched"]["only_old"] == 120
    assert "1 annotator is only in the old audit." in found["messages"]


def test_classes_of_one_audit_alone_are_told_and_not_compared(tmp_path):
    audit(make_table(), tmp_path / "a")
    audit(relabel(make_table(), slice(0, 40), "swim"), tmp_path / "b")
    found = compare_audits(tmp_path / "a", tmp_path / "b").summary
    assert "Only in the new audit: class 'swim'." in found["messages"]
    assert [curve["class"] for curve in found["curves"]] == [None, "rest", "walk"]


def test_other_clocks_are_not_compared(tmp_path):
    audit(make_table(), tmp_path / "a")
    audit(make_table(), tmp_path / "b", clock="minute")
    found = compare_audits(tmp_path / "a", tmp_path / "b").summary
    assert found["clock"] is None
    assert "The clocks differ" in found["messages"][0]
    assert write_comparison(found, tmp_path / "page.html").stat().st_size > 5000


def test_the_baseline_is_in_the_results_and_on_the_page(tmp_path):
    audit(make_table(), tmp_path / "a")
    result = audit(relabel(make_table(), slice(20, 60)), tmp_path / "b", baseline=tmp_path / "a")
    kept = json.loads((tmp_path / "b" / "audit.json").read_text())["compare"]
    assert kept == compare_audits(tmp_path / "a", tmp_path / "b").summary == result.summary["compare"]
    page = (tmp_path / "b" / "report.html").read_text(encoding="utf-8")
    assert "compare" in Outline(page).ids
    assert write_page(tmp_path / "b").read_text(encoding="utf-8") == page
    assert "compare" not in Outline((tmp_path / "a" / "report.html").read_text(encoding="utf-8")).ids


def test_the_baseline_may_be_the_folder_that_is_replaced(tmp_path):
    audit(make_table(), tmp_path / "a")
    result = audit(relabel(make_table(), slice(20, 60)), tmp_path / "a", baseline=tmp_path / "a")
    assert result.summary["compare"]["matched"]["relabelled"] > 0


def test_a_page_in_the_folder_does_not_keep_an_audit_from_being_replaced(tmp_path):
    audit(make_table(), tmp_path / "a")
    write_comparison(compare_audits(tmp_path / "a", tmp_path / "a").summary, tmp_path / "a" / "compare.html")
    with pytest.raises(ValueError, match="The file must be new"):
        write_comparison({}, tmp_path / "a" / "compare.html")
    audit(make_table(), tmp_path / "a")


def test_names_cannot_leave_their_place_on_the_page(tmp_path):
    folders = [
        write_audit(tmp_path / name, sequences=8, steps=40, names=HOSTILE[:8], classes=tuple(HOSTILE[:4]), seed=seed)
        for name, seed in (("a", 0), ("b", 1))
    ]
    for folder in folders:
        path = folder / "audit.json"
        content = json.loads(path.read_text())
        content["table"]["name"] = HOSTILE[0]
        path.write_text(json.dumps(content))
    found = compare_audits(*folders)
    page = write_comparison(found.summary, tmp_path / "page.html").read_text(encoding="utf-8")
    outline = Outline(page)
    assert not [tag for tag, _ in outline.tags if tag in ("script", "img")]
    assert all(link.startswith("#") for link in outline.links)
    assert not re.search(r"https?:", page.replace("http://example.org", ""))
    assert "\x1b" not in str(found)


def test_a_folder_that_is_no_audit_is_told(tmp_path):
    audit(make_table(), tmp_path / "a")
    (tmp_path / "empty").mkdir()
    for folder, message in ((tmp_path / "nowhere", "There is no folder"), (tmp_path / "empty", "holds no audit.json")):
        with pytest.raises((ValueError, OSError), match=message):
            compare_audits(tmp_path / "a", folder)
    (tmp_path / "a" / "audit.json").write_text('{"format": 1, "labeltide": "0.1.0"}')
    with pytest.raises(ValueError, match=r"not what (an audit of )?this version writes.*Audit again."):
        compare_audits(tmp_path / "a", tmp_path / "a")
    (tmp_path / "a" / "audit.json").write_text("no json")
    with pytest.raises(ValueError, match=r"not what (an audit of )?this version writes.*Audit again."):
        compare_audits(tmp_path / "a", tmp_path / "a")


def test_a_damaged_file_of_labels_is_told(tmp_path):
    audit(make_table(), tmp_path / "a")
    (tmp_path / "a" / "labels.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"labels.parquet. is not what an audit of this version writes"):
        compare_audits(tmp_path / "a", tmp_path / "a")
    with pytest.raises(ValueError, match=r"labels.parquet. is not what an audit of this version writes"):
        audit(make_table(), tmp_path / "b", baseline=tmp_path / "a")
    assert not (tmp_path / "b").exists()


def test_the_columns_that_are_matched_are_those_of_labels_parquet(tmp_path):
    audit(make_table(), tmp_path / "a")
    assert set(COLUMNS) <= set(parquet.read_schema(tmp_path / "a" / "labels.parquet").names)
