"""Atomic writes of files, and strict JSON."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: to a temporary file in the same folder, synced and then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)  # mkstemp creates files that only their owner may read
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
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
