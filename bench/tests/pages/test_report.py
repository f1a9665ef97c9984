import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from labeltide_bench.pages import write_report

HOSTILE = "<script>alert('$x$')</script>&\"]]>\x01_"
VOID = {"meta", "img", "br", "path", "use", "rect", "line", "input", "hr", "link"}


class Outline(HTMLParser):
    """Collects tags, and the tables with their cells' text; fails on tags that do not match."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.tables, self.text = [], [], [], [], [], None
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if "id" in values else []
        self.links += [value for key, value in attrs if key in ("href", "src", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr" and self.tables:
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.text = ""

    def handle_startendtag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if "id" in values else []
        self.links += [value for key, value in attrs if key in ("href", "src")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.tables[-1][-1].append(" ".join(self.text.split()))
            self.text = None

    def handle_data(self, data):
        if self.text is not None:
            self.text += data + " "


@pytest.fixture(scope="module")
def everything(tmp_path_factory, study):
    """A results folder with all kinds of sections, and its page."""
    methods = ["ignore", "anchor", "tide", "known", "continuous (paper's code)"]
    records = []
    for rate in (0.2, 0.3):
        level = {"level": {"rate": rate}, "rate": rate}
        records += study(methods, shape="mixed", **level) + study(methods, shape="periodic", dataset="senior", **level)
    records += study(methods, n_classes=4) + study(methods, variant="class-conditional")
    folder = tmp_path_factory.mktemp("results")
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "study.toml").write_text('title = "A small study"\ndescription = "Made up."\n')
    path = write_report(folder)
    return folder, records, path.read_text(encoding="utf-8")


def test_numbers_on_the_page_equal_a_slow_computation(everything):
    _, records, page = everything
    tables = Outline(page).tables
    shown = 0
    for table in tables:
        heads = next((row for row in table if row[:2] == ["Data set", "Metric"]), None)
        if heads is None:
            continue
        for row in table[table.index(heads) + 1 :]:
            cells = dict(zip(heads[::-1], row[::-1], strict=False))  # from the right: the data set spans rows
            if cells["Metric"] != "Test error":
                continue
            name, rate = row[0].split()[0], float(re.search(r"([\d.]+) % wrong", row[0])[1]) / 100
            wanted = [r for r in records if r["dataset"] == name and r["rate"] == pytest.approx(rate)]
            texts = {}
            for method in heads[2:]:
                groups = {}
                for r in wanted:
                    if r["method"] == method:
                        key = (r["variant"], len(r["dataset_info"]["classes"]), r["shape"])
                        groups.setdefault(key, []).append(100 * r["metrics"]["test_error"])
                texts[method] = [f"{np.mean(v):.1f} ± {np.std(v, ddof=1):.1f}" for v in groups.values()]
                assert any(cells[method].startswith(text) for text in texts[method]), (name, method, cells[method])
                shown += 1
    assert shown == 6 * 5  # two levels of two data sets, four classes, class-conditional; five methods


def test_the_difference_from_the_paper_is_shown_and_marked(tmp_path, write, record):
    page = write_report(write([record(error=0.10, draw=draw, level={"rate": 0.29}) for draw in range(2)])).read_text(
        encoding="utf-8"
    )
    row = next(row for table in Outline(page).tables for row in table if "Test error" in row)
    assert row[-1] == "10.0 ± 0.0 paper 4.2 ± 2.2 +5.8 ‡"


def test_the_best_is_bold_and_never_one_that_knows_the_truth(write, record):
    errors = {"ignore": 0.3, "tide": 0.1, "known": 0.01}
    page = write_report(write([record(method=m, error=e) for m, e in errors.items()])).read_text(encoding="utf-8")
    assert "<b>10.0</b>" in page
    assert "<b>1.0</b>" not in page


def test_the_page_needs_nothing_else(everything):
    _, _, page = everything
    outline = Outline(page)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in outline.links)
    assert not re.search(r"https?:|url\((?!#)|@import", page)
    assert not {tag for tag, _ in outline.tags} & {"script", "link", "iframe", "object", "embed"}


def test_anchors_lead_somewhere_and_ids_are_unique(everything):
    outline = Outline(everything[2])
    assert len(outline.ids) == len(set(outline.ids))
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)


def test_every_drawing_has_an_alternative_text_and_every_table_a_caption(everything):
    outline = Outline(everything[2])
    drawings = [values for tag, values in outline.tags if tag == "svg"]
    assert drawings
    assert all(values["role"] == "img" and values["aria-label"] for values in drawings)
    assert sum(tag == "table" for tag, _ in outline.tags) == sum(tag == "caption" for tag, _ in outline.tags)


def test_every_section_of_the_study_has_its_place(everything):
    _, _, page = everything
    for title in ("Two classes", "More than two classes", "Two classes, class-conditional noise", "Who wins"):
        assert f">{title}</h2>" in page
    assert "A small study" in page
    assert "errors against the average rate of wrong labels" in page


def test_figures_are_kept_as_files_in_both_forms(everything):
    folder, _, page = everything
    names = {path.name for path in (folder / "figures").iterdir()}
    assert {name.removesuffix(".svg") for name in names if name.endswith(".svg")} == {
        name.removesuffix(".png") for name in names if name.endswith(".png")
    }
    assert len(names) == 2 * page.count("<svg ")
    assert not [path for path in folder.rglob(".*")], "a draft was left behind"


def test_the_same_records_give_the_same_page(write, record, tmp_path):
    folder = write([record()])
    first = write_report(folder, tmp_path / "one").read_bytes()
    assert write_report(folder, tmp_path / "two").read_bytes() == first


def test_hostile_names_are_shown_as_text(write, record):
    fields = {"dataset": HOSTILE, "shape": HOSTILE, "variant": HOSTILE, "device": HOSTILE, "commit": HOSTILE}
    records = [record(method=name, **fields) for name in (HOSTILE, "_tide", "")]
    for made in records:
        made["dataset_info"] = made["dataset_info"] | {"note": HOSTILE, "split": HOSTILE, "classes": [HOSTILE, HOSTILE]}
        made["level"] = {"constants": {HOSTILE: 0.1}}
    folder = write(records)
    (folder / "study.toml").write_text(f"title = {json.dumps(HOSTILE)}\ndescription = {json.dumps(HOSTILE)}\n")
    page = write_report(folder).read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(" in page
    assert "script" not in {tag for tag, _ in Outline(page).tags}
    for path in (folder / "figures").iterdir():
        assert re.fullmatch(r"[a-z0-9-]+\.(svg|png)", path.name)


@pytest.mark.parametrize(
    "lost", ["over_time", "noise", "true_noise", "clock", "dataset_info", "level", "rate", "seconds"]
)
def test_a_record_may_lack_what_only_some_figures_need(write, record, lost):
    made = [{key: value for key, value in record(method=m).items() if key != lost} for m in ("ignore", "tide")]
    page = write_report(write(made)).read_text(encoding="utf-8")
    assert "tide" in page
    Outline(page)


def test_one_method_and_one_run_are_enough(write, record):
    page = write_report(write([record()])).read_text(encoding="utf-8")
    assert "Only one method was run" in page
    assert "Who wins" not in page


def test_failed_draws_are_said(write, record):
    failed = record(draw=1) | {"metrics": {"test_error": None, "frobenius": None, "absolute": None}}
    page = write_report(write([record(), failed, record(method="ignore")])).read_text(encoding="utf-8")
    assert "1 of 2 draws failed" in page
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL).casefold()


def test_a_torn_line_is_said_on_the_page(write, record):
    page = write_report(write([record()], tail='{"format": 1, "da')).read_text(encoding="utf-8")
    assert "1 line could not be read" in page


def test_an_empty_folder_ends_in_a_sentence_and_leaves_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no records"):
        write_report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_writing_the_page_never_loads_torch(write, record):
    folder = write([record()])
    code = (
        "import sys; from pathlib import Path; from labeltide_bench.pages import write_report; "
        "write_report(Path(sys.argv[1])); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(folder)], check=False).returncode == 0


def test_no_error_is_counted_of_a_q_that_was_given(write, record):
    methods = {"no correction": "ignore", "forward, temporal Q": "known", "forward, static Q": "known"}
    records = [
        record(method=name, estimator=estimator, draw=draw, error=0.1 + 0.1 * index)
        for index, (name, estimator) in enumerate(methods.items())
        for draw in range(2)
    ]
    page = write_report(write(records)).read_text(encoding="utf-8")
    rows = [row for table in Outline(page).tables for row in table]
    assert any("Test error" in row for row in rows)
    assert not any("Approx. error" in row or "Abs. entry" in row for row in rows)
    assert "lowest approximation error of Q" not in page
    assert "Q over time, true against estimated" not in page


def test_a_method_keeps_its_colour_on_the_whole_page(write, study):
    code, plain = "continuous (paper's code)", "continuous"
    records = study([code, plain, "ignore"], shape="mixed") + study(
        [code, "ignore"], shape="periodic", dataset="senior"
    )
    folder = write(records)
    write_report(folder)
    drawings = [path.read_text() for path in (folder / "figures").glob("*.svg")]
    with_code = [text for text in drawings if "paper's code" in text or "(paper's" in text]
    assert with_code
    assert all("#d36ba6" in text for text in with_code)


def test_more_methods_than_anybody_reads_are_refused_at_once(write, record, tmp_path):
    folder = write(record(method=f"ours {number}") for number in range(300))
    with pytest.raises(ValueError, match=r"at most 60 methods.* have 300"):
        write_report(folder)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("level", [{"rate": [1]}, {"rate": 10**400}, {"rate": "much"}, {"rate": None}])
def test_a_record_whose_level_is_no_number_is_counted_as_unreadable(level, write, record):
    page = write_report(write([record(), record(level=level, draw=1)])).read_text(encoding="utf-8")
    assert "could not be read" in page or "unreadable" in page or "passed over" in page
