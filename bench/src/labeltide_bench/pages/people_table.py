"""The tables of recorded labels of real annotators as Markdown, to be copied into other texts."""

from __future__ import annotations

from labeltide_bench.pages.people import People, PeopleTable
from labeltide_bench.pages.result_tables import Entry, PlainTable, as_markdown

PEOPLE_FILE = "people.md"
NONE = "\N{EN DASH}"


def people_markdown(people: People) -> str:
    """All tables of the section, one after the other; the lowest error of each column is bold."""
    heads = ["Only label", "Method", *people.heads, *people.expert_heads]
    return "\n".join(as_markdown(_plain(table, heads)) for table in people.tables)


def _plain(table: PeopleTable, heads: list[str]) -> PlainTable:
    rows = [[block.name, line.method, *map(_text, line.entries)] for block in table.blocks for line in block.lines]
    return PlainTable(table.title, table.caption, heads, rows)


def _text(entry: Entry) -> str:
    if not entry.mean:
        return NONE
    text = f"{entry.mean} ± {entry.spread}" if entry.spread else entry.mean
    return f"**{text}**" if entry.is_best else text
