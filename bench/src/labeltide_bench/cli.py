"""The commands that labeltide-bench adds to `labeltide`: bench, report, pack and datasets."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console(soft_wrap=True)


def add_commands(app: App) -> None:
    """Add the commands to an app."""
    public = App(name="datasets", help="List and fetch the public data sets that the paper's studies read.")
    public.command(list_datasets, name="list")
    public.command(fetch)
    for command in (bench, report, pack, public):
        app.command(command)


def bench(
    study: Annotated[Path, Parameter(help="The study, a TOML file.")],
    *,
    data: Annotated[Path, Parameter(help="Folder below which the study's data files lie.")] = Path("data"),
    out: Annotated[Path | None, Parameter(help="Folder for records; results/NAME by default.")] = None,
    jobs: Annotated[int, Parameter(help="Processes side by side.")] = 1,
    ray: Annotated[str | None, Parameter(help="A Ray cluster in their place: auto, local or its address.")] = None,
    fleet_size: Annotated[int, Parameter(help="Most runs trained together.")] = 64,
    device: Annotated[str, Parameter(help='"auto" takes a GPU where there is one.')] = "auto",
    datasets: Annotated[
        list[str] | None, Parameter(consume_multiple=True, negative=(), help="Only these data sets of the study.")
    ] = None,
    methods: Annotated[
        list[str] | None, Parameter(consume_multiple=True, negative=(), help="Only these methods of the study.")
    ] = None,
    draws: Annotated[int | None, Parameter(help="Only the first draws of the study.")] = None,
) -> None:
    """Run a benchmark study, or parts of it one after the other; after an interruption, the same command continues."""
    from labeltide._workers import workers
    from labeltide_bench.studies import read_study, run_study
    from labeltide_bench.studies.study import part_of

    folder = out or Path("results") / study.stem
    part = part_of(read_study(study), datasets or (), methods or (), draws)
    with nullcontext() if ray is None else workers(ray=ray):
        run_study(part, data, folder, jobs=jobs, fleet_size=fleet_size, device=device, verbose=True)
    console.print(f"Records: {folder / 'records.jsonl'}. Make the page with: labeltide report {folder}")


def report(
    *results: Annotated[Path, Parameter(help="Folders with the records of studies.")],
    paper: Annotated[
        bool, Parameter(negative=(), help="Make one page of the paper's tables and figures from all.")
    ] = False,
    out: Annotated[Path | None, Parameter(help="Folder for the page; the same by default.")] = None,
) -> None:
    """Make one self-contained page, and its figures, from the records of each study.

    With --paper, one page for all: the paper's tables and figures, what its public code gives and what ours gives,
    their agreement, and the claims. The folders of paper-figures, paper-tables, paper-static, paper-code and annotators
    may come in any order.
    """
    from labeltide_bench.pages import write_paper, write_report

    if not results:
        raise ValueError("Name at least one folder of records, such as: labeltide report results/quick")
    if paper:
        console.print(f"Page: {write_paper(results, out or results[0].resolve().parent)}")
        return
    if out and len(results) > 1:
        raise ValueError("--out takes the page of one folder. Leave it out, or name one folder of records.")
    for folder in results:
        console.print(f"Page: {write_report(folder, out)}")


def pack(
    results: Annotated[Path, Parameter(help="Folder with the records of a finished study.")],
    *,
    arrays: Annotated[bool, Parameter(help="Keep curves over time and noise matrices.")] = True,
) -> None:
    """Put the records of a finished study into one Parquet file."""
    from labeltide_bench.studies.records import pack_records

    console.print(f"Records: {pack_records(results, arrays=arrays)}")


def list_datasets(
    *,
    data: Annotated[Path, Parameter(help="Folder below which data sets lie.")] = Path("data"),
) -> None:
    """Say what each data set is, its licence and size, and whether it is here."""
    from labeltide_bench import datasets

    table = Table(title=f"Public data sets, below {data}", show_lines=True, expand=True)
    for column, ratio in (("name", None), ("what it is", 4), ("licence", 3), ("download", 2), ("here", 4)):
        table.add_column(column, ratio=ratio, overflow="fold", no_wrap=ratio is None)
    for row in datasets.list_datasets(data):
        here = "present" if row.present else "\n".join(("missing:", *row.missing))
        table.add_row(row.name, row.title, row.licence, row.size, here)
    Console().print(table)


def fetch(
    name: Annotated[str, Parameter(help="A data set of 'labeltide datasets list'.")],
    *,
    data: Annotated[Path, Parameter(help="Folder below which to put it.")] = Path("data"),
    archives: Annotated[
        list[Path] | None,
        Parameter(
            consume_multiple=True, negative=(), help="Archives downloaded by hand, to convert instead of downloading."
        ),
    ] = None,
) -> None:
    """Download a data set from its official address, check it and convert it, or change nothing."""
    from labeltide_bench import datasets

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task(f"{name}: starting", total=None)

        def show(title: str, done: int, total: int) -> None:
            progress.update(task, description=title, completed=done, total=total or None)

        folder = datasets.fetch(name, data, archives, show)
    console.print(f"{name} is in {folder}")
