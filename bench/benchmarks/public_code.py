"""Summarise the fits of the paper's public code, one line for each cell and method.

    python bench/benchmarks/public_code.py FITS.csv

FITS.csv has a line for each fit with the columns data, shape, level, draw, method, error, error_rounded, mae and
frobenius, in percent. The fits are not in this repository: 1,368 of the authors' published code, run by us on
the windows and at the noise levels of our studies (ten cells of each of six data sets, three draws, five of mixed and
periodic noise). The summary, `pages/paper/public_code.csv`, has means and standard deviations (divided by n - 1) over
draws:

- error: test error, the arg max of the probabilities; error_finite: the same over the draws whose Q is finite;
- error_rounded: the same with the code's own metric, the arg max of rounded probabilities;
- mae: the error of Q, the mean absolute error of an entry; frobenius: its mean Frobenius norm;
- level: that of the noise that was drawn. The lines of FITS.csv that name decay at 31 % had the constants of 34 %: the
  error of Q of ignore, which is the noise itself, is 33.9 points there, not 31.2;
- n: draws; n_q: draws whose Q is finite. Where Q is NaN the code predicts one class, and that error counts.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from labeltide._files import csv_text, write_atomically
from labeltide_bench.pages.cells import summarise_draws

SUMMARY = Path(__file__).parents[1] / "src/labeltide_bench/pages/paper/public_code.csv"
DRAWN = {("decay", "31"): "34"}  # shape and level as FITS.csv names it: the level of the noise
MEASURES = ("error", "error_rounded", "mae", "frobenius", "error_finite")


def summarise_fits(fits: Path) -> str:
    """The summary as CSV."""
    grouped: dict[tuple[str, ...], list[dict[str, str]]] = {}
    with fits.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            row["error_finite"] = row["error"] if row["mae"] else ""
            level = DRAWN.get((row["shape"], row["level"]), row["level"])
            grouped.setdefault((row["data"], row["shape"], level, row["method"]), []).append(row)
    lines = [["data", "shape", "level", "method", "n", "n_q"] + [f"{m}{end}" for m in MEASURES for end in ("", "_sd")]]
    for key in sorted(grouped, key=lambda key: (key[0], key[1], float(key[2]), key[3])):
        found = {m: summarise_draws(float(row[m] or "nan") for row in grouped[key]) for m in MEASURES}
        numbers = [f"{value:.3f}" for m in MEASURES for value in (found[m].mean, found[m].spread)]
        lines.append([*key, str(found["error"].n), str(found["mae"].n), *numbers])
    return csv_text(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Summarise the fits of the paper's public code.")
    parser.add_argument("fits", type=Path, help="CSV with a line for each fit")
    write_atomically(SUMMARY, summarise_fits(parser.parse_args().fits).encode())


if __name__ == "__main__":
    main()
