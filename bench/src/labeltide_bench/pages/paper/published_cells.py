"""The paper's own published means as cells, so that its claims can be tested on its own numbers too."""

from __future__ import annotations

import json
from functools import cache

from labeltide_bench.pages.cells import Cell, make_cells
from labeltide_bench.pages.paper.studies import Studies
from labeltide_bench.pages.paper.values import ACCURACY, FIGURES, SIX, STATIC_STUDY, figure_values
from labeltide_bench.pages.published import dataset_sizes, printed
from labeltide_bench.pages.results import DatasetInfo, Run


@cache
def published_studies() -> Studies:
    """Figures, static study and tables as the paper published them, one draw each: its mean."""
    static, figures = _figure_cells(is_static=True), _figure_cells(is_static=False)
    return Studies(figures=figures, tables=_table_cells(), static=static)


def _figure_cells(*, is_static: bool) -> list[Cell]:
    runs: dict[tuple[str, int, str, float, str], dict[str, float]] = {}
    for figure in FIGURES:
        for value in figure_values()[figure.file] if (figure.file == STATIC_STUDY) is is_static else ():
            key = (figure.dataset, figure.classes, value.shape, value.wrong_percent, value.method)
            number = 1 - value.value / 100 if figure.measure == ACCURACY else value.value / 100
            runs.setdefault(key, {})[figure.metric] = number
    return make_cells([_run(*key, metrics) for key, metrics in runs.items()])


def _table_cells() -> list[Cell]:
    runs = []
    for shape, percent in (("mixed", 29.0), ("periodic", 30.0)):
        for dataset in dataset_sizes():
            row = printed(shape)[dataset]
            for method in SIX:
                metrics = {metric: pairs[method][0] / 100 for metric, pairs in row.items() if method in pairs}
                runs.append(_run(dataset, 2, shape, percent, method, metrics))
    return make_cells(runs)


def _run(dataset: str, classes: int, shape: str, percent: float, method: str, metrics: dict[str, float]) -> Run:
    info = DatasetInfo(classes=tuple(f"class {code}" for code in range(classes)))
    level = json.dumps({"rate": round(percent / 100, 4)})
    return Run(dataset, info, shape, level, percent / 100, "uniform", method, 0, metrics)
