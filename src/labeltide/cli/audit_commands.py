"""Commands on a table: audit, predict."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from labeltide.cli.app import app, console
from labeltide.cli.output_options import OutputOptions
from labeltide.cli.worker_options import WorkerOptions


@app.command
def audit(
    table: Annotated[
        str,
        Parameter(
            help="A table with a row for every time step; a folder or a glob of parquet or CSV files, or an address "
            "such as s3://bucket/folder; or a recording (EDF, ...), a folder or manifest of recordings."
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
    drop_bad_rows: Annotated[
        bool, Parameter(negative=(), help="Leave out rows without a time or a sequence, and exact repeats of a row.")
    ] = False,
    timezone: Annotated[
        str | None, Parameter(help="Convert times to a place, such as Europe/Berlin; as written by default.")
    ] = None,
    labels: Annotated[str | None, Parameter(help="Spans for a recording: EDF+, CSV, JSON, XML, ...; commas.")] = None,
    epoch: Annotated[float | None, Parameter(help="Seconds of one epoch of a recording.")] = None,
    field: Annotated[
        str | None, Parameter(help="Features of a recording: eeg, sleep, muscle, ecg, movement, gaze or plain.")
    ] = None,
    trusted: Annotated[str | None, Parameter(help="A column of labels known to be right, empty elsewhere.")] = None,
    window: Annotated[int | None, Parameter(help="Longer sequences are cut; chosen from the data by default.")] = None,
    model: Annotated[str, Parameter(help="gru, tcn or transformer.")] = "gru",
    out: Annotated[Path | None, Parameter(help="Folder for the results; TABLE-audit by default.")] = None,
    seed: Annotated[int, Parameter(help="The same seed gives the same numbers.")] = 0,
    device: Annotated[str, Parameter(help='"auto" takes a GPU where there is one.')] = "auto",
    fdr: Annotated[float, Parameter(help="The share of false alarms allowed among the labels to check.")] = 0.1,
    spend_fdr: Annotated[
        bool,
        Parameter(negative=(), help="Name labels until that share is reached, also where no other label is likelier."),
    ] = False,
    resume: Annotated[bool, Parameter(negative=(), help="Go on with an audit that was stopped.")] = False,
    fast: Annotated[
        bool, Parameter(negative=(), help="A quick answer from fewer windows and epochs; what is left out is said.")
    ] = False,
    train_on: Annotated[
        str | None, Parameter(help="How many labels to learn from, as 1e6, or all; every label is judged in any case.")
    ] = None,
    decisions: Annotated[
        Path | None, Parameter(help="The folder of a reviewed audit; its settled labels are trusted.")
    ] = None,
    baseline: Annotated[Path | None, Parameter(help="The folder of an earlier audit to compare with.")] = None,
    fail_above: Annotated[
        str | None,
        Parameter(help="Exit code 4 where the lower end of the interval of the share of wrong labels is above, as 5%."),
    ] = None,
    where: WorkerOptions = WorkerOptions(),  # noqa: B008  (it cannot be changed)
    output: OutputOptions = OutputOptions(),  # noqa: B008  (it cannot be changed)
) -> None:
    """Say which labels of a table are likely wrong, when, and how sure that is: one folder, one page."""
    from labeltide.auditing import machine_output
    from labeltide.auditing.options import default_folder
    from labeltide.auditing.run import audit as audit_table
    from labeltide.tables.addresses import without_secrets

    limit = None if fail_above is None else machine_output.read_share(fail_above)
    with where.context():
        result = audit_table(
            table,
            sequence=sequence,
            time=time,
            label=label,
            features=features,
            annotator=annotator,
            clock=clock,
            trusted=trusted,
            drop_bad_rows=drop_bad_rows,
            timezone=timezone,
            labels=labels,
            epoch=epoch,
            field=field,
            window=window,
            model=model,
            out=out or default_folder(table),
            seed=seed,
            device=device,
            fdr=fdr,
            spend_fdr=spend_fdr,
            verbose=not output.quiet,
            resume=resume,
            decisions=decisions,
            baseline=baseline,
            fast=fast,
            train_on=train_on,
            command=shlex.join(["labeltide", *map(without_secrets, sys.argv[1:])]),
        )
    check = None if limit is None else machine_output.check_limit(result.summary, limit)
    if output.format == "json":
        output.show(machine_output.audit_document(result.summary, result.folder, check))
    elif output.format == "github":
        output.show("\n".join(machine_output.github_audit(result.summary, result.issues, Path(table), check)))
    else:
        output.show(machine_output.audit_text(result.summary, result.page, check))
    if check is not None and check.exit_code:
        if output.quiet and not output.for_machines:
            Console(stderr=True, soft_wrap=True).print(f"labeltide: {check.sentence}", style="red", markup=False)
        raise SystemExit(check.exit_code)


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
