"""Command to take results and models elsewhere: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from labeltide.cli.app import app, console


@app.command
def export(
    source: Annotated[Path, Parameter(help="A saved model, or the folder of an audit.")],
    *,
    onnx: Annotated[bool, Parameter(negative=(), help="Write the model as ONNX, with a model card.")] = False,
    out: Annotated[Path | None, Parameter(help="A new file; NAME.onnx by default.")] = None,
) -> None:
    """Write a model in a format of other programs."""
    if not onnx:
        raise ValueError("export needs a format: --onnx.")
    from labeltide.exporting.onnx import export_onnx

    console.print(str(export_onnx(source, out)), markup=False, highlight=False)
