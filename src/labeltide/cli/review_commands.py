"""Commands of a review: review."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from labeltide.cli.app import app


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
    from labeltide.reviewing.serve import review as serve_review

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
