"""One process at a time writes to a results folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has none: there, nobody is refused
    fcntl = None  # type: ignore[assignment]

FILE = "bench.lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder, or refuse if another process does; the system lets go of it even if we are killed."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file. Name a folder for the records.")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    handle = _take(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _take(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_there(path, handle):
                os.truncate(handle, 0)
                os.write(handle, f"{os.getpid()}\n".encode())
                return handle
        except BlockingIOError:
            owner = os.read(handle, 32).decode().strip() or "of unknown number"
            os.close(handle)
            raise BlockingIOError(
                f"Process {owner} is running a study in {path.parent}. Wait for it, or name another folder with --out."
            ) from None
        os.close(handle)  # the owner before us removed the file after we opened it


def _is_still_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
