import csv
import re
import subprocess
import sys

import pytest

from labeltide_bench.pages import write_paper
from labeltide_bench.pages.paper.sources import FIGURES, PAPER_NAMES, SHAPES
from pages.paper.fake import SUBSTITUTES
from pages.test_report import Outline


@pytest.fixture(scope="module")
def page(page_folder):
    return (page_folder / "paper.html").read_text(encoding="utf-8")


def test_every_table_and_figure_of_the_paper_is_there_by_its_number(page):
    for number in ["Table 1", "Table 2", "Table 3", "Table 4", *(f"Figure {index}" for index in range(1, 12))]:
        anchor = number.lower().replace(" ", "-")
        assert f'<section id="{anchor}"' in page, number
        assert re.search(rf'<h2 id="{anchor}-title">{number}\b', page), number


def test_figures_without_a_number_are_said_to_be_from_the_repository(page):
    unnumbered = [figure for figure in FIGURES if not figure.in_paper]
    assert len(unnumbered) == 10
    for figure in unnumbered:
        heading = page.split(f'<h2 id="{figure.slug}-title">')[1].split("</h2>")[0]
        assert heading.startswith(f"{figure.number} · {figure.subject}")
        assert "<small>from the authors'" in heading


def test_figures_on_substitute_data_say_so_in_heading_caption_and_contents(page):
    for figure in FIGURES:
        section = page.split(f'<section id="{figure.slug}"')[1].split("</section>")[0]
        is_substitute = figure.dataset in SUBSTITUTES
        assert ("(substitute data)" in section.split("</h2>")[0]) is is_substitute
        assert ("Substitute data, not the paper&#39;s recordings." in section) is is_substitute
        entry = page.split(f'<a href="#{figure.slug}">')[1].split("</a>")[0]
        assert entry == f"{figure.number} · {figure.subject}" + " (substitute data)" * is_substitute


def test_the_banner_keeps_the_papers_own_data_and_substitutes_apart(page):
    banner = page.split('<ul class="verdict">')[1].split("</ul>")[0]
    agreement = page.split('<section id="agreement"')[1].split("<table")[0]
    own, substitute = "own data (blinking, moving, synthetic)", "recordings (senior, sleeping)"
    assert agreement.index(own) < agreement.index(substitute)
    assert re.search(r"Of 18 claims of the paper \d+ hold, ", banner)


def test_every_figure_says_how_many_draws_it_has(page):
    for figure in FIGURES:
        section = page.split(f'<section id="{figure.slug}"')[1].split("</section>")[0]
        assert "2 draws.</figcaption>" in section


def test_errors_of_q_are_not_compared_for_ignore_which_estimates_none(page):
    section = page.split('<section id="figure-7"')[1].split("</section>")[0]
    heads = re.findall(r'<th scope="col"[^>]*>([^<]+)<', section)
    assert heads == ["Noise", "anchor", "volmin", "plugin", "continuous"]
    assert "The paper shows no Q for discontinuous." in section


def test_every_figure_of_curves_has_a_key_for_narrow_screens(page):
    for figure in FIGURES:
        section = page.split(f'<section id="{figure.slug}"')[1].split("</section>")[0]
        assert 'href="#mark-ignore"' in section
    assert "no correction<" not in page


def test_every_figure_has_six_panels_with_both_curves_and_a_table_of_differences(page):
    for figure in FIGURES:
        section = page.split(f'<section id="{figure.slug}"')[1].split("</section>")[0]
        titles = re.findall(r'class="t">([^<]+)<', section)
        assert titles == list(SHAPES), figure.number
        assert section.count('class="d"') >= 6 * 4, "the paper's curves"
        assert section.count('class="l"') >= 6 * 5, "ours"
        assert f"{figure.number}: difference" in section


def test_accuracy_runs_from_60_to_100_and_from_50_where_the_paper_goes_below(page):
    for number, first in (("repository-figure-1", "60"), ("repository-figure-5", "50")):
        section = page.split(f'<section id="{number}"')[1].split("</section>")[0]
        panel = section.split('<svg role="img"')[1]
        ticks = re.findall(r'class="y">([^<]+)<', panel)
        assert (ticks[0], ticks[-1]) == (first, "100")


def test_one_method_has_one_colour_and_the_key_gives_the_papers_names(page):
    colours = dict(re.findall(r"\.c-([\w-]+) \{ --c: (#\w+); \}", page))
    assert set(PAPER_NAMES) | {"tide"} <= set(colours)
    assert len(set(colours.values())) == len(colours)
    for in_figures, in_text in PAPER_NAMES.values():
        assert in_figures in page
        assert in_text in page


def test_tables_2_and_3_have_a_column_for_each_source(page):
    for number in (2, 3):
        section = page.split(f'<section id="table-{number}"')[1].split("</section>")[0]
        assert re.findall(r'scope="colgroup">([^<]+)<', section) == ["Test error", "Error of Q / 0.30"]
        heads = re.findall(r'<th scope="col"[^>]*>([^<]+)<', section)[2:]
        plain, exactly = ["print", "public code", "ours"], ["print", "public code", "ours, as in the code", "ours"]
        assert heads in (plain * 2, exactly * 2)  # as in the text: not run in the made-up studies


def test_the_error_of_q_is_defined_where_it_is_first_used(page):
    text = re.sub(r"<[^>]*>", "", page.split("<header>")[1])
    assert re.search(r"error of q.{32}", text, re.IGNORECASE).group() == "Error of Q is the mean absolute difference"


def test_the_public_code_is_drawn_where_it_was_run(page):
    for slug, is_there in (("repository-figure-1", True), ("figure-6", False)):
        section = page.split(f'<section id="{slug}"')[1].split("</section>")[0]
        assert ('<g class="q' in section) is is_there
        assert ("all, less the public code" in section) is is_there


def test_the_first_figure_comes_before_the_first_table(page):
    assert page.index('id="figure-1"') < page.index("<table")


def test_the_page_is_well_formed_small_and_needs_nothing_else(page):
    outline = Outline(page)
    assert len(page) < 1_000_000
    assert len(outline.ids) == len(set(outline.ids))
    assert {link[1:] for link in outline.links} <= set(outline.ids)
    assert not re.search(r"https?:|url\((?!#)|@import", page)
    assert not {tag for tag, _ in outline.tags} & {"script", "link", "iframe", "object", "embed", "img"}
    assert "nan" not in re.sub(r"<[^>]*>", " ", page).casefold().split()


def test_agreement_and_claims_are_written_beside_the_page(page_folder):
    names = {path.name for path in page_folder.iterdir()}
    assert names == {"paper.html", "agreement.csv", "claims.csv"} | {
        f"{name}.md" for name in ("agreement", "claims", "public_code", "tables")
    }
    with (page_folder / "agreement.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["figure"] for row in rows if row["figure"].startswith(("F", "R"))] == [f.number for f in FIGURES]
    assert all(float(row["mean_absolute_difference"]) < 1 for row in rows if row["measure"] == "accuracy")


def test_the_same_records_in_any_order_give_the_same_page(folders, page, tmp_path):
    again = write_paper(folders[::-1], tmp_path).read_text(encoding="utf-8")
    assert again == page


def test_a_missing_study_is_said_and_the_rest_is_shown(folders, tmp_path):
    page = write_paper(folders[:1], tmp_path).read_text(encoding="utf-8")
    assert "Not given to this page, so not shown: tables 2 and 3" in page
    assert "Figure 6: difference" in page
    Outline(page)


def test_a_study_given_twice_is_refused(folders, tmp_path):
    with pytest.raises(ValueError, match="Each study must be given once"):
        write_paper([folders[1], folders[1]], tmp_path)


def test_a_collapsed_run_is_marked_at_the_edge_with_its_value_and_does_not_set_the_scale(page):
    section = page.split('<section id="figure-6"')[1].split("</section>")[0]
    panel = section.split("</div>")[0]
    assert "Outside the axis: continuous 33." in panel
    assert re.findall(r'class="y">([^<]+)<', panel) == ["60", "70", "80", "90", "100"]


def test_the_page_never_loads_torch(folders, tmp_path):
    code = (
        "import sys; from pathlib import Path; from labeltide_bench.pages import write_paper; "
        "write_paper([Path(sys.argv[1])], Path(sys.argv[2])); sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(folders[1]), str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == 0


def test_the_committed_page_follows_from_the_committed_records(results_folder, tmp_path):
    """`make paper` was run after the last change of records or code."""
    studies = [f"paper/{name}" for name in ("figures", "tables", "static", "code", "text", "published")]
    studies.append("annotators")
    folders = [results_folder / study for study in studies]
    write_paper([folder for folder in folders if folder.exists()], tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_text(encoding="utf-8") == (results_folder / "paper" / path.name).read_text(encoding="utf-8")
