"""Commands on a table: audit, predict."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from labeltide.cli.app import app, console


@app.command
def audit(
    table: Annotated[
        str,
        Parameter(
            help="Parquet, CSV (also .gz) or Arrow, with one row for every time step; a folder or a glob of such "
            "files, or an address such as s3://bucket/folder."
        ),
    ],
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
        out=out or Path(f"{_short_name(table)}-audit"),
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
    table: Annotated[str, Parameter(help="A table with the same features, as audit takes it; labels are not needed.")],
    *,
    out: Annotated[Path, Parameter(help="A new file, .parquet or .csv.")],
    sequence: Annotated[str | None, Parameter(help="The column that says whose row it is.")] = None,
    time: Annotated[str | None, Parameter(help="The column that orders the rows of a sequence.")] = None,
    device: Annotated[str, Parameter(help='"auto" takes a GPU where there is one.')] = "auto",
) -> None:
    """Write the likeliest true label of every row of another table."""
    from labeltide.auditing.predict import predict_to_file

    started = monotonic()
    with Progress(
        TextColumn("predicting, {task.completed:,.0f} of {task.total:,.0f} rows"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("predicting", total=1, visible=False)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        rows = predict_to_file(model, table, out, sequence=sequence, time=time, device=device, on_rows=show)
    rate = f", {rows / (monotonic() - started):,.0f} a second" if rows > 1_000_000 else ""
    console.print(f"{rows} rows{rate}: {out}", markup=False)


def _short_name(table: str) -> str:
    """What the folder of results is called after: the file or the folder without what follows a dot or a wildcard."""
    parts = [part for part in re.split(r"[/\\\\]", table) if part and not re.search(r"[*?\[]", part)]
    return (parts[-1].split(".")[0] if parts else "") or "table"
