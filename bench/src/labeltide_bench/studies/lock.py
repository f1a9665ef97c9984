"""One process at a time writes to a results folder: an advisory lock on a file, by filelock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK_FILE = "bench.lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder, or refuse if another process does; the system releases it even if we are killed."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file. Name a folder for the records.")
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(
            f"Another process is running a study in {folder}. Wait for it, or name another folder with --out."
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows does not remove an open file
            (folder / LOCK_FILE).unlink()
        lock.release()
