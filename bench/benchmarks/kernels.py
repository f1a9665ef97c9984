"""Speed of the compiled kernels: each variant against nn.GRU of torch, and an ablation of single kernels.

    python bench/benchmarks/kernels.py --out bench/results/speed

Ratios are medians over alternating repetitions, so that a change of the speed of the machine affects both sides. Writes
two tables, kernels.csv (variants) and worth.csv (kernels), and prints them.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from labeltide.doctor import examine
from labeltide.kernels import KERNELS, library
from speed import BASE, fits, fleet_step, once, one_plain_step, plain_fit, seconds

BARS = {"avx512": 10.0, "avx2": 8.0, "plain": 3.0}  # of a step of a fleet of ten, per model, against nn.GRU


def turns(works: Sequence[Callable[[], Any]], count: int) -> list[list[float]]:
    """Seconds of every work in every turn; the first turn, in which caches fill, does not count."""
    times = [[once(work, "cpu") for work in works] for _ in range(count + 1)]
    return times[1:]


def ratio(times: Sequence[Sequence[float]], above: int, below: int) -> float:
    """The median over turns of one work's time against another's."""
    return statistics.median(turn[above] / turn[below] for turn in times)


def under(variant: str, work: Callable[[], Any], without: Sequence[str] = ()) -> Callable[[], Any]:
    """The same work with a variant of the kernels, or without some of them."""

    def call() -> None:
        # A kernel whose check failed is not used.
        left_out = dict.fromkeys(without, library.CheckResult(False, 0.0, 0.0))
        checks = library.load(variant).checks if variant in library.built() else {}
        with patch.dict(os.environ, {library.ENVIRONMENT: variant}), patch.dict(checks, left_out):
            work()

    return call


def measure_variant(variant: str, count: int) -> dict[str, Any]:
    """A step, one and ten `continuous` fits and one `tide` fit with one variant."""
    plain = one_plain_step("cpu")
    with patch.dict(os.environ, {library.ENVIRONMENT: variant}):  # a step decides when it is made
        fleet = under(variant, fleet_step("cpu", **BASE))
    steps = []
    for _ in range(count):
        alone = seconds(plain, "cpu", repeats=3)[0]
        steps.append(BASE["members"] * alone / seconds(fleet, "cpu", repeats=3)[0])
    sizes = (("continuous", 1), ("continuous", 10), ("tide", 1))
    single, ten, tide = (under(variant, fits("cpu", *size)) for size in sizes)
    times = turns([plain_fit("cpu"), single, ten, tide], count)
    middle = [statistics.median(turn[index] for turn in times) for index in range(4)]
    return {
        "kernels": variant,
        "step_against_nn_gru": statistics.median(steps),
        "step_lowest": min(steps),
        "step_highest": max(steps),
        "bar": BARS.get(variant, ""),
        "continuous_seconds": middle[1],
        "continuous_against_plain_loop": ratio(times, 0, 1),
        "ten_against_one": ratio(times, 2, 1),
        "tide_seconds": middle[3],
    }


def measure_worth(variant: str, count: int) -> list[dict[str, Any]]:
    """How much longer one fit takes with one kernel switched off, and with all."""
    rows = []
    for method in ("continuous", "tide"):
        work = fits("cpu", method, 1)
        left_out = [(), *((kernel,) for kernel in KERNELS), KERNELS]
        times = turns([under(variant, work, without) for without in left_out], count)
        for index, without in enumerate(left_out):
            name = "none" if not without else "all" if len(without) > 1 else without[0]
            middle = statistics.median(turn[index] for turn in times)
            rows.append({"method": method, "off": name, "seconds": middle, "times_as_long": ratio(times, index, 0)})
    return rows


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """A small table as CSV, and on the screen."""
    rounded = [{k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rounded[0]))
        writer.writeheader()
        writer.writerows(rounded)
    print(path, *(", ".join(f"{k} {v}" for k, v in row.items()) for row in rounded), "", sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="how often everything is measured")
    parser.add_argument("--out", type=Path, default=Path("bench/results/speed"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    about = {"date": time.strftime("%Y-%m-%d"), "processor": examine().sections["System"]["processor"]}
    about |= {"torch": str(torch.__version__)}
    best = library.runnable()[0]
    rows = []
    for name in library.runnable():
        rows.append({**measure_variant(name, arguments.turns), **about})
        write(rows, arguments.out / "kernels.csv")
    worth = measure_worth(best, max(1, arguments.turns // 3))  # without the GRU a fit of `tide` takes half a minute
    write([{**row, "kernels": best, **about} for row in worth], arguments.out / "worth.csv")


if __name__ == "__main__":
    main()
