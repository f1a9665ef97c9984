"""Commands to try things with: doctor, demo, simulate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from labeltide.cli.app import app, console


@app.command
def doctor() -> None:
    """Say which versions, processor and kernels are in use, and whether every kernel passed its self-check."""
    from labeltide.doctor import examine

    report = examine()
    console.print(str(report), markup=False, highlight=False)
    if not report.healthy:
        raise SystemExit(1)


@app.command
def demo(
    out: Annotated[Path, Parameter(help="Folder for the results.")] = Path("labeltide-demo"),
    *,
    people: Annotated[int, Parameter(help="How many take part in the simulated study.")] = 60,
    days: Annotated[int, Parameter(help="How long it lasts.")] = 14,
    seed: Annotated[int, Parameter(help="The same seed gives the same numbers.")] = 0,
) -> None:
    """Simulate a wearable study with known mistakes, audit it, and compare with the truth."""
    from labeltide.demo import run_demo

    result = run_demo(out, people=people, days=days, seed=seed, verbose=True)
    console.print(str(result), markup=False, highlight=False)  # rich would show its fields


@app.command
def simulate(
    out: Annotated[Path, Parameter(help="A new file, .parquet, .csv or .csv.gz.")],
    *,
    people: Annotated[int, Parameter(help="How many wear a sensor.")] = 60,
    days: Annotated[int, Parameter(help="How long they wear it.")] = 14,
    rate: Annotated[float, Parameter(help="The share of labels that are wrong.")] = 0.2,
    seed: Annotated[int, Parameter(help="The same seed gives the same table.")] = 0,
    rows: Annotated[
        float | None, Parameter(help="So many rows, such as 1e8, in place of people and days; .parquet alone.")
    ] = None,
) -> None:
    """Write a simulated wearable study, with two annotators and their known mistakes, to try things on."""
    if rows is not None:
        from labeltide.auditing.large_study import write_large_study

        people = write_large_study(out, int(rows), rate, seed)
        console.print(f"{int(rows)} rows of {people} people with true_label beside label: {out}", markup=False)
        return
    from labeltide.auditing.wearable_study import simulate_study, write_study

    table = simulate_study(people=people, days=days, rate=rate, seed=seed)
    console.print(f"{table.num_rows} rows with true_label beside label: {write_study(table, out)}", markup=False)
