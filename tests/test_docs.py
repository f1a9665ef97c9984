"""The pages of docs: their code runs as it stands, what they link to and name is there, and nothing is left out."""

import os
import re
import shlex
import sqlite3
import tomllib
from pathlib import Path

import pytest

from labeltide.auditing.results import LABEL_COLUMNS
from test_examples import FAST, QUICK, ROOT, run

DOCS = ROOT / "docs"
BUILT = {DOCS / "_build"}
PAGES = sorted(path for path in DOCS.glob("**/*.md") if not BUILT & set(path.parents))
LINK = re.compile(r"\[([^\]]*)\]\(([^)#]+)\)")
BLOCKS = re.compile(r"```(?:python|\{code-cell\} ipython3)\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"```bash\n(.*?)```", re.DOTALL)
TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)
TABLE_CODE = re.compile(r"\| `(lt\..*)` \|$", re.MULTILINE)
REAL = re.compile(r"^## On real data.*?(?=^## )", re.DOTALL | re.MULTILINE)
SIZE = re.compile(r"^(people|nights|babies|trials) = \d+$", re.MULTILINE)  # how much a page takes


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_of(page: Path) -> str:
    """The Python blocks of a page, then the lines of code in the last column of its tables; not those on real data."""
    text = REAL.sub("", page.read_text())
    return "\n".join([*BLOCKS.findall(text), *TABLE_CODE.findall(text)])


@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=page_name)
def test_every_line_of_code_runs(page, tmp_path):
    code = code_of(page)
    result = run(QUICK * bool(re.search("audit|estimate_|temporality_", code)) + code, tmp_path)
    assert result.returncode == 0, result.stderr


def real_code_of(page: Path) -> str:
    """The code on real data, of few people and by a quick audit; `make field-pictures` runs it as it stands."""
    code = "\n".join(BLOCKS.findall("".join(REAL.findall(page.read_text()))))
    return code and FAST + SIZE.sub(r"\1 = 2", code).replace("every = 4", "every = 16")


@pytest.mark.parametrize("page", [page for page in PAGES if real_code_of(page)], ids=page_name)
def test_code_on_real_data_runs(page, tmp_path):
    folder = os.environ.get("LABELTIDE_DATA")
    if not folder:
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    code = real_code_of(page)
    missing = [name for name in re.findall(r'data / "(\w+)"', code) if not Path(folder, name).is_dir()]
    if missing:
        pytest.skip(f"{folder} holds no {missing[0]}.")
    result = run(code, tmp_path)
    assert result.returncode == 0, result.stderr


def test_every_link_leads_to_a_file():
    broken = [
        f"{page_name(page)}: {target}"
        for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *PAGES]
        for _, target in LINK.findall(page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_file_and_name_of_the_architecture_exists():
    text, homes = (ROOT / "ARCHITECTURE.md").read_text(), (ROOT / "src" / "labeltide", ROOT)
    paths = set(re.findall(r"`([\w.-]+/[\w./-]*)`", text)) - {f"{path.name}/" for path in homes[0].iterdir()}
    absent = {path for path in paths if not any((home / path).exists() for home in homes)}
    named = re.findall(r"`(?:\w+\.)?(\w+)` (?:in |\()`([\w./]+\.py)`", text)
    absent |= {f"{name} in {path}" for name, path in named if name not in (homes[0] / path).read_text()}
    assert named
    assert sorted(absent) == []


def test_no_place_waits_for_a_result():
    assert [f"{page_name(page)}: {text}" for page in PAGES for text in re.findall("<<.*", page.read_text())] == []


def test_every_name_that_is_linked_stands_in_its_file():
    named = [
        (page, words[1:-1], target)
        for page in PAGES
        for words, target in LINK.findall(page.read_text())
        if re.fullmatch("`.*`", words)
    ]
    absent = [
        f"{page_name(page)}: {name} in {target}"
        for page, name, target in named
        if name not in (page.parent / target).read_text() and name not in (Path(target).stem, Path(target).name)
    ]
    assert absent == []


def test_only_pages_for_developers_link_into_the_source():
    pages = set(PAGES) - set(in_toctrees(DOCS / "develop.md")) - {DOCS / "develop.md"}
    assert [page_name(page) for page in sorted(pages) if re.search(r"\]\((\.\./)+src/", page.read_text())] == []


def test_the_map_of_the_paper_names_studies_that_exist():
    named = set(re.findall(r"bench/studies/[\w-]+\.toml", (ROOT / "docs" / "paper.md").read_text()))
    assert named
    for study in named:
        assert tomllib.loads((ROOT / study).read_text())["title"]


@pytest.fixture
def build_pages(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import build_pages

    return build_pages


def in_toctrees(page: Path) -> list[Path]:
    """The pages that the tables of contents of a page name."""
    found: list[Path] = []
    for block in TOCTREE.findall(page.read_text()):
        names = [line for line in block.splitlines() if line and not line.startswith(":")]
        for name in names:
            found += sorted(page.parent.glob(f"{name}.md")) if ":glob:" in block else [page.parent / f"{name}.md"]
    return [path.resolve() for path in found]


def test_every_page_is_in_one_table_of_contents():
    named = [path for page in PAGES for path in in_toctrees(page)]
    assert sorted(named) == sorted(set(PAGES) - {DOCS / "index.md"})


def test_the_reference_is_current(build_pages):
    outdated = [path.name for path, text in build_pages.reference_pages().items() if path.read_text() != text]
    assert outdated == [], "Run python docs/build_pages.py and commit the pages."


def test_every_command_and_its_options_are_in_the_reference(build_pages):
    text = (DOCS / "reference" / "commands.md").read_text()
    commands = dict(build_pages.commands())
    assert {"audit", "predict", "review", "datasets fetch"} <= set(commands)
    for name, command in commands.items():
        section = text.split(f"## {name}\n")[1].split("\n## ")[0]
        found = command.assemble_argument_collection()
        options = [argument for argument in found if argument.index is None and argument.show]
        assert [option.name for option in options if f"`{option.name}`" not in section] == []


def test_every_public_name_is_in_the_reference():
    import labeltide

    headings = re.findall(r"^### (?:class )?(\w+)$", (DOCS / "reference" / "names.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(labeltide.__all__)


def test_every_command_that_a_page_shows_exists(build_pages):
    commands = {name: command for name, command in build_pages.commands()}
    unknown = []
    for page in [ROOT / "README.md", *PAGES]:
        for line in "".join(SHELL.findall(page.read_text())).splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] != ["labeltide"] or words[1:2] == ["COMMAND"]:
                continue
            name = next((name for name in (" ".join(words[1:3]), words[1]) if name in commands), None)
            known = [] if name is None else [n for a in commands[name].assemble_argument_collection() for n in a.names]
            unknown += [(page.name, line)] if name is None else []
            unknown += [(page.name, word) for word in words[2:] if word.startswith("--") and word not in known]
    assert unknown == []


def test_every_file_column_and_key_is_in_the_reference(tmp_path):
    import json

    import pyarrow.parquet as pq

    from auditing.page.fake import write_audit
    from labeltide.auditing.decisions import prepare_schema
    from labeltide.auditing.results import DECISIONS, OURS

    text = (DOCS / "reference" / "files.md").read_text()
    folder = write_audit(tmp_path / "audit", sequences=2, steps=20)
    names = {*OURS, "decisions.sqlite", "review.json"} & {*OURS, *DECISIONS}
    names |= set(pq.read_schema(folder / "labels.parquet").names)
    names |= set(json.loads((folder / "audit.json").read_text()))
    with sqlite3.connect(tmp_path / "decisions.sqlite") as connection:
        prepare_schema(connection, tmp_path / "decisions.sqlite")
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            names |= (
                {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
                if "sqlite_" not in table
                else set()
            )
    assert sorted(name for name in names if not re.search(rf"`{re.escape(name)}[`/]", text)) == []


def test_every_format_that_is_written_is_on_its_page():
    from labeltide.exporting.spans import FORMATS

    assert set(re.findall(r"`--to (\w+)`", (DOCS / "formats.md").read_text())) == set(FORMATS)


def test_every_exit_code_is_in_the_reference():
    text = (DOCS / "reference" / "exit_codes.md").read_text()
    assert [code for code in (0, 1, 2, 3, 4, 130, 143) if f"| {code} |" not in text] == []


def test_the_readme_states_the_assumption():
    text = " ".join((ROOT / "README.md").read_text().split())
    assert "each class is recorded correctly more often than as any other class" in text


def test_the_reference_of_files_describes_every_column_of_labels():
    text = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    assert [name for name in LABEL_COLUMNS if f"`{name}`" not in text] == []
