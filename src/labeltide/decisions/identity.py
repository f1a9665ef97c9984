"""What an audit and its table are known by, so that decisions are never used for another table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TABLE = ("name", "rows", "sequences", "labels", "columns", "classes", "features", "annotators", "digest")
SETTINGS = ("model", "seed", "window", "fdr")
BLOCK = 1 << 20


def audit_identity(summary: Mapping[str, Any]) -> str:
    """A hash over what audit.json says of the table and the settings: 16 hexadecimal digits.

    Two audits of one table with the same settings have the same identity.
    """
    table, settings = summary.get("table") or {}, summary.get("settings") or {}
    content = [[table.get(name) for name in TABLE], [settings.get(name) for name in SETTINGS]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files of a folder."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        if file != path:
            digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode("utf-8", "replace"))
        with file.open("rb") as source:
            while block := source.read(BLOCK):
                digest.update(block)
    return f"sha256:{digest.hexdigest()}"
