import csv
import io

import pytest

from labeltide_bench.pages import write_report
from labeltide_bench.pages.cells import make_cells
from labeltide_bench.pages.cost import COST_HEADS, NONE, as_csv, as_markdown, make_cost
from labeltide_bench.pages.results import read_results

METHODS = ["ignore", "continuous", "tide", "clean labels"]


@pytest.fixture
def cost(write):
    return lambda records: make_cost(make_cells(read_results(write(records)).runs))


def test_a_study_without_tide_or_without_its_reference_has_no_such_section(cost, study, write):
    assert cost(study(["ignore", "tide"])) is None
    assert cost(study(["ignore", "clean labels"])) is None
    folder = write(study(["ignore", "tide"]))
    assert 'id="cost"' not in write_report(folder).read_text(encoding="utf-8")
    assert not list(folder.glob("cost.*"))


def test_page_and_files_hold_the_same_table(write, study):
    folder = write(study(METHODS) + study(METHODS, dataset="senior", variant="bursts 0.9"))
    page = write_report(folder).read_text(encoding="utf-8")
    assert ">What the wrong labels cost</h2>" in page
    assert '<a href="#cost">' in page
    markdown = (folder / "cost.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in markdown.splitlines() if line.startswith("| ")]
    assert rows[0] == list(COST_HEADS)
    assert [row[:2] for row in rows[2:]] == [["moving", "mixed"], ["senior", "mixed, bursts 0.9"]]
    for row in rows[2:]:
        assert all(f">{text}</td>" in page for text in row[1:])
    lines = list(csv.DictReader(io.StringIO((folder / "cost.csv").read_text(encoding="utf-8"))))
    for line, row in zip(lines, rows[2:], strict=True):
        mean, spread = map(float, row[3].split(" ± "))
        assert (mean, spread) == pytest.approx((float(line["tide"]), float(line["tide_spread"])), abs=0.006)
        assert line["best_method"] == row[6]
        assert float(row[10]) == pytest.approx(float(line["frobenius_ratio"]), abs=0.006)


def test_the_csv_can_be_reckoned_with(cost, study):
    (line,) = csv.DictReader(io.StringIO(as_csv(cost(study(METHODS, draws=4)))))
    assert float(line["tide_less_clean"]) == pytest.approx(float(line["tide"]) - float(line["clean"]), abs=0.002)
    assert float(line["frobenius_ratio"]) == pytest.approx(
        float(line["frobenius"]) / float(line["best_frobenius"]), abs=1e-3
    )
    assert (line["draws"], line["wrong_labels"]) == ("4", "30.000")


def test_the_words_stand_above_the_table_in_markdown(cost, study):
    text = as_markdown(cost(study(METHODS)))
    assert text.startswith("## What the wrong labels cost\n\n- **Close to clean labels: ")
    assert text.index("- **") < text.index("| Data set |")


def test_failed_draws_and_absent_methods_leave_dashes(cost, record):
    failed = record(method="tide") | {"metrics": {"test_error": None}}
    made = cost([failed, record(method="tide", draw=1), record(method="clean labels")])
    (row,) = made.rows
    assert row[3] == "10.00 (1 failed)"
    assert row[5:] == [NONE, NONE, NONE, NONE, "5.00 (1 failed)", NONE]
    assert ",nan" not in as_csv(made)


def test_hostile_names_stay_within_their_cell(cost, record):
    made = cost([record(method=m, dataset="<b>|\n| x", shape="a|b") for m in ("tide", "clean labels")])
    row = as_markdown(made).splitlines()[-1]
    assert row.startswith("| &lt;b>\\| \\| x | a\\|b |")
