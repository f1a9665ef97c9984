"""A table of texts with one line of headings, for the page and as Markdown."""

from __future__ import annotations

from typing import NamedTuple


class PlainTable(NamedTuple):
    """Texts in rows and columns."""

    title: str
    caption: str
    heads: list[str]
    rows: list[list[str]]
    words: int = 0  # columns after the first that hold words and not numbers


def as_markdown(table: PlainTable) -> str:
    """The table in GitHub's Markdown, with its title and caption."""
    lines = [f"# {table.title}", "", table.caption, "", _line(table.heads), "|---" * len(table.heads) + "|"]
    return "\n".join([*lines, *map(_line, table.rows)]) + "\n"


def _line(texts: list[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"
