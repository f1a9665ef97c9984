"""The pages of docs: their code runs as it stands, and what they link to and name is there."""

import re
import tomllib
from pathlib import Path

import pytest

from test_examples import ROOT, run

PAGES = sorted((ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\[([^\]]*)\]\(([^)#]+)\)")
TABLE_CODE = re.compile(r"\| `(lt\..*)` \|$", re.MULTILINE)


def code_of(page: Path) -> str:
    """The Python blocks of a page, then the lines of code in the last column of its tables."""
    text = page.read_text()
    return "\n".join([*re.findall(r"```python\n(.*?)```", text, re.DOTALL), *TABLE_CODE.findall(text)])


@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.stem)
def test_every_line_of_code_runs(page, tmp_path):
    result = run(code_of(page), tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *PAGES], ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    targets = {target for _, target in LINK.findall(page.read_text()) if "://" not in target}
    assert {target for target in targets if not (page.parent / target).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_place_waits_for_a_result(page):
    assert re.findall("<<.*", page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_that_is_linked_stands_in_its_file(page):
    named = [(words[1:-1], target) for words, target in LINK.findall(page.read_text()) if re.fullmatch("`.*`", words)]
    absent = [
        (name, target)
        for name, target in named
        if name not in (page.parent / target).read_text() and name != Path(target).stem and name != Path(target).name
    ]
    assert absent == []


def test_the_map_of_the_paper_names_studies_that_exist():
    named = set(re.findall(r"bench/studies/[\w-]+\.toml", (ROOT / "docs" / "paper.md").read_text()))
    assert named
    for study in named:
        assert tomllib.loads((ROOT / study).read_text())["title"]
