"""The ablation of `continuous` as two tables.

    python bench/benchmarks/ablation_table.py      # reads bench/results/paper/ablation, writes ablation.md beside it

The first has the test error and the distance of Q in every cell, the second counts the draws of the synthetic data that
failed.
"""

from __future__ import annotations

from pathlib import Path

from labeltide_bench.pages.cells import Cell, make_cells
from labeltide_bench.pages.paper.plain import PlainTable, as_markdown
from labeltide_bench.pages.results import read_results

RESULTS = Path(__file__).parents[1] / "results" / "paper"
FAILED = 0.1  # with our defaults a fit that works has at most 5.5 % error on the synthetic data


def cell_name(cell: Cell) -> list[str]:
    return [cell.name, f"{cell.shape}, {100 * cell.rate:.0f} %"]


def error_and_distance(cell: Cell, method: str) -> str:
    error, distance = (cell.over_draws(method, metric).mean for metric in ("test_error", "frobenius"))
    return f"{100 * error:.1f} / {100 * distance:.1f}"


def count_failed(cell: Cell, method: str) -> str:
    runs = cell.runs[method]
    return f"{sum(run.metrics['test_error'] > FAILED for run in runs)} of {len(runs)}"


def write_tables(cells: list[Cell], methods: list[str]) -> str:
    """Both tables in Markdown."""
    heads = ["Data set", "Noise", *methods]
    whole = PlainTable(
        "What each departure from the paper does",
        "Test error in % / distance of Q (mean Frobenius norm x 100), means over ten draws. `continuous` has our "
        "defaults. The next six columns undo one departure each, then all. `penalised` is the objective of the paper's "
        "code. Made by `python bench/benchmarks/ablation_table.py`.",
        heads,
        [[*cell_name(cell), *(error_and_distance(cell, method) for method in methods)] for cell in cells],
    )
    synthetic = [cell for cell in cells if cell.name.startswith("synthetic")]
    failed = PlainTable(
        "Failed draws",
        f"Draws with a test error above {100 * FAILED:.0f} %, on the synthetic data.",
        heads,
        [[*cell_name(cell), *(count_failed(cell, method) for method in methods)] for cell in synthetic],
    )
    return f"{as_markdown(whole)}\n#{as_markdown(failed)}"


if __name__ == "__main__":
    runs = read_results(RESULTS / "ablation").runs
    text = write_tables(make_cells(runs), list(dict.fromkeys(run.method for run in runs)))
    (RESULTS / "ablation.md").write_text(text)
    print(text)
