"""One JSON line for each finished run: the seam between running and reporting. Never loads torch."""

from __future__ import annotations

import gzip
import json
import lzma
import math
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

OPENERS: dict[str, Any] = {".jsonl": open, ".gz": gzip.open, ".xz": lzma.open}
FILE = "records.jsonl"
BLOCK = 2**16  # bytes looked at together when searching for the end of the last whole line


def append_records(folder: Path, records: Iterable[dict[str, Any]]) -> None:
    """Add lines that reach the disk before this returns; a kill in between leaves whole lines and one torn one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    drop_torn_line(path)
    waiting = memoryview("".join(_line(record) for record in records).encode())
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        while len(waiting):  # as a rule, once
            waiting = waiting[os.write(handle, waiting) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def drop_torn_line(path: Path) -> None:
    """Cut off a last line that a kill left without its end."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        whole = size
        while whole:
            start = max(0, whole - BLOCK)
            file.seek(start)
            found = file.read(whole - start).rfind(b"\n")
            if found >= 0:
                whole = start + found + 1
                break
            whole = start
        if whole < size:
            file.truncate(whole)


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Every finished run in a results folder, from plain and compressed files; a torn last line is passed over."""
    for path in record_files(folder):
        yield from _read(path)


def record_files(folder: Path) -> list[Path]:
    """The files of a results folder that hold records."""
    return sorted(path for path in Path(folder).glob("records*.jsonl*") if path.suffix in OPENERS)


def open_records(path: Path, errors: str = "strict") -> TextIO:
    """A file of records as text, whether plain or compressed."""
    return OPENERS[path.suffix](path, "rt", encoding="utf-8", errors=errors)


def _read(path: Path) -> Iterator[dict[str, Any]]:
    number, line = 0, ""
    try:
        with open_records(path) as file:
            for number, line in enumerate(file, 1):  # noqa: B007 (told in the error)
                if line.endswith("\n"):
                    yield _record(line)
    except (ValueError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} cannot be read near line {number}: {error}. Repair the line, or delete it to run that fit again."
        ) from None


def _record(line: str) -> dict[str, Any]:
    record = json.loads(line)
    if not isinstance(record, dict) or "key" not in record:
        raise ValueError("it is no record of a run")
    return record


def _line(record: dict[str, Any]) -> str:
    return json.dumps(_plain(record), allow_nan=False, default=str, separators=(",", ":")) + "\n"


def _plain(value: Any) -> Any:
    """The same value as JSON knows it: None for NaN and infinity, lists for arrays, text for what it does not know."""
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
