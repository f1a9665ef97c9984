"""Atomic writes of files and folders, and strict JSON."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


def write_atomically(path: Path, content: bytes | Callable[[Path], None]) -> None:
    """Write a file atomically: to a temporary file in the same folder, synced and then renamed.

    A function is called with the temporary file, for content that should not be in memory twice.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(Path(draft))
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)  # mkstemp creates files that only their owner may read
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


@contextmanager
def write_folder_atomically(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside the path; its files are synced and it is renamed to the path at a good end."""
    draft = path.with_name(f".{path.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed
    draft.mkdir(parents=True)
    try:
        yield draft
        for file in sorted(draft.iterdir()):
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
        os.replace(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write strict JSON atomically: numbers that are not finite become null."""
    text = json.dumps(to_json(content), ensure_ascii=False, allow_nan=False, indent=1)
    write_atomically(path, text.encode("utf-8", "replace"))


def to_json(value: Any) -> Any:
    """The value in the types of JSON; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
