"""One JSON line for each finished run: the seam between running and reporting. Never loads torch."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FILE = "records.jsonl"


def append_records(folder: Path, records: Iterable[dict[str, Any]]) -> None:
    """Add lines with one write that reaches the disk before it returns."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    drop_torn_line(path)
    lines = "".join(json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n" for record in records)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, lines.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def drop_torn_line(path: Path) -> None:
    """Cut off a last line that a kill left without its end."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Every finished run in a results folder, from plain and gzipped files; a torn last line is passed over."""
    for path in sorted(folder.glob("records*.jsonl*")):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)
