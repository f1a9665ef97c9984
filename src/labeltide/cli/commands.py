"""The commands: each checks its options, calls one function and prints its result."""

from __future__ import annotations

import errno
import getpass
import io
import json
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import labeltide
from labeltide._files import os_error_text
from labeltide._validation import check_choice

app = App(
    name="labeltide",
    help="Learn from labels whose quality changes over time, and see when and how they went wrong.",
    help_epilogue=(
        "Exit codes: 0 success; 2 invalid input; 3 the data do not allow an answer; 4 more labels are wrong than "
        "--fail-above allows; 130 stopped by Ctrl-C; 143 stopped by SIGTERM."
    ),
    version=labeltide.__version__,
    suppress_keyboard_interrupt=False,  # `main` says that it stopped
)


Flag = partial(Parameter, negative=())  # an option without a --no- form


class _Console(Console):
    """Leaves a closed standard output to `main`; rich would end with exit code 1 although all was written."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


# A name such as :bomb: or [red] stays what it is.
console = _Console(soft_wrap=True, emoji=False, markup=False, highlight=False)


FORMATS = "csv, labelstudio, boris, elan, textgrid, nwb, edf, bids, raven, audacity, wfdb, nsrr or mne"


@app.command
def export(
    source: Annotated[Path, Parameter(help="The folder of an audit, or with --onnx a saved model.")],
    *,
    to: Annotated[str | None, Parameter(help=f"Write issues and corrections as spans: {FORMATS}.")] = None,
    what: Annotated[str, Parameter(help="Which spans to write: issues, corrected or both.")] = "both",
    onnx: Annotated[bool, Flag(help="Write the model as ONNX, with a model card.")] = False,
    out: Annotated[Path | None, Parameter(help="A new folder, or with --onnx a file; named like SOURCE.")] = None,
) -> None:
    """Write the issues and corrections of an audit for annotation tools, or its model as ONNX."""
    if (to is None) == (not onnx):
        raise ValueError(f"Say what to write: either --onnx, or --to with {FORMATS}.")
    if to is None:
        from labeltide.exporting.onnx import export_onnx

        console.print(str(export_onnx(source, out)))
        return
    from labeltide.exporting.spans import export_audit

    written = export_audit(source, to, out, what)
    count = f"{len(written.files)} file{'s' if len(written.files) != 1 else ''}: {written.folder}"
    for sentence in (*written.messages, count):
        console.print(sentence)


@app.command
def review(
    folder: Annotated[Path, Parameter(help="The folder of an audit.")],
    *,
    reviewer: Annotated[str | None, Parameter(help="Who decides; by default your user name.")] = None,
    blind: Annotated[bool, Flag(help="Hide the suggestions of the model.")] = False,
    items: Annotated[int | None, Parameter(help="How many stretches of likely errors to queue; 100 at first.")] = None,
    sample: Annotated[int | None, Parameter(help="How many labels to draw at random; 100 at first.")] = None,
    table: Annotated[Path | None, Parameter(help="Where the audited table is, if it was moved.")] = None,
    port: Annotated[int | None, Parameter(help="The port of the local page; by default a free one.")] = None,
    browser: Annotated[bool, Parameter(help="Open the page in a browser.", negative="--no-browser")] = True,
) -> None:
    """Review labels one stretch at a time on a local page; decisions are saved in the folder of the audit."""
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


@app.command
def doctor() -> None:
    """Show the versions, processor and kernels in use, and whether every kernel passed its self-check."""
    from labeltide.doctor import examine

    report = examine()
    console.print(str(report))
    if not report.healthy:
        raise SystemExit(1)


@app.command
def demo(
    out: Annotated[Path, Parameter(help="Folder for the results.")] = Path("labeltide-demo"),
    *,
    people: Annotated[int, Parameter(help="The number of people in the simulated study.")] = 60,
    days: Annotated[int, Parameter(help="Its length in days.")] = 14,
    seed: Annotated[int, Parameter(help="The same seed gives the same numbers.")] = 0,
) -> None:
    """Simulate a wearable study with known errors, audit it, and compare the result with the truth."""
    from labeltide.demo import run_demo

    result = run_demo(out, people=people, days=days, seed=seed, verbose=True)
    console.print(result)


@app.command
def simulate(
    out: Annotated[Path, Parameter(help="A new file, .parquet, .csv or .csv.gz.")],
    *,
    people: Annotated[int, Parameter(help="The number of people who wear a sensor.")] = 60,
    days: Annotated[int, Parameter(help="How many days they wear it.")] = 14,
    rate: Annotated[float, Parameter(help="The share of labels that are wrong.")] = 0.2,
    seed: Annotated[int, Parameter(help="The same seed gives the same table.")] = 0,
    rows: Annotated[float | None, Parameter(help="Rows instead of people and days, such as 1e8.")] = None,
) -> None:
    """Write a simulated wearable study with two annotators and known errors."""
    if rows is not None:
        from labeltide.data.studies import write_large_study

        people = write_large_study(out, int(rows), rate, seed)
        console.print(f"{int(rows)} rows of {people} people with the columns label and true_label: {out}")
        return
    from labeltide.data.studies import simulate_study, write_study

    table = simulate_study(people=people, days=days, rate=rate, seed=seed)
    console.print(f"{table.num_rows} rows with the columns label and true_label: {write_study(table, out)}")


@Parameter(name="*")
@dataclass(frozen=True)
class OutputOptions:
    """How the result is given."""

    format: Annotated[str, Parameter(help="The format of the result: text, json or github (workflow commands).")] = (
        "text"
    )
    quiet: Annotated[bool, Flag(help="Print only errors, and the result if --format is json or github.")] = False

    def __post_init__(self) -> None:
        check_choice("format", self.format, ("text", "json", "github"))

    @property
    def for_machines(self) -> bool:
        return self.format != "text"

    def show(self, text: str) -> None:
        """Print what was asked for: text for a person unless quiet, machine output as it is."""
        if self.for_machines:
            sys.stdout.write(f"{text}\n".encode("utf-8", "replace").decode())
            sys.stdout.flush()
        elif not self.quiet:
            console.print(text)


@app.command
def compare(
    old: Annotated[Path, Parameter(help="The folder of the earlier audit.")],
    new: Annotated[Path, Parameter(help="The folder of the later audit.")],
    *,
    out: Annotated[Path | None, Parameter(help="A new .html file for the comparison.")] = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Compare two audits: issues that are new, resolved or persisting, and whether the noise differs."""
    from labeltide.auditing.compare import compare_audits
    from labeltide.auditing.page import summary as machine_output
    from labeltide.auditing.page.page import write_comparison
    from labeltide.tables.files import check_new_file

    if out is not None:
        check_new_file(out, ".html")
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
    table: Annotated[Path | None, Parameter(help="Where the audited table is, if it was moved.")] = None,
    above: Annotated[float | None, Parameter(help="Also correct where the model is this sure, such as 0.95.")] = None,
    align: Annotated[bool, Flag(help="Only move late or early labels; steps that none reaches have none.")] = False,
) -> None:
    """Write the audited table with the labels that reviewers settled, next to the original labels."""
    from labeltide.auditing.apply import apply_decisions

    result = apply_decisions(folder, out, table=table, above=above, align=align)
    console.print(str(result))


@Parameter(name="*")
@dataclass(frozen=True)
class WorkerOptions:
    """Where independent work runs."""

    workers: Annotated[int | None, Parameter(help="How many processes to use; the results stay the same.")] = None
    ray: Annotated[str | None, Parameter(help="Run on a Ray cluster: auto, local or its address.")] = None

    def context(self) -> AbstractContextManager[Any]:
        """While it lasts, work runs there."""
        if self.workers is None and self.ray is None:
            return nullcontext()
        from labeltide._workers import workers

        return workers(self.workers, self.ray)


def _command_options(*names: str) -> type:
    """The options of `labeltide.audit` that a command can have, or some of them; a list is a text with commas."""
    from labeltide.auditing.options import ONLY_PYTHON, AuditOptions

    kinds: dict[str, Any] = {"bool": bool, "int": int, "float": float, "str": str, "int | None": int | None}
    kinds |= {"float | None": float | None, "str | Path | None": Path | None}
    options = [
        (
            each.name,
            Annotated[kinds.get(str(each.type), str | None), Flag(help=each.metadata["help"])],
            field(default=each.default),
        )
        for each in fields(AuditOptions)
        if not each.metadata[ONLY_PYTHON] and (not names or each.name in names)
    ]
    return make_dataclass("AuditCommandOptions", options, frozen=True, namespace={"__module__": __name__})


AuditCommandOptions: Any = _command_options()
READING = ("sequence", "time", "label", "annotator", "clock", "missing", "classes", "timezone", "epoch")
ReadingOptions: Any = _command_options(*READING)
PredictOptions: Any = _command_options("sequence", "time", "timezone", "device")


@app.command
def audit(
    table: Annotated[
        str,
        Parameter(
            help="A table with one row per time step: a file, a folder or glob of Parquet or CSV files, or an address "
            "such as s3://bucket/folder. Or a recording (EDF and others), or a folder or manifest of recordings."
        ),
    ],
    *,
    out: Annotated[Path | None, Parameter(help="The folder for the results; by default TABLE-audit.")] = None,
    options: Annotated[AuditCommandOptions, Parameter(name="*")] = AuditCommandOptions(),  # noqa: B008  (frozen)
    fail_above: Annotated[
        str | None,
        Parameter(
            help="Exit with code 4 if the share of wrong labels is above this, such as 5%; the lower end of its "
            "interval decides."
        ),
    ] = None,
    where: WorkerOptions = WorkerOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Find the labels in a table that are probably wrong, and when and how they go wrong; write a page and files."""
    from labeltide.auditing.options import default_folder
    from labeltide.auditing.page import summary as machine_output
    from labeltide.auditing.reading import NoFeaturesError
    from labeltide.auditing.run import audit as audit_table
    from labeltide.tables.files import without_secrets

    limit = None if fail_above is None else machine_output.read_share(fail_above)
    command = shlex.join(["labeltide", *map(without_secrets, sys.argv[1:])])
    try:
        with where.context():
            result = audit_table(
                table, out=out or default_folder(table), verbose=not output.quiet, command=command, **vars(options)
            )
    except NoFeaturesError:
        if limit is not None or options.resume:
            raise
        _say("No column is left for features, so annotators are compared with each other (labeltide consensus).")
        reading = ReadingOptions(**{name: getattr(options, name) for name in READING})
        return consensus(table, reading=reading, out=out, output=output)
    check = None if limit is None else machine_output.check_limit(result.summary, limit)
    if output.format == "json":
        output.show(machine_output.audit_document(result.summary, result.folder, check))
    elif output.format == "github":
        output.show("\n".join(machine_output.github_audit(result.summary, result.issues, Path(table), check)))
    else:
        output.show(machine_output.audit_text(result.summary, result.page, check))
    if check is not None and check.exit_code:
        if output.quiet and not output.for_machines:
            _say(f"labeltide: {check.sentence}", style="red")
        raise SystemExit(check.exit_code)


@app.command
def consensus(
    table: Annotated[str, Parameter(help="A table, or spans (BORIS, ELAN and others); several with commas.")],
    *,
    annotators: Annotated[
        str | None,
        Parameter(help="The columns of labels, one per annotator, separated by commas; of spans, whom to compare."),
    ] = None,
    reading: Annotated[ReadingOptions, Parameter(name="*")] = ReadingOptions(),  # noqa: B008  (frozen)
    to: Annotated[str | None, Parameter(help=f"Also write the consensus as spans: {FORMATS}.")] = None,
    out: Annotated[Path | None, Parameter(help="The folder for the results; by default TABLE-consensus.")] = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Compare annotators without signals: who differs, how and when; write a page, and the consensus as spans."""
    from labeltide.auditing.page.format import terminal_text
    from labeltide.exporting.consensus import compare_annotators

    folder = out or Path(f"{Path(table.split(',')[0]).name.split('.')[0]}-consensus")
    command = shlex.join(["labeltide", *sys.argv[1:]])
    given = {"annotators": annotators, "to": to, "out": folder, "command": command, **vars(reading)}
    result = compare_annotators(table, verbose=not output.quiet, **given)
    if not output.quiet:
        _say("\n".join(["Decided", *(f"  - {terminal_text(each)}" for each in result.summary["messages"])]))
    if output.for_machines:
        output.show(json.dumps(result.summary))
    else:
        spans = f"\nSpans      {folder / 'spans'}" if to else ""
        output.show(f"{result}{spans}\nPage       {folder / 'report.html'}")


@app.command
def predict(
    model: Annotated[Path, Parameter(help="The folder of an audit, or of the model in it.")],
    table: Annotated[str, Parameter(help="A table with the same features as the audited one; it needs no labels.")],
    *,
    out: Annotated[Path, Parameter(help="A new file, .parquet or .csv.")],
    options: Annotated[PredictOptions, Parameter(name="*")] = PredictOptions(),  # noqa: B008  (frozen)
) -> None:
    """Predict the true label of every row of another table."""
    from labeltide.auditing.predict import predict_to_file

    started, progress_console = monotonic(), Console(stderr=True)
    with Progress(
        TextColumn("predicting, {task.completed:,.0f} of {task.total:,.0f} rows"),
        BarColumn(),
        TimeRemainingColumn(),
        console=progress_console,
        transient=True,
        disable=not progress_console.is_terminal,  # rich would end it with an empty line
    ) as bar:
        task = bar.add_task("predicting", total=1, visible=False)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        rows = predict_to_file(model, table, out, **vars(options), on_rows=show)
    rate = f", {rows / (monotonic() - started):,.0f} a second" if rows > 1_000_000 else ""
    console.print(f"{rows} rows{rate}: {out}")


# The commands of labeltide-bench, and how a command ends.

BENCH = ("bench", "report", "pack", "datasets")  # commands of labeltide-bench
WAYS_ON = {  # from a command that was stopped
    "audit": " The same command with --resume goes on from here.",
    "bench": " The same command goes on from here.",
}

NO_MEMORY = "labeltide: There is not enough memory. Free some, or give fewer rows or features."
WAYS_OUT = {  # where the system refused to write
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), " Free some space, or name another folder."),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), " Name a folder to which you may write."),
}


if find_spec("labeltide_bench") is not None:
    from labeltide_bench.cli import add_commands

    add_commands(app)
else:  # in place of its commands a sentence that says what to install
    for name in BENCH:

        @app.command(name=name, help="Part of labeltide-bench, which is not installed.")
        def _missing(*words: Annotated[str, Parameter(allow_leading_hyphen=True)], name: str = name) -> None:
            raise ValueError(
                f"`labeltide {name}` is part of labeltide-bench, which is not installed. Install it with: "
                "pip install labeltide-bench."
            )


def main() -> None:
    """Run the command line; wrong use ends with a sentence and exit code 2, data that cannot answer with 3."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed, and nobody reads it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (open as long as the program runs)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show is escaped
    try:
        with _stopped_by_sigterm():
            try:
                app(sys.argv[1:], exit_on_error=False)
            finally:
                sys.stdout.flush()  # here, where a reader that has gone is told apart from other errors
    except CycloptsError:  # it has printed what was wrong
        sys.exit(2)
    except BrokenPipeError:  # as by `head`; results are written before anything is printed, so this is no error
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains again at its end
        sys.exit(0)
    except OSError as error:
        _say(f"labeltide: {os_error_text(error)}{WAYS_OUT.get(error.errno or 0, '')}", style="red")
        sys.exit(2)
    except ValueError as error:
        _say(f"labeltide: {error}", style="red")
        sys.exit(3 if isinstance(error, labeltide.UnanswerableError) else 2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # torch's own words
            raise
        sys.stderr.write(f"{NO_MEMORY}\n")  # rich would ask for more of it
        sys.exit(2)
    except KeyboardInterrupt as stop:
        command = "".join(sys.argv[1:2])
        can_go_on = getattr(stop, "work_is_kept", command != "audit")
        _say(f"labeltide: stopped.{WAYS_ON.get(command, '') if can_go_on else ''}")
        sys.exit(143 if isinstance(stop, Terminated) else 130)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: work is kept."""


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(*_: object) -> NoReturn:
        raise Terminated

    earlier = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _say(sentence: str, style: str | None = None) -> None:
    """A sentence on standard error, where anybody reads it."""
    with suppress(OSError):
        Console(stderr=True, soft_wrap=True, emoji=False).print(sentence, style=style, markup=False)
