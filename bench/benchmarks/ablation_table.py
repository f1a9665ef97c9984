"""The ablation of `continuous` as two tables.

    python bench/benchmarks/ablation_table.py [FOLDER]

reads the records of FOLDER, bench/results/paper/ablation by default, and writes FOLDER.md beside it. The first has
the test error and the error of Q in every cell, the second counts the draws of the synthetic data that failed.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from labeltide_bench.pages.cells import Cell, make_cells
from labeltide_bench.pages.result_tables import PlainTable, as_markdown
from labeltide_bench.pages.results import read_results

FOLDER = Path(__file__).parents[1] / "results" / "paper" / "ablation"
DEFAULT = "continuous"
FAILED = 0.1  # with our defaults a fit that works has at most 5.5 % error on the synthetic data

CAPTION = (
    "Test error in % / error of Q (mean absolute error of an entry, x 100), means over draws. A percentage beside "
    "a noise shape is the paper's level. The six columns after `continuous` undo one departure each, the next all "
    "together. `clip=1e+30` is never reached. `objective='penalised'` is the objective of the paper's code. The last "
    "two are ways out of a local minimum. The mean over cells leaves out the cell of that minimum; the last line is "
    "its difference from the defaults, paired by draw, ± the standard error over cells. Made by `python "
    "bench/benchmarks/ablation_table.py`. The parameters of `ContinuousClassifier` in each column:"
)


def cell_name(cell: Cell) -> list[str]:
    """The data set, and the noise at its level, which is not the realised rate with three classes and more."""
    return [cell.name, f"{cell.shape}, {100 * json.loads(cell.level)['rate']:.0f} %"]


def variants(study: dict[str, Any]) -> str:
    """Every variant of the study with the parameters that make it."""
    made = {
        name: ", ".join(f"`{key}={_python(value)}`" for key, value in settings.items() if key != "method")
        for name, settings in study["methods"].items()
    }
    return "\n".join(f"- {name}: {parameters or 'our defaults'}" for name, parameters in made.items())


def _python(value: object) -> str:
    """A value as it stands in Python; lists are tuples there."""
    return repr(tuple(value) if isinstance(value, list) else value)


def both_errors(cells: list[Cell], method: str) -> str:
    """Test error and error of Q, mean over cells."""
    means = [
        sum(cell.over_draws(method, metric).mean for cell in cells) / len(cells)
        for metric in ("test_error", "absolute")
    ]
    return " / ".join(f"{100 * mean:.1f}" for mean in means)


def difference(cells: list[Cell], method: str) -> str:
    """Test error and error of Q less those of the defaults on the same draws, mean over cells ± standard error."""
    texts = []
    for metric in ("test_error", "absolute"):
        means = []
        for cell in cells:
            default = {run.draw: run.metrics[metric] for run in cell.runs[DEFAULT]}
            pairs = [run.metrics[metric] - default[run.draw] for run in cell.runs[method] if run.draw in default]
            means.append(100 * np.mean(pairs))
        texts.append(f"{np.mean(means):+.1f} ± {np.std(means, ddof=1) / len(means) ** 0.5:.1f}")
    return " / ".join(texts)


def draws_of(cells: list[Cell]) -> str:
    """How many draws each data set has."""
    counts = {cell.name: max(map(len, cell.runs.values())) for cell in cells}
    return f"Draws: {', '.join(f'{name} {count}' for name, count in counts.items())}."


def count_failed(cell: Cell, method: str) -> str:
    runs = cell.runs[method]
    return f"{sum(run.metrics['test_error'] > FAILED for run in runs)} of {len(runs)}"


def write_tables(cells: list[Cell], methods: list[str], study: dict[str, Any]) -> str:
    """Both tables in Markdown."""
    heads = ["Data set", "Noise", *methods]
    others = [cell for cell in cells if cell_name(cell) != ["synthetic, 3 classes", "static, 0 %"]]
    whole = PlainTable(
        "What each departure from the paper does",
        f"{CAPTION}\n\n{variants(study)}\n\n{draws_of(cells)}",
        heads,
        [[*cell_name(cell), *(both_errors([cell], method) for method in methods)] for cell in cells]
        + [["mean", f"{len(others)} cells", *(both_errors(others, method) for method in methods)]]
        + [["less defaults", "", *(difference(others, method) for method in methods)]],
    )
    synthetic = [cell for cell in cells if cell.name.startswith("synthetic")]
    failed = PlainTable(
        "Failed draws",
        f"Draws with a test error above {100 * FAILED:.0f} %, on the synthetic data.",
        heads,
        [[*cell_name(cell), *(count_failed(cell, method) for method in methods)] for cell in synthetic],
    )
    return f"{as_markdown(whole)}\n#{as_markdown(failed)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The ablation of continuous as two tables.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="folder with records and study.toml")
    folder = parser.parse_args().folder
    runs, study = read_results(folder).runs, tomllib.loads((folder / "study.toml").read_text())
    text = write_tables(
        make_cells(runs), [name for name in study["methods"] if name in {run.method for run in runs}], study
    )
    folder.with_name(f"{folder.name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
