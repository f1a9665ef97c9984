"""Atomic installation: files are made in a hidden folder and moved to their destination when all are complete."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LEFTOVER_SECONDS = 24 * 3600


@contextmanager
def workplace(data_dir: Path, folder: str) -> Iterator[Path]:
    """A hidden folder on the same disk as the destination, gone afterwards whatever happens."""
    new_folders = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
    data_dir.mkdir(parents=True, exist_ok=True)
    _sweep(data_dir, folder)
    work = Path(tempfile.mkdtemp(prefix=f".{folder}-", dir=data_dir))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        for path in new_folders:
            if not any(path.iterdir()):
                path.rmdir()


def install(made: Path, destination: Path, files: Sequence[str]) -> None:
    """Move complete files into place; other files in the destination stay."""
    missing = [name for name in files if not (made / name).is_file()]
    if missing:
        raise ValueError(f"The conversion must make {', '.join(files)}. {', '.join(missing)} did not come.")
    if destination.exists():
        _replace(made, destination, files)
    else:
        os.replace(made, destination)  # one step: the folder appears whole


def _replace(made: Path, destination: Path, files: Sequence[str]) -> None:
    """File by file; if one cannot be replaced, the earlier ones go back to what they were."""
    kept = made.with_name("kept")
    kept.mkdir()
    for name in files:
        if (destination / name).is_file():
            shutil.copy2(destination / name, kept / name)
    done = []
    try:
        for name in files:
            os.replace(made / name, destination / name)
            done.append(name)
    except OSError:
        for name in done:
            if (kept / name).is_file():
                os.replace(kept / name, destination / name)
            else:
                (destination / name).unlink()
        raise


def _sweep(data_dir: Path, folder: str) -> None:
    """Remove what a killed fetch left behind: hidden folders to which nobody has written for a day."""
    for old in data_dir.glob(f".{folder}-*"):
        newest = max(path.stat().st_mtime for path in [old, *old.rglob("*")])
        if newest < time.time() - LEFTOVER_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
