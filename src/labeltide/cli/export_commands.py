"""Commands that write results and models for other programs: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from labeltide.cli.app import app, console

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
    from labeltide.exporting.audit_files import export_audit

    written = export_audit(source, to, out, what)
    for sentence in written.said:
        console.print(sentence, markup=False, highlight=False)
    count = len(written.files)
    console.print(f"{count} file{'s' if count != 1 else ''}: {written.folder}", markup=False, highlight=False)
