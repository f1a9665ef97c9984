"""New .parquet and .csv files, whole or not at all, and never in place of one that is there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labeltide.tables.addresses import check_local


def check_file(path: Path) -> None:
    """Refuse a file that is there already, or of a kind or in a place that we do not write."""
    check_local(path)
    if not path.name.lower().endswith((".parquet", ".csv")):
        raise ValueError(f"The file must end in .parquet or .csv. Got {str(path)!r}.")
    if path.exists():
        raise ValueError(f"The file must be new. {str(path)!r} is there already; remove it or name another.")


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A file to write, which gets its name once it is whole."""
    check_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as work:
        draft = Path(work) / "draft"
        yield draft
        check_file(path)  # the work may have taken long
        os.rename(draft, path)
