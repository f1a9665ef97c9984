"""The work folder of a large audit, from which an interrupted one goes on, and the disk that it needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from labeltide.tables.file_set import FileSet
from labeltide.tables.windows import OVERLAP

# Bytes on disk for each label, measured on simulated studies with seven features: judged parts, and the two tables of
# results.
PART_BYTES, RESULT_BYTES = 35, 35
SORT_BYTES = 160  # of a row that DuckDB sorts: its copy in order, and its temporary files
# Of a step of a window to learn from: labels, clock, gaps and the evidence that is kept of the fit; and of a feature.
WINDOW_BYTES, FEATURE_BYTES = 50, 4
FITTED, WINDOWS = "fitted.json", "windows"
GIGABYTE = 1e9


def disk_needed(files: FileSet, copies: bool, n_labels: int | None = None, train_on: float | None = None) -> float:
    """The bytes on disk that an audit needs while it runs; `train_on` as in `AuditOptions`."""
    rows = files.n_rows
    of_step = (WINDOW_BYTES + FEATURE_BYTES * len(files.schema.names)) / (1 - OVERLAP)
    windows = 0.0 if train_on is None else min(train_on, rows) * of_step
    return rows * (SORT_BYTES if copies else 0) + (n_labels or rows) * (PART_BYTES + RESULT_BYTES) + windows


def check_windows_disk(needed: float, folder: Path) -> None:
    """Refuse to write more windows to learn from than the disk holds."""
    place, free = _free(folder)
    if not (folder / WINDOWS).exists() and free < needed:
        raise ValueError(
            f"The windows to learn from take {needed / GIGABYTE:.1f} GB of disk in {str(place)!r}, and "
            f"{free / GIGABYTE:.1f} GB are free. Free some, name a folder on another disk, or learn from fewer labels "
            "with train_on (--train-on N)."
        )


def _free(folder: Path) -> tuple[Path, float]:
    """The folder, or the closest one above it that is there, and the bytes that are free on its disk."""
    place = folder
    while not place.exists():
        place = place.parent
    return place, shutil.disk_usage(place).free


def say_disk(needed: float, folder: Path) -> str:
    """A sentence on the disk needed; too little of it is an error."""
    place, free = _free(folder)
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
