"""Tables in the layout of the paper: rows are data sets and metrics, columns are methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

from labeltide_bench.pages.cells import Cell, methods_of
from labeltide_bench.pages.method_order import Q_ERRORS, Group, contenders, estimates_q, group_methods
from labeltide_bench.pages.published import published

MAIN = {"test_error": "Test error", "absolute": "Error of Q", "frobenius": "Distance of Q"}
MORE = {"balanced_test_error": "Balanced error", "train_error": "Training error"}
MINUS = "\N{MINUS SIGN}"


class Entry(NamedTuple):
    """One number of a table, in text."""

    mean: str  # empty where nothing was measured
    spread: str = ""
    is_best: bool = False
    draws: str = ""  # said only where it is not the number of draws of the table
    paper: str = ""
    difference: str = ""
    is_far: bool = False


class Row(NamedTuple):
    """One metric of one data set."""

    metric: str
    entries: list[Entry]


class DatasetBlock(NamedTuple):
    """The rows of one data set."""

    name: str
    details: list[str]
    rows: list[Row]


class Table(NamedTuple):
    """A table that the page only has to lay out."""

    title: str
    caption: str
    groups: tuple[Group, ...]
    blocks: list[DatasetBlock]
    has_paper: bool = False
    has_far: bool = False


def make_table(title: str, caption: str, cells: Sequence[Cell], metrics: dict[str, str]) -> Table:
    """Percentages of every method in every cell, mean and standard deviation over draws, the best in bold."""
    methods = methods_of(cells)
    draws = max(len(runs) for cell in cells for runs in cell.runs.values())
    blocks = [block for block in (_block(cell, methods, metrics, draws) for cell in cells) if block.rows]
    entries = [entry for block in blocks for row in block.rows for entry in row.entries]
    return Table(
        title,
        caption,
        group_methods(methods),
        blocks,
        has_paper=any(entry.paper for entry in entries),
        has_far=any(entry.is_far for entry in entries),
    )


def _block(cell: Cell, methods: Sequence[str], metrics: dict[str, str], draws: int) -> DatasetBlock:
    measured = {
        metric: text
        for metric, text in metrics.items()
        if any(
            metric in run.metrics
            for method, runs in cell.runs.items()
            if metric not in Q_ERRORS or estimates_q(method)
            for run in runs
        )
    }
    rows = [Row(text, _entries(cell, methods, metric, draws)) for metric, text in measured.items()]
    return DatasetBlock(cell.name, _details(cell), rows)


def _details(cell: Cell) -> list[str]:
    info, details = cell.info, []
    if info.n_train is not None and info.n_test is not None:
        details.append(f"n = {info.n_train} + {info.n_test}")
    if info.n_features is not None and info.n_steps is not None:
        details.append(f"d = {info.n_features}, T = {info.n_steps}")
    if info.faithful is False:
        details.append("substitute data")
    if math.isfinite(cell.rate):
        details.append(f"{percent(cell.rate)} % wrong")
    return details


def _entries(cell: Cell, methods: Sequence[str], metric: str, draws: int) -> list[Entry]:
    numbers = {method: cell.over_draws(method, metric) for method in methods}
    running = [percent(numbers[method].mean) for method in contenders(list(cell.runs)) if numbers[method].n]
    best = min(running, key=float) if len(running) > 1 else None
    entries = []
    for method in methods:
        summary, ran = numbers[method], method in cell.runs
        if not summary.n:
            entries.append(Entry("", draws="failed" if ran and summary.failed else ""))
            continue
        text = percent(summary.mean)
        printed = published(cell, method, metric)
        entries.append(
            Entry(
                text,
                percent(summary.spread) if math.isfinite(summary.spread) else "",
                is_best=text == best and method in contenders(list(cell.runs)),
                draws=_draws(summary.n, summary.failed, draws),
                paper=f"{percent(printed.mean)} ± {percent(printed.spread)}" if printed else "",
                difference=signed(summary.mean - printed.mean) if printed else "",
                is_far=bool(printed and printed.is_far_from(summary.mean)),
            )
        )
    return entries


def _draws(n: int, failed: int, draws: int) -> str:
    if failed:
        return f"{failed} of {n + failed} draws failed"
    return "" if n == draws else f"{n} of {draws} draws"


def percent(fraction: float) -> str:
    """A fraction as a percentage with one decimal; two where it would else read as nothing."""
    text = f"{100 * fraction:.1f}"
    return f"{100 * fraction:.2f}" if text in ("0.0", "-0.0") and abs(fraction) >= 5e-5 else text.replace("-0.0", "0.0")


def signed(fraction: float) -> str:
    """A difference of fractions in percentage points, with its sign."""
    text = f"{100 * fraction:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", MINUS)


def simple_table(
    title: str,
    caption: str,
    rows: dict[str, dict[str, float]],
    methods: Sequence[str],
    show: Callable[[float], str],
) -> Table:
    """Rows of one number each, such as seconds, under the same headings."""
    blocks = [
        DatasetBlock(name, [], [Row("", [Entry(show(values[m]) if m in values else "") for m in methods])])
        for name, values in rows.items()
    ]
    return Table(title, caption, group_methods(methods), blocks)


class PlainTable(NamedTuple):
    """Texts in rows and columns."""

    title: str
    caption: str
    heads: list[str]
    rows: list[list[str]]
    words: int = 0  # columns after the first that hold words and not numbers

    @property
    def groups(self) -> list[tuple[str, list[str]]]:
        """The heads for a page: "test error: ours" stands as "ours" under "test error"; "" is no group."""
        parts = [head.partition(": ") for head in self.heads]
        pairs = [(group, name) if name else ("", group) for group, _, name in parts]
        return [(group, [name for _, name in kept]) for group, kept in groupby(pairs, key=lambda pair: pair[0])]

    @property
    def group_starts(self) -> list[int]:
        """The columns in which a named group begins."""
        starts = accumulate((len(names) for _, names in self.groups), initial=0)
        return [start for start, (group, _) in zip(starts, self.groups, strict=False) if group]


def as_markdown(table: PlainTable) -> str:
    """The table in GitHub's Markdown, with its title and caption."""
    lines = [f"# {table.title}", "", table.caption, "", _line(table.heads), "|---" * len(table.heads) + "|"]
    return "\n".join([*lines, *map(_line, table.rows)]) + "\n"


def _line(texts: list[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"
