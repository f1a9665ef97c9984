"""The work folder of a large audit, from which an interrupted one goes on, and the disk that it needs."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labeltide._files import write_json
from labeltide.auditing.options import AuditOptions
from labeltide.tables.file_set import FileSet

# Bytes on disk for each label, measured on simulated studies with seven features: judged parts, and the two tables of
# results.
PART_BYTES, RESULT_BYTES = 35, 35
SORT_BYTES = 160  # of a row that DuckDB sorts: its copy in order, and its temporary files
ASKED, FITTED = "asked.json", "fitted.json"
GIGABYTE = 1e9


def check_same(folder: Path, files: FileSet, options: AuditOptions) -> None:
    """Note what was asked for, or refuse to go on with another table or other options."""
    asked = {
        "files": list(files.paths),
        "sizes": list(files.sizes),
        "columns": asdict(options.columns),
        "window": options.window,
        "model": options.model,
        "seed": options.seed,
    }
    path = folder / ASKED
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        differs = [name for name in asked if json.loads(json.dumps(asked[name])) != known.get(name)]
        if differs:
            raise ValueError(
                f"An audit goes on with the table and the options it was started with. Now {differs[0]} is another "
                "than then. Leave --resume out to start anew."
            )
    else:
        write_json(path, asked)


def disk_needed(files: FileSet, copies: bool, n_labels: int | None = None) -> float:
    """The bytes on disk that an audit needs while it runs."""
    rows = files.n_rows
    return rows * (SORT_BYTES if copies else 0) + (n_labels or rows) * (PART_BYTES + RESULT_BYTES)


def say_disk(needed: float, folder: Path) -> str:
    """A sentence on the disk needed; too little of it is an error."""
    place = folder
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    amounts = (
        f"about {needed / GIGABYTE:.1f} GB of disk beside its results while it runs; {free / GIGABYTE:.1f} GB are free"
    )
    if free < needed:
        raise ValueError(f"This audit needs {amounts} in {str(place)!r}. Free some, or name a folder on another disk.")
    return f"The audit takes {amounts}."


def read_fitted(folder: Path) -> dict[str, Any] | None:
    """What was written once the fit and its bands were done; None before."""
    path = folder / FITTED
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
