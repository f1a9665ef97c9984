"""The work folder of a large audit, from which an interrupted one goes on, and the disk that it needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from labeltide.tables.file_set import FileSet

# Bytes on disk for each label, measured on simulated studies with seven features: judged parts, and the two tables of
# results.
PART_BYTES, RESULT_BYTES = 35, 35
SORT_BYTES = 160  # of a row that DuckDB sorts: its copy in order, and its temporary files
FITTED = "fitted.json"
GIGABYTE = 1e9


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
