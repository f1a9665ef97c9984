"""Commands on a table: audit, predict."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from labeltide.cli.app import app, console
from labeltide.cli.output_options import OutputOptions


@app.command
def audit(
    table: Annotated[
        Path, Parameter(help="A table with a row for every time step; or a recording (EDF, ...), a folder or manifest.")
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
    resume: Annotated[bool, Parameter(negative=(), help="Go on with an audit that was stopped.")] = False,
    decisions: Annotated[
        Path | None, Parameter(help="The folder of a reviewed audit; its settled labels are trusted.")
    ] = None,
    baseline: Annotated[Path | None, Parameter(help="The folder of an earlier audit to compare with.")] = None,
    fail_above: Annotated[
        str | None,
        Parameter(help="Exit code 4 where the lower end of the interval of the share of wrong labels is above, as 5%."),
    ] = None,
    output: OutputOptions = OutputOptions(),  # noqa: B008  (it cannot be changed)
) -> None:
    """Say which labels of a table are likely wrong, when, and how sure that is: one folder, one page."""
    from labeltide.auditing import machine_output
    from labeltide.auditing.options import default_folder
    from labeltide.auditing.run import audit as audit_table

    limit = None if fail_above is None else machine_output.read_share(fail_above)
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
        verbose=not output.quiet,
        resume=resume,
        decisions=decisions,
        baseline=baseline,
        command=shlex.join(["labeltide", *sys.argv[1:]]),
    )
    check = None if limit is None else machine_output.check_limit(result.summary, limit)
    if output.format == "json":
        output.show(machine_output.audit_document(result.summary, result.folder, check))
    elif output.format == "github":
        output.show("\n".join(machine_output.github_audit(result.summary, result.issues, table, check)))
    else:
        output.show(machine_output.audit_text(result.summary, result.page, check))
    if check is not None and check.exit_code:
        if output.quiet and not output.for_machines:
            Console(stderr=True, soft_wrap=True).print(f"labeltide: {check.sentence}", style="red", markup=False)
        raise SystemExit(check.exit_code)


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
