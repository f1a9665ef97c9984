"""The command line: parses, calls, prints."""

from __future__ import annotations

import logging
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

import labeltide

app = App(
    name="labeltide",
    help="Learn from labels whose quality changes over time, and see when and how they went wrong.",
    version=labeltide.__version__,
    suppress_keyboard_interrupt=False,  # `main` says that it stopped
)
console = Console(soft_wrap=True)
BENCH = ("bench", "report", "pack", "datasets")  # commands of labeltide-bench


@app.command
def audit(
    table: Annotated[Path, Parameter(help="Parquet, CSV (also .gz) or Arrow, with one row for every time step.")],
    *,
    sequence: Annotated[str | None, Parameter(help="The column that says whose row it is.")] = None,
    time: Annotated[str | None, Parameter(help="The column that orders the rows of a sequence.")] = None,
    label: Annotated[
        str | None, Parameter(help="The labels; several columns, one for each annotator, with commas.")
    ] = None,
    features: Annotated[str | None, Parameter(help="Columns with commas between; all others by default.")] = None,
    annotator: Annotated[str | None, Parameter(help="The column that says who labelled the row.")] = None,
    clock: Annotated[
        str | None,
        Parameter(help="A column, hour_of_day, day_of_week, days or position; up to three with commas. Else position."),
    ] = None,
    trusted: Annotated[str | None, Parameter(help="A column of labels known to be right, empty elsewhere.")] = None,
    window: Annotated[int | None, Parameter(help="Longer sequences are cut; chosen from the data by default.")] = None,
    model: Annotated[str, Parameter(help="gru, tcn or transformer.")] = "gru",
    out: Annotated[Path | None, Parameter(help="Folder for the results; TABLE-audit by default.")] = None,
    seed: Annotated[int, Parameter(help="The same seed gives the same numbers.")] = 0,
    device: Annotated[str, Parameter(help='"auto" takes a GPU where there is one.')] = "auto",
    fdr: Annotated[float, Parameter(help="The share of false alarms allowed among the labels to check.")] = 0.1,
    resume: Annotated[bool, Parameter(negative=(), help="Go on with an audit that was stopped.")] = False,
) -> None:
    """Say which labels of a table are likely wrong, when, and how sure that is: one folder, one page."""
    from labeltide.auditing.run import audit as audit_table

    result = audit_table(
        table,
        sequence=sequence,
        time=time,
        label=label,
        features=features,
        annotator=annotator,
        clock=clock,
        trusted=trusted,
        window=window,
        model=model,
        out=out or Path(f"{table.name.split('.')[0] or 'table'}-audit"),
        seed=seed,
        device=device,
        fdr=fdr,
        verbose=True,
        resume=resume,
        command=shlex.join(["labeltide", *sys.argv[1:]]),
    )
    console.print(f"{result}\nPage       {result.page}", markup=False, highlight=False)


@app.command
def predict(
    model: Annotated[Path, Parameter(help="The folder of an audit, or the model in it.")],
    table: Annotated[Path, Parameter(help="A table with the same features; labels are not needed.")],
    *,
    out: Annotated[Path, Parameter(help="A new file, .parquet or .csv.")],
    sequence: Annotated[str | None, Parameter(help="The column that says whose row it is.")] = None,
    time: Annotated[str | None, Parameter(help="The column that orders the rows of a sequence.")] = None,
    device: Annotated[str, Parameter(help='"auto" takes a GPU where there is one.')] = "auto",
) -> None:
    """Write the likeliest true label of every row of another table."""
    from labeltide.auditing.predict import check_file, predict_table, write_predictions

    check_file(out)
    predictions = predict_table(model, table, sequence=sequence, time=time, device=device)
    console.print(f"{predictions.num_rows} rows: {write_predictions(predictions, out)}", markup=False)


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
) -> None:
    """Write a simulated wearable study, with two annotators and their known mistakes, to try things on."""
    from labeltide.auditing.wearable_study import simulate_study, write_study

    table = simulate_study(people=people, days=days, rate=rate, seed=seed)
    console.print(f"{table.num_rows} rows with true_label beside label: {write_study(table, out)}", markup=False)


def _add_bench() -> None:
    """The commands of labeltide-bench, or in their place a sentence that says what to install."""
    if find_spec("labeltide_bench") is not None:
        from labeltide_bench.cli import add_commands

        add_commands(app)
        return
    for name in BENCH:

        @app.command(name=name, help="Part of labeltide-bench, which is not installed.")
        def _missing(*words: Annotated[str, Parameter(allow_leading_hyphen=True)], name: str = name) -> None:
            raise ValueError(
                f"`labeltide {name}` is part of labeltide-bench, which is not installed. Install it with: "
                "pip install labeltide-bench."
            )


_add_bench()


def main() -> None:
    """Run the command line; wrong use ends with a sentence and exit code 2, data that cannot answer with 3."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        app(sys.argv[1:], exit_on_error=False)
    except CycloptsError:  # it has said what was wrong
        sys.exit(2)
    except (ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"labeltide: {error}", style="red", markup=False)
        sys.exit(3 if isinstance(error, labeltide.UnanswerableError) else 2)
    except KeyboardInterrupt:
        Console(stderr=True).print("labeltide: stopped.")
        sys.exit(130)
