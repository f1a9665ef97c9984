"""The one writer of files: whole or not at all, and JSON that every reader takes."""

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
    """Write a file whole or not at all, whatever ends the process in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)  # mkstemp's own mode would keep others from reading it
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON that every reader takes: finite numbers or null, plain texts."""
    text = json.dumps(to_json(content), ensure_ascii=False, allow_nan=False, indent=1)
    write_atomically(path, text.encode("utf-8", "replace"))


def to_json(value: Any) -> Any:
    """The same value in the types of JSON; what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
