"""Whether the text's objectives or those of the paper's code come nearer to its published curves.

Run it as ``python bench/benchmarks/code_curves.py``. It compares the records of `paper/figures` and `paper/code` on the
same draws with the values read off the published figures and writes `paper/code/curves.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from labeltide_bench.pages.cells import make_cells
from labeltide_bench.pages.paper.agreement import VARIANCE_1
from labeltide_bench.pages.paper.sources import ACCURACY, FIGURES, SHAPES, STATIC_STUDY, PaperFigure, match_figure
from labeltide_bench.pages.results import Run, read_results

RESULTS = Path(__file__).parents[1] / "results" / "paper"
METHODS = ("continuous", "discontinuous")
ABOUT = """# The text's objectives, the code's, and the published curves

Made by `python bench/benchmarks/code_curves.py` from `paper/figures` (the objectives of the text, our network of Q) and
`paper/code` (the objectives of the published code, for `continuous` with its network of Q), the same five draws,
58 levels of six shapes; of synthetic data two draws, with variance 1.5 as in the text and 1 as in the code. Mean
absolute difference from the published curve in points, bias (ours minus the paper's), how many of our means lie in the
paper's band, and at how many levels the code's objective is the nearer. The published figures show no error of Q for
`discontinuous`; those of blinking lack one level, and levels without a mean of Q in one of the two are left out.

| data set | measure | method | text | bias | in band | code | bias | in band | code nearer |
|---|---|---|--:|--:|--:|--:|--:|--:|--:|
"""


def main() -> None:
    code = [
        replace(run, method=run.method.split(" (")[0], dataset=run.dataset.replace(VARIANCE_1, ""))
        for run in read_results(RESULTS / "code").runs
        if VARIANCE_1 in run.dataset or not run.dataset.startswith("synthetic")
    ]
    made = {(run.task, run.draw) for run in code}
    figures = read_results(RESULTS / "figures").runs
    text = [run for run in figures if run.method in METHODS and (run.task, run.draw) in made]
    wanted = [f for f in FIGURES if f.file != STATIC_STUDY and (f.dataset, f.classes) in {task[:2] for task, _ in made}]
    rows = [row for figure in wanted for method in METHODS if (row := compare(figure, method, text, code))]
    (RESULTS / "code" / "curves.md").write_text(ABOUT + "\n".join(rows) + "\n", encoding="utf-8")
    print(*rows, sep="\n")


def compare(figure: PaperFigure, method: str, text: Sequence[Run], code: Sequence[Run]) -> str:
    """One line of the table; empty where the figure has no curve of the method."""
    both = [differences(figure, method, runs) for runs in (text, code)]
    finite = np.isfinite(both).all(axis=(0, 2))  # Q as in the code is not a number where a determinant was
    ours, theirs = (each[finite] for each in both)
    if not len(ours):
        return ""
    nearer = int((abs(theirs[:, 0]) < abs(ours[:, 0])).sum())
    measure = "accuracy" if figure.measure == ACCURACY else "Q"
    parts = [f"{abs(d[:, 0]).mean():.1f} | {d[:, 0].mean():+.1f} | {int(d[:, 1].sum())}" for d in (ours, theirs)]
    return f"| {figure.dataset} | {measure} | {method} | {' | '.join(parts)} | {nearer} of {len(ours)} |"


def differences(figure: PaperFigure, method: str, runs: Sequence[Run]) -> np.ndarray:
    """Ours minus the paper's, and whether it is in the paper's band: (levels, 2)."""
    matched = match_figure(figure, make_cells(runs))
    points = [point for shape in SHAPES for point in matched.points(method, shape)]
    return np.array([(p.difference, p.is_in_band) for p in points]).reshape(-1, 2)


if __name__ == "__main__":
    main()
