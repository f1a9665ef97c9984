"""The tables of the page: the paper's 2, 3, 4 and 6 with what its public code and ours give."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labeltide_bench.pages.cells import Cell, DrawSummary, methods_of
from labeltide_bench.pages.cost import method_in
from labeltide_bench.pages.method_order import base_name
from labeltide_bench.pages.paper.agreement import table_point
from labeltide_bench.pages.paper.sources import CODE, SIX, TEXT, code_summary
from labeltide_bench.pages.people import WORDS, mean_over_people
from labeltide_bench.pages.published import RELATIVE_TO, dataset_sizes, printed, published, stress
from labeltide_bench.pages.result_tables import PlainTable, percent
from labeltide_bench.pages.results import DatasetInfo

DASH = "\N{EN DASH}"
FAR_FROM_PRINT, FAR_FROM_CODE = "\N{DOUBLE DAGGER}", "\N{SECTION SIGN}"
NOT_RUN = "not run yet"
STRESS_PRINTED = {"approx_error": "approx. error", "train_error": "train error", "test_error": "test error"}
STRESS_HEADS = {"absolute": "error of Q", "train_error": "train error", "test_error": "test error"}
STRESS_CAPTION = (
    "Percent, mean ± standard deviation over folds. The stress data (Goodday and others 2021: self-reports and "
    "physiological measurements of 289 healthcare workers) are health data that are not public, so the study cannot be "
    "run here. Beside its printed numbers stand our studies of labels by real annotators, averaged over annotators: "
    "one person's labels to learn from, those of the others as reference. Columns of different data sets do not "
    "compare; the order of methods does. Error of Q: mean absolute error of an entry; the paper does not say whether "
    "its approximation error of this table is divided by 0.30 too."
)
MEASURED = {"test_error": "Test error", "absolute": "Error of Q / 0.30"}
ORIGINS = {True: "the paper's own", False: "substitute", None: ""}


def printed_table(number: str, shape: str, cells: Sequence[Cell]) -> PlainTable:
    """Table 2 or 3 in the paper's measures: print, public code, ours exactly as published and ours by default."""
    found = {cell.task[0]: cell for cell in cells}
    sources = [source for source in (CODE, TEXT) if any(source in name for cell in cells for name in cell.runs)]
    columns = ["print", "public code", *(f"ours, as in the {source.split()[-1]}" for source in sources), "ours"]
    heads = ["Data set", "Method", *(f"{what}: {name}" for what in MEASURED.values() for name in columns)]
    rows = []
    for dataset in [name for name in printed(shape) if name in dataset_sizes()]:
        cell = found.get(dataset)
        star = "*" if cell and cell.info.faithful is False else ""
        for method in (*SIX, "tide"):
            texts = [
                text
                for metric in MEASURED
                for text in (_all_sources(cell, method, metric, sources) if cell else _not_run(sources))
            ]
            rows.append([dataset + star, method, *texts])
    levels = " and ".join(", ".join(str(level) for level in printed(shape)["levels"]).rsplit(", ", 1))
    caption = (
        f"{shape.capitalize()} noise at {levels} %. Percent, mean ± standard deviation over all runs of all levels. "
        'Error of Q / 0.30: mean absolute error of an entry of Q(t) over 0.30, which the paper calls "Approx. Error". '
        "Public code: the authors' code, run by us on the same windows. Ours: our defaults, and with every departure "
        f"from the paper undone. {FAR_FROM_PRINT} ours by default lies more than two printed standard deviations from "
        f"the print; {FAR_FROM_CODE} ours by default, or as in the code, lies more than two standard errors from the "
        "public code. * Substitute data, not the paper's recordings: public code and ours compare, the print does not."
    )
    return PlainTable(number, caption, heads, rows, words=1)


def _not_run(sources: Sequence[str]) -> list[str]:
    return [DASH] * (2 + len(sources)) + [NOT_RUN]


def _all_sources(cell: Cell, method: str, metric: str, sources: Sequence[str]) -> list[str]:
    """Print, public code and ours, exactly as published and by default, of one method, as texts."""
    if metric == "absolute" and method == "ignore":
        return [DASH] * (3 + len(sources))
    scale = 1 / RELATIVE_TO if metric == "absolute" else 1.0
    code = code_summary(cell, method, metric)
    texts = [_printed(cell, method, metric), _text(code, scale) if code.n else DASH]
    for name in [*(f"{method} ({source})" for source in sources), method]:
        ours, point = cell.over_draws(name, metric), table_point(cell, name, metric)
        paper = published(cell, method, metric) if name == method and cell.info.faithful is not False else None
        marks = FAR_FROM_PRINT if paper and paper.is_far_from(ours.mean) else ""
        marks += FAR_FROM_CODE if TEXT not in name and point.code and point.ours and not point.is_near_code else ""
        texts.append(_text(ours, scale) + marks if ours.n else NOT_RUN if name == method else DASH)
    return texts


def _printed(cell: Cell, method: str, metric: str) -> str:
    scale, paper = 1 / RELATIVE_TO if metric == "absolute" else 1.0, published(cell, method, metric)
    return f"{percent(scale * paper.mean)} ± {percent(scale * paper.spread)}" if paper else DASH


def _text(summary: DrawSummary, scale: float) -> str:
    spread = f" ± {percent(scale * summary.spread)}" if math.isfinite(summary.spread) else ""
    return percent(scale * summary.mean) + spread


def stress_table(people: Sequence[Cell]) -> PlainTable:
    """Table 4: the printed numbers of stress detection beside our studies of labels by real annotators."""
    rows_of_paper = stress()
    datasets = list(dict.fromkeys(cell.name for cell in people))
    heads = [
        "Method",
        "What it represents",
        *(f"stress (print): {text}" for text in ("approx. error", "train error", "test error")),
    ]
    heads += [f"{name}: {text}" for name in datasets for text in STRESS_HEADS.values()]
    rows = []
    for method in dict.fromkeys([*rows_of_paper, *map(base_name, methods_of(people))]):
        row = rows_of_paper.get(method, {})
        texts = [
            f"{method} (Static)" if method == "volmin" else method,
            row.get("words", WORDS.get(method, "")),
        ]
        texts += [
            f"{row[m][0]:.1f} ± {row[m][1]:.1f}" if row else DASH for m in ("approx_error", "train_error", "test_error")
        ]
        texts += [_ours([c for c in people if c.name == name], method, m) for name in datasets for m in STRESS_HEADS]
        rows.append(texts)
    return PlainTable("Table 4", STRESS_CAPTION, heads, rows, words=1)


def _ours(cells: Sequence[Cell], method: str, metric: str) -> str:
    summary = mean_over_people(cells, method_in(cells[0], method), metric)
    return _text(summary, 1.0) if summary.n else DASH


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
