"""Commands on the results of audits: compare, apply."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from labeltide.cli.app import app, console
from labeltide.cli.output_options import OutputOptions


@app.command
def compare(
    old: Annotated[Path, Parameter(help="The folder of the earlier audit.")],
    new: Annotated[Path, Parameter(help="The folder of the later audit.")],
    *,
    out: Annotated[Path | None, Parameter(help="A new page, .html.")] = None,
    output: OutputOptions = OutputOptions(),  # noqa: B008  (it cannot be changed)
) -> None:
    """Say which issues are new, resolved or persisting between two audits, and whether the noise differs."""
    from labeltide.auditing import machine_output
    from labeltide.auditing.comparing import compare_audits
    from labeltide.auditing.page.compare_page import check_page_path, write_comparison

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
    from labeltide.auditing.applying import apply_decisions

    result = apply_decisions(folder, out, table=table, above=above)
    console.print(str(result), markup=False, highlight=False)
