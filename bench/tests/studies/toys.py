"""Tiny studies that run in a second, and what helps to compare their records."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from labeltide.training.state import Checkpoint
from labeltide_bench.studies import Study, read_records, read_study, run_study, study

DATASET = """
[datasets.toy]
simulate = { n = 14, n_steps = 6, n_features = 2, stay = 0.9 }
settings = { epochs = 8, batch_size = 6, hidden_size = 4 }
"""
NOISE = """
[[noise]]
shape = "mixed"
rates = [0.2, 0.3]
"""
METHODS = """
[methods.ignore]
[methods.plugin]
[methods.told]
method = "known"
noise = "static"
"""
STUDY = "draws = 2\n" + DATASET + NOISE + METHODS
TABLE = """
[datasets.people]
files = ["people.parquet"]
sequence = "person"
time = "minute"
features = ["x", "y"]
labels = { still = [0], moving = [1, 2] }
zscore = "person"
window = 5
settings = { epochs = 2, batch_size = 6, hidden_size = 4 }
"""


def write_study(folder: Path, text: str = STUDY, name: str = "toy") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def toy_study(folder: Path, text: str = STUDY) -> Study:
    return read_study(write_study(folder, text))


@cache
def our_study(path: Path) -> Study:
    """A study of bench/studies without trials of its settings, which test_our_own_studies_are_right makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "check_settings", lambda methods, datasets: None)
        return read_study(path)


def write_people(folder: Path, n_people: int = 6, n_rows: int = 21, **changes: Any) -> Path:
    """A table of people in two houses, one row a minute."""
    generator = np.random.default_rng(0)
    person = np.repeat(np.arange(n_people), n_rows)
    columns = {
        "person": person,
        "house": np.array(["north", "south"])[person % 2],
        "minute": np.tile(np.arange(n_rows), n_people),
        "x": generator.normal(size=len(person)),
        "y": generator.normal(size=len(person)),
        "label": np.tile(np.arange(n_rows) // 2 % 3, n_people),
        **changes,
    }
    pq.write_table(pa.table(columns), folder / "people.parquet")
    return folder


def run_toy(toy: Study, out: Path, jobs: int = 1) -> None:
    """In a process of its own: fleets of two, with a checkpoint after every epoch."""
    torch.set_num_threads(1)
    Checkpoint.__init__.__defaults__ = (0.0,)  # seconds between two writes
    run_study(toy, "nowhere", out, fleet_size=2, jobs=jobs, device="cpu")


def timeless(folder: Path) -> dict[str, dict[str, Any]]:
    """Key → record without what the clock on the wall decides; fails where a run stands twice."""
    records = list(read_records(folder))
    found = {record["key"]: record for record in records}
    assert len(found) == len(records), "a run was repeated"
    return {key: {k: v for k, v in r.items() if k not in ("seconds", "finished")} for key, r in found.items()}
