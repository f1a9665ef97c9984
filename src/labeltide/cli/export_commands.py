"""Commands that write results for other programs: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from labeltide.cli.app import app, console


@app.command
def export(
    source: Annotated[Path, Parameter(help="The folder of an audit.")],
    *,
    to: Annotated[
        str | None, Parameter(help="csv, labelstudio, elan, textgrid, edf, bids, wfdb, nsrr or mne: spans of issues.")
    ] = None,
    what: Annotated[str, Parameter(help="issues, corrected or both.")] = "both",
    out: Annotated[Path | None, Parameter(help="A new folder; SOURCE-FORMAT by default.")] = None,
) -> None:
    """Write what an audit found in the formats of annotation tools."""
    if to is None:
        raise ValueError("Say what to write: --to csv, labelstudio, elan, textgrid, edf, bids, wfdb, nsrr or mne.")
    _export_spans(source, to, what, out)


def _export_spans(source: Path, to: str, what: str, out: Path | None) -> None:
    from labeltide.exporting.audit_files import export_audit

    written = export_audit(source, to, out, what)
    for sentence in written.said:
        console.print(sentence, markup=False, highlight=False)
    count = len(written.files)
    console.print(f"{count} file{'s' if count != 1 else ''}: {written.folder}", markup=False, highlight=False)
