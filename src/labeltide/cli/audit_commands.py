"""Commands on a table: audit, predict."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from labeltide.cli.app import app, console


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
    fast: Annotated[
        bool, Parameter(negative=(), help="A quick answer from fewer windows and epochs; what is left out is said.")
    ] = False,
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
        fast=fast,
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
