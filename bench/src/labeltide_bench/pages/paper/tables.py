"""The tables of the page: the paper's 2, 3, 4 and 6 beside ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from labeltide_bench.pages.cells import UNIFORM, Cell, methods_of
from labeltide_bench.pages.cost import method_in
from labeltide_bench.pages.method_order import base_name
from labeltide_bench.pages.people import PEOPLE_HEADS, WORDS, mean_over_people
from labeltide_bench.pages.published import dataset_sizes, has_published, stress
from labeltide_bench.pages.result_tables import Table, make_table, percent
from labeltide_bench.pages.results import DatasetInfo

PRINTED = {"test_error": "Test error", "frobenius": "Approx. error"}
DASH = "\N{EN DASH}"
STRESS_CAPTION = (
    "Percent, mean ± standard deviation over folds. The stress data (Goodday and others 2021: self-reports and "
    "physiological measurements of 289 healthcare workers) are health data that are not public, so the study cannot be "
    "run here. Beside its printed numbers stand our studies of labels by real annotators, averaged over annotators: "
    "one person's labels to learn from, those of the others as reference. Columns of different data sets do not "
    "compare; the order of methods does."
)
LEVELS = {"mixed": 29, "periodic": 30}  # of tables 2 and 3, as the paper's figures name them
ORIGINS = {True: "the paper's own", False: "substitute", None: ""}


def printed_cells(cells: Sequence[Cell], shape: str) -> list[Cell]:
    """The cells whose row the paper printed, its own data sets first."""
    return [cell for cell in cells if cell.shape == shape and cell.variant == UNIFORM and has_published(cell)]


def printed_table(number: str, cells: Sequence[Cell]) -> Table:
    """Table 2 or 3: test error and approximation error, with the printed numbers below ours."""
    caption = f"{cells[0].shape} noise at the paper's level {LEVELS[cells[0].shape]} %"
    return make_table(number, caption, cells, PRINTED)


def stress_table(people: Sequence[Cell]) -> PlainTable:
    """Table 4: the printed numbers of stress detection beside our studies of labels by real annotators."""
    printed = stress()
    datasets = list(dict.fromkeys(cell.name for cell in people))
    heads = ["Method", "What it represents", *(f"stress (paper): {text}" for text in PEOPLE_HEADS.values())]
    heads += [f"{name}: {text}" for name in datasets for text in PEOPLE_HEADS.values()]
    rows = []
    for method in dict.fromkeys([*printed, *map(base_name, methods_of(people))]):
        row = printed.get(method, {})
        texts = [
            f"{method} (Static)" if method == "volmin" else method,
            row.get("words", WORDS.get(method, "")),
        ]
        texts += [f"{row[m][0]:.1f} ± {row[m][1]:.1f}" if row else DASH for m in PEOPLE_HEADS]
        texts += [_ours([c for c in people if c.name == name], method, m) for name in datasets for m in PEOPLE_HEADS]
        rows.append(texts)
    return PlainTable("Table 4", STRESS_CAPTION, heads, rows, words=1)


def _ours(cells: Sequence[Cell], method: str, metric: str) -> str:
    summary = mean_over_people(cells, method_in(cells[0], method), metric)
    if not summary.n:
        return DASH
    return percent(summary.mean) + (f" ± {percent(summary.spread)}" if math.isfinite(summary.spread) else "")


def size_table(cells: Sequence[Cell]) -> PlainTable:
    """Table 6: sequences, features and steps of the paper's data sets and of ours."""
    infos = {cell.name: cell.info for cell in cells if cell.n_classes == 2}
    rows = []
    for name, paper in dataset_sizes().items():
        row = [name, str(paper["task"]), str(paper["n"]), str(paper["d"]), str(paper["T"])]
        forms = [form for form in infos if form.split(",")[0] == name and "by " not in form]
        rows += [[*row, form, *_size(infos[form])] for form in forms] or [[*row, *[DASH] * 5]]
    heads = ["Data set", "Task", "n", "d", "T", "Here", "Data are", "n (train + test)", "d", "T"]
    caption = "Sequences n, features d and steps T: the paper's on the left, ours on the right."
    return PlainTable("Table 6", caption, heads, rows, words=1)


def _size(info: DatasetInfo) -> list[str]:
    """Origin, sequences, features and steps."""
    train, test, features, steps = (
        "?" if size is None else str(size) for size in (info.n_train, info.n_test, info.n_features, info.n_steps)
    )
    return [ORIGINS.get(info.faithful, ""), f"{train} + {test}", features, steps]


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
