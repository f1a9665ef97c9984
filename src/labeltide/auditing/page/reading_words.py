"""What was read of a table and what was decided about it, said before anything is fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labeltide.auditing.page.names import display_name, terminal_text
from labeltide.auditing.page.numbers import count
from labeltide.tables.overview import LEFT_OUT

COLUMNS = 40  # lines of the overview on a terminal
HEADS = ("column", "type", "missing", "levels", "role", "")


def reading_text(table: Mapping[str, Any]) -> str:
    """The part `table` of an audit for a terminal: size, one line for each column, every decision."""
    overview = table.get("overview") or []
    size = ", ".join(count(table[f"{each}s"], each) for each in ("row", "label", "sequence"))
    lines = [f"Read       {display_name(table['name'], 60)}: {size}, {count(len(overview), 'column')}."]
    lines += _aligned([HEADS, *(_cells(each) for each in overview[:COLUMNS])])
    if len(overview) > COLUMNS:
        lines.append(f"  ... and {len(overview) - COLUMNS} more, which audit.json and the page list")
    return "\n".join([*lines, decided_text(table.get("said") or [])])


def decided_text(said: Sequence[str]) -> str:
    """Every decision about a table on a line of its own."""
    return "\n".join(["Decided", *(f"  - {terminal_text(sentence)}" for sentence in said)])


def reading_line(table: Mapping[str, Any]) -> str:
    """Columns, used columns and decisions in half a sentence."""
    overview, said = table.get("overview") or [], table.get("said") or []
    used = sum(column["role"] != LEFT_OUT for column in overview)
    parts = [f"{count(len(overview), 'column')}, {used:,} of them used"] if overview else []
    return "; ".join([*parts, count(len(said), "decision")])


def _cells(column: Mapping[str, Any]) -> tuple[str, ...]:
    unknown = "many" if column["type"] else ""
    missing, levels = (f"{column[key]:,}" if column[key] is not None else unknown for key in ("missing", "levels"))
    why = terminal_text(column["why"])
    return (display_name(column["name"], 30), column["type"], missing, levels, column["role"], why)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, numbers to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if 2 <= place <= 3 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row[:-1], widths, strict=True))
        )
        + (f"  {row[-1]}" if row[-1] else "")
        for row in rows
    ]
