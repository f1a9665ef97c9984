"""The command-line program to which the other files of this folder add their commands."""

from __future__ import annotations

import getpass
import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import labeltide
from labeltide._validation import check_choice

app = App(
    name="labeltide",
    help="Learn from labels whose quality changes over time, and see when and how they went wrong.",
    help_epilogue=(
        "Exit codes: 0 done; 2 wrong use; 3 the data cannot answer; 4 more labels are wrong than --fail-above allows; "
        "130 stopped by Ctrl-C, 143 by SIGTERM."
    ),
    version=labeltide.__version__,
    suppress_keyboard_interrupt=False,  # `main` says that it stopped
)


class _Console(Console):
    """Leaves a closed standard output to `main`; rich would end with exit code 1 although all was written."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


console = _Console(soft_wrap=True, emoji=False)  # a name such as :bomb: stays what it is


# Commands that write results and models for other programs: export.

FORMATS = "csv, labelstudio, elan, textgrid, edf, bids, wfdb, nsrr or mne"


@app.command
def export(
    source: Annotated[Path, Parameter(help="The folder of an audit; with --onnx also a saved model.")],
    *,
    to: Annotated[str | None, Parameter(help=f"Write issues and corrections as spans: {FORMATS}.")] = None,
    what: Annotated[str, Parameter(help="Of spans: issues, corrected or both.")] = "both",
    onnx: Annotated[bool, Parameter(negative=(), help="Write the model as ONNX, with a model card.")] = False,
    out: Annotated[
        Path | None,
        Parameter(help="A new folder, SOURCE-FORMAT by default; with --onnx a new file, NAME.onnx by default."),
    ] = None,
) -> None:
    """Write what an audit found in the formats of annotation tools, or its model as ONNX."""
    if (to is None) == (not onnx):
        raise ValueError(f"Say what to write: either --onnx, or --to with {FORMATS}.")
    if to is None:
        _export_model(source, out)
    else:
        _export_spans(source, to, what, out)


def _export_model(source: Path, out: Path | None) -> None:
    from labeltide.exporting.onnx import export_onnx

    console.print(str(export_onnx(source, out)), markup=False, highlight=False)


def _export_spans(source: Path, to: str, what: str, out: Path | None) -> None:
    from labeltide.exporting.spans import export_audit

    written = export_audit(source, to, out, what)
    for sentence in written.said:
        console.print(sentence, markup=False, highlight=False)
    count = len(written.files)
    console.print(f"{count} file{'s' if count != 1 else ''}: {written.folder}", markup=False, highlight=False)


# Commands of a review: review.


@app.command
def review(
    folder: Annotated[Path, Parameter(help="The folder of an audit.")],
    *,
    reviewer: Annotated[str | None, Parameter(help="Whose decisions these are; your user name by default.")] = None,
    blind: Annotated[bool, Parameter(negative=(), help="Hide what the model thinks.")] = False,
    items: Annotated[
        int | None, Parameter(help="How many stretches that are likely wrong to queue; 100 at first.")
    ] = None,
    sample: Annotated[
        int | None, Parameter(help="How many labels of a probability sample to queue; 100 at first.")
    ] = None,
    table: Annotated[Path | None, Parameter(help="The table of the audit, where it has been moved.")] = None,
    port: Annotated[int | None, Parameter(help="The port on this machine; a free one by default.")] = None,
    browser: Annotated[bool, Parameter(help="Open the page in a browser.", negative="--no-browser")] = True,
) -> None:
    """Settle labels one stretch at a time, on a page of this machine alone; decisions stay in the audit's folder."""
    from labeltide.reviewing.app import review as serve_review

    serve_review(
        folder,
        table=table,
        items=items,
        sample=sample,
        is_blind=blind,
        reviewer=reviewer or _user(),
        port=port,
        opens_browser=browser,
        say=lambda address: print(f"Review     {address}", flush=True),
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "reviewer"


# Commands to try things with: doctor, demo, simulate.


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
        from labeltide.data.studies import write_large_study

        people = write_large_study(out, int(rows), rate, seed)
        console.print(f"{int(rows)} rows of {people} people with true_label beside label: {out}", markup=False)
        return
    from labeltide.data.studies import simulate_study, write_study

    table = simulate_study(people=people, days=days, rate=rate, seed=seed)
    console.print(f"{table.num_rows} rows with true_label beside label: {write_study(table, out)}", markup=False)


# Options that say in which form a command gives its result, for people or for machines.

OUTPUT_FORMATS = ("text", "json", "github")


@Parameter(name="*")
@dataclass(frozen=True)
class OutputOptions:
    """How the result is given."""

    format: Annotated[str, Parameter(help="text, json (one document) or github (workflow commands).")] = "text"
    quiet: Annotated[bool, Parameter(negative=(), help="Print nothing but errors, and what --format asks for.")] = False

    def __post_init__(self) -> None:
        check_choice("format", self.format, OUTPUT_FORMATS)

    @property
    def for_machines(self) -> bool:
        return self.format != "text"

    def show(self, text: str) -> None:
        """Print what was asked for: text for a person unless quiet, machine output as it is."""
        if self.for_machines:
            sys.stdout.write(f"{text}\n".encode("utf-8", "replace").decode())
            sys.stdout.flush()
        elif not self.quiet:
            console.print(text, markup=False, highlight=False)


# Commands on the results of audits: compare, apply.


@app.command
def compare(
    old: Annotated[Path, Parameter(help="The folder of the earlier audit.")],
    new: Annotated[Path, Parameter(help="The folder of the later audit.")],
    *,
    out: Annotated[Path | None, Parameter(help="A new page, .html.")] = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Say which issues are new, resolved or persisting between two audits, and whether the noise differs."""
    from labeltide.auditing import machine_output
    from labeltide.auditing.compare import compare_audits
    from labeltide.auditing.page.page import check_page_path, write_comparison

    if out is not None:
        check_page_path(out)
    result = compare_audits(old, new)
    page = None if out is None else write_comparison(result.summary, out)
    if output.format == "json":
        output.show(machine_output.comparison_document(result.summary, page))
    elif output.format == "github":
        output.show("\n".join(machine_output.github_comparison(result.summary)))
    else:
        output.show(f"{result}\nPage       {page}" if page else str(result))


@app.command
def apply(
    folder: Annotated[Path, Parameter(help="The folder of an audit.")],
    *,
    out: Annotated[Path, Parameter(help="A new file, .parquet or .csv.")],
    table: Annotated[Path | None, Parameter(help="The audited table, where it was moved.")] = None,
    above: Annotated[
        float | None, Parameter(help="Also correct labels where the model is at least so sure, such as 0.95.")
    ] = None,
) -> None:
    """Write the audited table with the labels that reviewers settled; the original label stays beside each."""
    from labeltide.auditing.apply import apply_decisions

    result = apply_decisions(folder, out, table=table, above=above)
    console.print(str(result), markup=False, highlight=False)


# Options that say where independent work runs.


@Parameter(name="*")
@dataclass(frozen=True)
class WorkerOptions:
    """Where independent work runs."""

    workers: Annotated[int | None, Parameter(help="Processes on this machine; the numbers stay the same.")] = None
    ray: Annotated[str | None, Parameter(help="A Ray cluster: auto, local or its address.")] = None

    def context(self) -> AbstractContextManager[Any]:
        """While it lasts, work runs there."""
        if self.workers is None and self.ray is None:
            return nullcontext()
        from labeltide._workers import workers

        return workers(self.workers, self.ray)


# Commands on a table: audit, predict.


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
    missing: Annotated[
        str | None,
        Parameter(help="Labels that mean 'not recorded', with commas, or none; decided from the labels by default."),
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
    where: WorkerOptions = WorkerOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Say which labels of a table are likely wrong, when, and how sure that is: one folder, one page."""
    from labeltide.auditing import machine_output
    from labeltide.auditing.options import default_folder
    from labeltide.auditing.run import audit as audit_table
    from labeltide.tables.files import without_secrets

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
            missing=missing,
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
