import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from auditing.page.fake import HOSTILE, write_audit
from labeltide.auditing.page import write_page

VOID = {"meta", "img", "br", "path", "rect", "circle", "input"}


class Outline(HTMLParser):
    """Collects tags, ids and links; fails on tags that do not match."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.ids, self.links = [], [], [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if "id" in values else []
        self.links += [value for key, value in attrs if key in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = write_audit(tmp_path_factory.mktemp("plain"), sequences=6, steps=60)
    return folder, write_page(folder).read_text(encoding="utf-8")


def embedded(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


COUNTS = ("planted", "found", "named", "named_again")


def test_the_page_has_every_part(plain):
    _, page = plain
    parts = ("verdict", "clock", "confusion", "timelines", "issues", "contested", "plan", "annotators", "diagnostics")
    assert {*parts, "method"} <= set(Outline(page).ids)
    for text in (
        "Learning under Temporal Label Noise",
        "2.13.0",
        "labeltide audit wearables.csv",
        "Bursts of mistakes",
    ):
        assert text in page


def test_contested_labels_are_told_with_what_one_annotator_cannot_show(tmp_path, plain):
    assert "learned by predicting each annotator from the others" in plain[1]
    assert "cannot be seen" not in plain[1]
    alone = write_audit(tmp_path / "alone", sequences=3, steps=30, annotators=None)
    page = write_page(alone).read_text(encoding="utf-8")
    assert "A habit that an annotator applies everywhere cannot be seen" in page
    assert "8.4\N{NO-BREAK SPACE}%" in page


def test_planted_errors_stand_by_kind_and_class(tmp_path):
    folder = write_audit(tmp_path, sequences=3, steps=30)
    audit = json.loads((folder / "audit.json").read_text())
    n_classes = len(audit["table"]["classes"])
    counts = {name: [number] * n_classes for name, number in zip(COUNTS, (7, 5, 3, 2), strict=True)}
    audit["planted"] = [{"kind": kind, **counts, "response": 0.97} for kind in ("at random", "in runs")]
    (folder / "audit.json").write_text(json.dumps(audit))
    page = write_page(folder).read_text(encoding="utf-8")
    assert "Found, in runs" in page
    assert page.count("5 of 7") == 2 * n_classes
    assert "0.97" in page


def test_an_audit_without_contested_labels_has_no_such_part(tmp_path):
    page = write_page(write_audit(tmp_path, sequences=3, steps=30, contested=None)).read_text(encoding="utf-8")
    assert "contested" not in Outline(page).ids


def test_anchors_lead_somewhere_and_files_are_relative(plain):
    outline = Outline(plain[1])
    assert len(outline.ids) == len(set(outline.ids))
    for link in outline.links:
        assert link[1:] in outline.ids if link.startswith("#") else not re.match(r"\w+:|/", link)


def test_the_page_needs_nothing_else_and_runs_its_own_script_only(plain):
    _, page = plain
    assert not re.search(r"https?://|url\(|@import", page)
    assert "default-src 'none'" in page
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'; base-uri", page)
    assert not re.search(r"<[^>]+ on\w+=", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))


def test_every_drawing_has_words_and_every_table_a_caption_and_every_field_a_label(plain):
    outline = Outline(plain[1])
    drawings = [values for tag, values in outline.tags if tag == "svg"]
    assert drawings
    assert all(values["role"] == "img" and values["aria-label"] for values in drawings)
    assert sum(tag == "table" for tag, _ in outline.tags) == sum(tag == "caption" for tag, _ in outline.tags)
    labelled = {values.get("for") for tag, values in outline.tags if tag == "label"}
    assert {values["id"] for tag, values in outline.tags if tag in ("select", "input")} <= labelled
    headings = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch(r"h[1-6]", tag)]
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


@pytest.mark.parametrize("kind", ["position", "days", "column"])
def test_one_annotator_and_any_clock_give_a_page(tmp_path, kind):
    page = write_page(write_audit(tmp_path, annotators=None, kind=kind, sequences=3, steps=40)).read_text(
        encoding="utf-8"
    )
    assert 'id="annotators"' not in page
    assert "nan" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_an_audit_that_found_nothing_gives_a_page(tmp_path):
    folder = write_audit(tmp_path, sequences=1, steps=1, annotators=None, classes=("only",), timelines=0)
    audit = json.loads((folder / "audit.json").read_text())
    audit |= {"plan": [], "diagnostics": [], "agreement": None}
    audit["noise"] |= {"rate": None, "rate_lower": None, "rate_upper": None, "clock": [], "curves": []}
    audit["temporality"] = {**dict.fromkeys(audit["temporality"]), "per_class": [], "per_annotator": []}
    audit["issues"] |= {"count": 0, "expected_false_alarms": None, "min_confidence": None, "by_class": []}
    (folder / "audit.json").write_text(json.dumps(audit))
    page = write_page(folder).read_text(encoding="utf-8")
    Outline(page)
    assert "could not be estimated" in page


def test_hostile_names_are_shown_as_text_and_end_nothing(tmp_path):
    folder = write_audit(
        tmp_path, classes=tuple(HOSTILE), annotators=tuple(HOSTILE[:3]), names=HOSTILE, sequences=9, steps=40
    )
    audit = json.loads((folder / "audit.json").read_text())
    audit["table"] |= {"name": HOSTILE[1], "features": HOSTILE, "messages": HOSTILE}
    audit["table"]["columns"] = dict.fromkeys(["sequence", "time", "label", "trusted"], HOSTILE[0])
    audit["clock"] |= {"name": HOSTILE[1], "unit": HOSTILE[0], "kind": "column"}
    audit["settings"] = {HOSTILE[0]: HOSTILE[1], "long": HOSTILE[6]}
    audit["diagnostics"] = [{"name": text, "is_warning": True, "sentence": text, "advice": text} for text in HOSTILE]
    (folder / "audit.json").write_text(json.dumps(audit))
    page = write_page(folder).read_text(encoding="utf-8")
    outline = Outline(page)
    assert [tag for tag, _ in outline.tags].count("script") == 2
    assert "img" not in {tag for tag, _ in outline.tags}
    assert not any("onerror" in values for _, values in outline.tags)
    assert "\u202e" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert len(page) < 2_000_000
    assert HOSTILE[1] in embedded(page)["words"]["class"]


def test_every_page_of_a_hundred_thousand_labels_is_under_5_mb(tmp_path):
    page = write_page(write_audit(tmp_path, sequences=50, steps=1000, timelines=20))
    assert page.stat().st_size < 5_000_000


def test_a_long_list_is_cut_and_the_cut_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("labeltide.auditing.page.payload.MAX_ISSUES", 10)
    page = write_page(write_audit(tmp_path, sequences=3, steps=60)).read_text(encoding="utf-8")
    data = embedded(page)
    assert data["issues"]["shown"] == 10 < data["issues"]["total"]
    assert f"first 10 of {data['issues']['total']}" in page


def test_the_same_folder_gives_the_same_page_and_no_draft_is_left(plain):
    folder, page = plain
    assert write_page(folder).read_text(encoding="utf-8") == page
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [(None, FileNotFoundError, "holds no audit.json"), ('{"format": 9}', ValueError, "must have format 1. Got 9")],
)
def test_a_folder_without_a_sound_audit_ends_in_a_sentence(tmp_path, content, error, words):
    if content:
        (tmp_path / "audit.json").write_text(content)
    with pytest.raises(error, match=words):
        write_page(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_writing_the_page_never_loads_torch(plain):
    code = (
        "import sys; from pathlib import Path; from labeltide.auditing.page import write_page; "
        "write_page(Path(sys.argv[1])); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(plain[0])], check=False).returncode == 0


def test_every_clock_has_its_own_part_of_the_page(tmp_path):
    folder = write_audit(tmp_path, sequences=4, steps=60)
    audit = json.loads((folder / "audit.json").read_text())
    clock = {"name": HOSTILE[0], "kind": "column", "unit": HOSTILE[1], "period": None}
    other = {"clock": clock, "noise": audit["noise"], "temporality": {**audit["temporality"], "p_value": 0.6}}
    (folder / "audit.json").write_text(json.dumps({**audit, "other_clocks": [other]}))
    page = write_page(folder).read_text(encoding="utf-8")
    outline = Outline(page)
    assert outline.ids.count("clock-2") == outline.links.count("#clock-2") == 1
    assert len(set(outline.ids)) == len(outline.ids)
    assert HOSTILE[0] not in page
    assert HOSTILE[1] not in page
    assert page.count("This is the effect of this clock given the other") == 2
    assert page.count("<h4>For each class</h4>") == 2
    assert "Not shown to change over" in page
