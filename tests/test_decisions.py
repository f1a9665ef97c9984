"""Decision records: those that the code cites exist, and the index names every record."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "decisions"
CITED = re.compile(r"docs/decisions/([\w-]+\.md)")
SECTIONS = ("**Question.**", "**Repeat.**", "**Date.**")


def record_names() -> set[str]:
    return {path.name for path in RECORDS.glob("*.md")} - {"index.md"}


def test_every_record_that_the_code_cites_exists():
    cited = {
        (str(path.relative_to(ROOT)), name)
        for path in (ROOT / "src").rglob("*.py")
        for name in CITED.findall(path.read_text())
    }
    assert cited
    assert {(path, name) for path, name in cited if name not in record_names()} == set()


def test_the_index_names_every_record():
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (RECORDS / "index.md").read_text()))
    assert linked == record_names()


def test_records_are_numbered_from_one_without_gaps():
    numbers = sorted(int(name[:3]) for name in record_names())
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_record_has_its_question_its_command_and_its_date():
    missing = {
        (name, section)
        for name in record_names()
        for section in SECTIONS
        if section not in (RECORDS / name).read_text()
    }
    assert missing == set()
