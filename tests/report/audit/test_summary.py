import json
import re

from labeltide.report.audit import summary_html, summary_text
from report.audit.fake import HOSTILE, write_audit


def test_the_summary_is_read_in_ten_seconds(tmp_path):
    text = summary_text(json.loads((write_audit(tmp_path, sequences=4, steps=60) / "audit.json").read_text()))
    lines = text.splitlines()
    assert lines[0] == "wearables.csv: 480 labels in 4 sequences, by 2 annotators."
    assert len(lines) <= 18
    assert max(map(len, lines)) <= 120
    for head in ("Wrong", "When", "Over time", "Next", "Careful"):
        assert re.search(f"^{head} ", text, re.MULTILINE)


def test_no_name_reaches_the_terminals_controls(tmp_path):
    folder = write_audit(tmp_path, sequences=4, steps=60, classes=tuple(HOSTILE), names=HOSTILE[::-1])
    audit = json.loads((folder / "audit.json").read_text())
    audit["table"]["name"] = HOSTILE[-1]
    text = summary_text(audit)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u2066-\u2069]", text)
    assert len(text) < 3000


def test_a_notebook_gets_html_without_scripts(tmp_path):
    folder = write_audit(tmp_path, sequences=4, steps=60, names=HOSTILE, classes=tuple(HOSTILE[:3]))
    html = summary_html(folder)
    assert html.startswith('<div class="labeltide-audit">')
    assert not re.search(r"<script|<img|https?://", html)
    assert "report.html" in html
    assert "report.html" not in summary_html(json.loads((folder / "audit.json").read_text()))
