"""The command line: parses, calls, prints."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

import labeltide

app = App(
    name="labeltide",
    help="Learn from labels whose quality changes over time, and see when and how they went wrong.",
    version=labeltide.__version__,
)
console = Console(soft_wrap=True)


@app.command
def demo(
    out: Annotated[Path, Parameter(help="Folder for the picture.")] = Path("labeltide-demo"),
    *,
    epochs: Annotated[int, Parameter(help="Passes over the data for each method.")] = 150,
    seed: Annotated[int, Parameter(help="The same seed gives the same numbers.")] = 0,
) -> None:
    """Simulate a study with a third of its labels wrong, learn from it, and compare with the known truth."""
    from labeltide.demo import run_demo

    result = run_demo(out, epochs=epochs, seed=seed)
    table = Table(
        title=f"{result.wrong_labels:.0%} of the training labels are wrong, more at some times than at others"
    )
    table.add_column("method")
    table.add_column("error on clean labels", justify="right")
    table.add_column("error of Q (Frobenius)", justify="right")
    for row in result.rows:
        table.add_row(row.method, f"{row.error:.1%}", f"{row.noise_error:.3f}")
    console.print(table)
    console.print(f"Picture of Q(t), true against estimated: {result.picture}")


@app.command
def bench(
    study: Annotated[Path, Parameter(help="The study, a TOML file.")],
    *,
    data: Annotated[Path, Parameter(help="Folder below which the study's data files lie.")] = Path("data"),
    out: Annotated[Path | None, Parameter(help="Folder for records; results/NAME by default.")] = None,
    jobs: Annotated[int, Parameter(help="Processes side by side.")] = 1,
    fleet_size: Annotated[int, Parameter(help="Most runs trained together.")] = 64,
    device: Annotated[str, Parameter(help='"auto" takes a GPU where there is one.')] = "auto",
) -> None:
    """Run a benchmark study; started again after a kill, it goes on where it stopped."""
    from labeltide.benchmark import read_study, run_study

    folder = out or Path("results") / study.stem
    run_study(read_study(study), data, folder, jobs=jobs, fleet_size=fleet_size, device=device, verbose=True)
    console.print(f"Records: {folder / 'records.jsonl'}. Make the page with: labeltide report {folder}")


@app.command
def report(
    results: Annotated[Path, Parameter(help="Folder with the records of a study.")],
    *,
    out: Annotated[Path | None, Parameter(help="Folder for the page; the same by default.")] = None,
) -> None:
    """Make one self-contained page, and its figures, from the records of a study."""
    from labeltide.report import write_report

    console.print(f"Page: {write_report(results, out)}")


def main() -> None:
    """Run the command line; a wrong use or bad data ends with a sentence and exit code 2."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        app()
    except (ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"labeltide: {error}", style="red", markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("labeltide: stopped.")
        sys.exit(130)
