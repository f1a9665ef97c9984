"""Hostile names in results that notebooks show and that other programs open: shown as text, run nowhere."""

import csv
import io
import json
import sqlite3

import numpy as np
import pyarrow as pa
import pytest

import labeltide as lt
from auditing.page.fake import HOSTILE, write_audit
from auditing.stub import use_stub
from auditing.tables import make_table
from labeltide.auditing.compare import compare_audits
from labeltide.auditing.decisions import Decision, DecisionStore
from labeltide.auditing.page.page import write_comparison
from labeltide.inference.audit import LabelAudit
from labeltide.tables.columns import write_safe_csv

MARKUP = ("<script", "<img", 'onerror="', "<b>")
NAMES = [text.encode("utf-8", "replace").decode() for text in HOSTILE if "\x00" not in text]
FORMULAS = ["=1+1", "+x", "-x", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0", " =1+1", "a\n=1+1"]


def assert_harmless(html: str) -> None:
    """Nothing of a name is an element or an attribute."""
    assert not any(part in html for part in MARKUP)


def label_audit(classes) -> LabelAudit:
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(len(classes)), (3, 5))
    labels = rng.integers(len(classes), size=(3, 5, 1)).astype(np.int8)
    mask, clock, wrong = (
        np.ones((3, 5), bool),
        np.tile(np.linspace(0, 1, 5), (3, 1)),
        np.full((3, 5, len(classes)), 0.2),
    )
    return LabelAudit(np.array(classes), labels, clock, mask, chances, chances, wrong, 0.5, False, None, chances)


def test_a_notebook_shows_hostile_class_names_as_text():
    audit = label_audit(NAMES[:3])
    assert_harmless(audit._repr_html_())


def test_a_notebook_shows_a_table_audit_with_hostile_names_as_text(monkeypatch, tmp_path):
    use_stub(monkeypatch)
    table = make_table()
    names = pa.array([NAMES[0] if name == "rest" else NAMES[1] for name in table["label"].to_pylist()])
    people = pa.array([f"{NAMES[2]} {name}" for name in table["person"].to_pylist()])
    table = table.set_column(3, "label", names).set_column(0, "person", people)
    table = table.rename_columns(["person", "minute", NAMES[0], "label", "truth"])
    result = lt.audit(table, sequence="person", time="minute", label="label", features=[NAMES[0]], out=tmp_path / "out")
    assert_harmless(result._repr_html_())
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<script>document.title" not in page
    assert "<img src=x" not in page


def test_a_comparison_shows_hostile_names_as_text(tmp_path):
    for name in ("old", "new"):
        write_audit(tmp_path / name, classes=tuple(NAMES[:3]), names=NAMES, annotators=tuple(NAMES[3:5]), sequences=10)
    compared = compare_audits(tmp_path / "old", tmp_path / "new")
    page = write_comparison(compared.summary, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>document.title" not in page
    assert "<img src=x" not in page


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_a_csv_begins_with_a_formula(text, tmp_path):
    table = pa.table({"text": [text], text: ["title"], "number": [-1.5], "list": pa.array([text])})
    write_safe_csv(table, tmp_path / "file.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "file.csv").read_text(encoding="utf-8"))))
    for cell in (cell for row in rows for cell in row if cell != "-1.5"):
        assert not cell.lstrip(" \t\r\n").startswith(("=", "+", "-", "@")), cell


@pytest.mark.parametrize("text", ["x'); DROP TABLE decisions; --", '"', "'", "%s", "?", ":label", "\\", *NAMES[:6]])
def test_decisions_keep_hostile_texts_as_they_are(text, tmp_path):
    with DecisionStore.open(tmp_path, create=True) as store:
        store.add(Decision(text[:50], "audit", text, "label", text, 1, 2, comment=text, request=text))
        store.keep_setting(text, text)
        kept = store.all()[0]
        assert (kept.reviewer, kept.label, kept.comment, store.setting(text)) == (text, text, text, text)
    names = sqlite3.connect(tmp_path / "decisions.sqlite").execute("SELECT name FROM sqlite_master").fetchall()
    assert ("decisions",) in names
    json.dumps(kept.comment)
