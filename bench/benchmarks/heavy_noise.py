"""Heavy noise beside its fair reference: as many clean labels as carry the information of the noisy ones.

labeltide bench bench/studies/heavy-noise.toml --data DATA --out bench/results/tide/heavy
python bench/benchmarks/heavy_noise.py bench/results/tide/heavy   # heavy.md from the records
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from labeltide_bench.studies.records import read_records

METHODS = ("tide", "clean labels, same information", "clean labels")
HEAD = """# Heavy noise

Made by `python bench/benchmarks/heavy_noise.py` from the records of `bench/studies/heavy-noise.toml`: six shapes of
noise at 40 and 45 % wrong labels. Test error in %, mean over shapes and draws. "Same information": the networks of
`tide` on as many clean labels as carry the information
of the noisy ones. The difference is taken draw by draw, ± its standard error.

| data set | wrong (%) | runs | tide | same information | all clean labels | tide less same information |
|---|--:|--:|--:|--:|--:|--:|
"""


def main(folder: Path) -> None:
    """Write the table of a folder of records."""
    errors: dict[tuple[str, int], dict[str, dict[tuple[str, int], float]]] = defaultdict(lambda: defaultdict(dict))
    for record in read_records(folder):
        cell = errors[record["dataset"], 40 if record["rate"] < 0.43 else 45]
        cell[record["method"]][record["shape"], record["draw"]] = 100 * record["metrics"]["test_error"]
    lines = [_line(name, rate, cell) for (name, rate), cell in errors.items()]
    (folder / "heavy.md").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def _line(name: str, rate: int, cell: dict[str, dict[tuple[str, int], float]]) -> str:
    runs = [run for run in cell[METHODS[0]] if all(run in cell[method] for method in METHODS)]
    values = np.array([[cell[method][run] for run in runs] for method in METHODS])
    difference = values[0] - values[1]
    shown = " | ".join(f"{mean:.2f}" for mean in values.mean(1))
    error = difference.std(ddof=1) / np.sqrt(len(runs))
    return f"| {name} | {rate} | {len(runs)} | {shown} | {difference.mean():+.2f} ± {error:.2f} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
