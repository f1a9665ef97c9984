"""Libraries that only some functions need are worded in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import labeltide
from labeltide._files import import_extra

SOURCE = Path(labeltide.__file__).parent


def test_a_missing_library_is_named_with_its_purpose_and_the_ways_out():
    with pytest.raises(ValueError, match=r"^Reading runes needs no_such_library, which is not installed\. ") as found:
        import_extra("no_such_library.part", "runes", "Reading runes", "save them as text")
    assert str(found.value).endswith("pip install 'labeltide[runes]'; or save them as text.")


def test_a_library_that_is_there_is_given():
    assert import_extra("json", "none", "This") is __import__("json")


def test_no_other_file_words_a_missing_extra():
    worded = {path.name for path in SOURCE.rglob("*.py") if words_an_extra(path)}
    assert worded == {"_files.py"}, "Use labeltide._files.import_extra."


def words_an_extra(path: Path) -> bool:
    raised = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
    texts = [part.value for node in raised for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return any("labeltide[" in str(text) for text in texts)
