"""Records of finished runs: JSON lines while a study runs, one Parquet file when it is finished."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from labeltide._files import to_json
from labeltide_bench.studies.packed import read_packed, write_packed

OPENERS: dict[str, Any] = {".jsonl": open, ".gz": gzip.open, ".xz": lzma.open}
RECORD_FORMAT = 1  # the newest form of a record that is written and read
RECORDS_FILE = "records.jsonl"
PACKED_FILE = "records.parquet"
SEARCH_BYTES = 2**16  # bytes looked at together when searching for the end of the last whole line


def append_records(folder: Path, records: Iterable[dict[str, Any]]) -> None:
    """Append lines and flush them to disk; an interruption leaves whole lines and at most one torn line."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORDS_FILE
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
    """Remove a last line that an interruption left incomplete."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        whole = size
        while whole:
            start = max(0, whole - SEARCH_BYTES)
            file.seek(start)
            newline = file.read(whole - start).rfind(b"\n")
            if newline >= 0:
                whole = start + newline + 1
                break
            whole = start
        if whole < size:
            file.truncate(whole)


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Every finished run in a results folder, from plain and compressed files; a torn last line is passed over."""
    for path in record_files(folder):
        yield from read_packed(path) if path.name == PACKED_FILE else _read(path)


def record_files(folder: Path) -> list[Path]:
    """The files of a results folder that hold records."""
    packed = [path for path in (Path(folder) / PACKED_FILE,) if path.exists()]
    return packed + sorted(path for path in Path(folder).glob("records*.jsonl*") if path.suffix in OPENERS)


def pack_records(folder: Path, *, arrays: bool = True) -> Path:
    """Put all records of a folder into one Parquet file and remove the files they came from.

    Without ``arrays`` the curves over time and the noise matrices are left out, and `records.txt` says the checksum of
    the full records: a study whose arrays are too large to keep is remade by its command.
    """
    folder = Path(folder)
    sources = [path for path in record_files(folder) if path.name != PACKED_FILE]
    if not sources:
        raise ValueError(
            f"{folder} holds no {RECORDS_FILE} to pack. Run the study first: labeltide bench STUDY --out {folder}."
        )
    digests = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sources)
    write_packed(list(read_records(folder)), folder / PACKED_FILE, arrays=arrays)
    if not arrays:
        note = "SHA-256 of the full records, with curves over time and noise matrices, which are not kept here:\n"
        (folder / "records.txt").write_text(note + digests, encoding="utf-8")
    for path in sources:
        path.unlink()
    return folder / PACKED_FILE


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
    return json.dumps(to_json(record), allow_nan=False, separators=(",", ":")) + "\n"
