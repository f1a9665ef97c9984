import json
import re

from auditing.page.fake import HOSTILE, write_audit
from labeltide.auditing.page import summary_html, summary_text
from labeltide.auditing.page.format import terminal_text
from labeltide.auditing.page.verdict import write_verdict


def test_the_summary_is_read_in_ten_seconds(tmp_path):
    audit = json.loads((write_audit(tmp_path, sequences=4, steps=60) / "audit.json").read_text())
    text = summary_text(audit)
    assert len(text.split()) < 75
    assert text.splitlines() == [
        "wearables.csv: 480 labels in 4 sequences, by 2 annotators.",
        "Wrong      about 28 % of the labels (95 % interval 27 to 30 %)",
        f"To check   {audit['issues']['count']} labels, most likely errors first",
        "When       highest near 21:30 (48 %), lowest near 09:30 (8.2 %)",
        "Over time  changes by 40 percentage points (34 to 47), p < 0.001",
        'Next       check the listed labels, then annotate 4 stretches again, "p01" first',
        "Careful    1 warning: Bursts of mistakes",
    ]


def test_of_several_clocks_the_summary_names_each(tmp_path):
    audit = json.loads((write_audit(tmp_path, sequences=4, steps=60) / "audit.json").read_text())
    still = {**audit["temporality"], "p_value": 0.6}
    first = {"clock": {"name": "since", "kind": "column"}, "noise": audit["noise"], "temporality": still}
    moves = {part: audit[part] for part in first}
    lines = summary_text({**audit, **first, "other_clocks": [moves]}).splitlines()
    assert lines[3] == "When       highest near 21:30 (48 %), lowest near 09:30 (8.2 %)"
    assert lines[4].startswith("Over time  over since: no change shown (p = 0.60); over the day: changes by")
    assert summary_html({**audit, **first, "other_clocks": [moves]}).count("<svg") == 2


def test_the_summary_claims_nothing_that_no_test_carries(tmp_path):
    folder = write_audit(tmp_path, sequences=4, steps=60, is_noisy=False, is_temporal=False, annotators=None)
    audit = json.loads((folder / "audit.json").read_text())
    lines = summary_text(audit).splitlines()
    assert lines[1].startswith("Wrong      no clear sign of random errors")
    assert lines[3:6] == [
        "When       no moment stands out",
        "Over time  no change shown (p = 0.41)",
        "Next       nothing urgent",
    ]
    audit["noise"]["rate"] = None
    assert summary_text(audit).splitlines()[1].startswith("Wrong      cannot be estimated. The share")


def test_where_nothing_is_wrong_no_list_is_pointed_at_and_no_zero_is_made_much_of(tmp_path):
    folder = write_audit(tmp_path, sequences=4, steps=60, is_noisy=False, is_temporal=False)
    audit = json.loads((folder / "audit.json").read_text())
    audit["temporality"] |= {"worst_rate": 0.0001, "change_upper": 0.0003}
    audit["issues"]["count"] = 0
    _, when, changes, then = write_verdict(audit).cards
    assert terminal_text(when.detail) == "The estimate is 0.0 % throughout."
    assert "ruled out" not in changes.detail
    assert then.detail == "The labels can be used as they are."
    assert then.link is None
    assert "To check   no label is listed" in summary_text(audit)


def test_no_name_reaches_the_terminals_controls(tmp_path):
    folder = write_audit(tmp_path, sequences=4, steps=60, classes=tuple(HOSTILE), names=HOSTILE[::-1])
    audit = json.loads((folder / "audit.json").read_text())
    audit["table"]["name"] = HOSTILE[-1]
    text = summary_text(audit)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u2066-\u2069]", text)
    assert len(text) < 3000


def test_a_notebook_gets_html_without_scripts(tmp_path):
    folder = write_audit(tmp_path, sequences=4, steps=60, names=HOSTILE, classes=tuple(HOSTILE[:3]))
    html = summary_html(json.loads((folder / "audit.json").read_text()), folder)
    assert html.startswith('<div class="labeltide-audit">')
    assert not re.search(r"<script|<img|https?://", html)
    assert "report.html" in html
    assert "report.html" not in summary_html(json.loads((folder / "audit.json").read_text()))


def test_the_summary_says_that_a_change_cannot_be_told(tmp_path):
    audit = json.loads((write_audit(tmp_path, sequences=4, steps=60) / "audit.json").read_text())
    unknown = audit["temporality"] | {"p_value": None, "method": "none", "n_units": 1}
    assert summary_text({**audit, "temporality": unknown}).splitlines()[4] == (
        "Over time  cannot be tested with 1 person or recording"
    )
