"""Sound files from which inputs are mutated, made once in a process."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from pyarrow import parquet

import labeltide as lt
from auditing.reviewed import decide
from auditing.tables import make_table
from labeltide.auditing import fitting
from labeltide.reviewing.session import open_session


@cache
def sample_folder() -> Path:
    """A folder for all processes of a run, which is gone at the end of the first."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-samples-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def reviewed_audit() -> Path:
    """The folder of a small audit with a review and some decisions, and beside it its table; made once."""
    folder, work = sample_folder() / "made" / "audit", sample_folder() / f"work-{os.getpid()}"
    if folder.exists():
        return folder
    _write_audit(work / "study.parquet", work / "audit")
    work.rename(folder.parent)
    return folder


def _write_audit(table: Path, folder: Path) -> None:
    table.parent.mkdir()
    kept = fitting.EPOCHS, fitting.HIDDEN_SIZE
    fitting.EPOCHS, fitting.HIDDEN_SIZE = 1, 4
    try:
        parquet.write_table(make_table(people=8, steps=12), table)
        lt.audit(table, out=folder, sequence="person", time="minute", label="label", features="signal")
    finally:
        fitting.EPOCHS, fitting.HIDDEN_SIZE = kept
    about = json.loads((folder / "audit.json").read_text())
    about["table"]["path"] = table.name  # cases are read in the folder of the table, wherever that is
    (folder / "audit.json").write_text(json.dumps(about))
    open_session(folder, table=table, items=5, sample=10).store.close()
    decide(folder, [("Ada", 3, "walk", None), ("Ada", 7, None, None), ("Ben", 9, "rest", None)])


def saved_model(method: str) -> bytes:
    """A fitted method as a file, made once."""
    path = sample_folder() / f"{method}.safetensors"
    if not path.exists():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(10, 6, 2)).astype(np.float32)
        y = (X[..., 0] + 0.5 * rng.normal(size=(10, 6)) > 0).astype(int)
        lt.METHODS[method](epochs=1, hidden_size=3, random_state=0).fit(X, np.array(["no", "yes"])[y]).save(path)
    return path.read_bytes()
