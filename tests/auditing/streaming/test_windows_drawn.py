"""Windows to learn from are the same in any order of files."""

from collections import namedtuple

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import labeltide as lt
from auditing.streaming.quick import WINDOW, fit_quickly, study
from labeltide.auditing import fitting, run, sampling, survey
from labeltide.auditing import reading as source

ARRAYS = ("features", "fit_labels", "lengths", "clock", "gaps", "groups")
Read = namedtuple("Read", "layout sample n_windows")


@pytest.fixture(autouse=True)
def in_parts(monkeypatch):
    """Small parts of a file, and few windows in memory."""
    monkeypatch.setattr(source, "MAX_ROWS", 100)
    monkeypatch.setattr(source, "_may_be_large", lambda path: True)
    monkeypatch.setattr(survey, "CHUNK_ROWS", 300)
    monkeypatch.setattr(fitting, "TRAINING_STEPS", 20 * WINDOW)


@pytest.fixture
def quick(monkeypatch):
    fit_quickly(monkeypatch)


@pytest.fixture
def seen(monkeypatch):
    """What every audit reads."""
    found, read = [], sampling.read_large_table
    monkeypatch.setattr(run, "read_large_table", lambda *given: found.append(Read(*read(*given))) or found[-1])
    return found


def write(path, table=None):
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(study() if table is None else table, path, row_group_size=170)
    return path


def audit(path, out, **more):
    return lt.audit(path, window=WINDOW, out=out, device="cpu", **{"train_on": "all"} | more)


def as_arrays(learned):
    return {name: np.array(getattr(learned, name)) for name in ARRAYS}


def test_short_windows_are_written_from_parts_that_hold_longer_ones(tmp_path, quick, seen):
    table = study()
    step = {}
    for person, time in zip(table["person"].to_pylist(), table["time"].to_pylist(), strict=True):
        step.setdefault(person, {}).setdefault(time, len(step.get(person, {})))
    names, labels = [], []
    for row in table.select(["person", "time", "label"]).to_pylist():
        number = step[row["person"]][row["time"]]
        is_short = number < 120  # twelve sequences of ten steps, then longer ones without labels
        part = number // 10 if is_short else 20 + number // WINDOW
        names.append(f"{row['person']} {part}")
        labels.append(row["label"] if is_short else None)
    for name, values in (("person", names), ("label", labels)):
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    audit(write(tmp_path / "study.parquet", table), tmp_path / "out", train_on=600)
    assert seen[0].sample.features.shape[1] == 10


def test_the_order_and_number_of_files_do_not_matter(tmp_path, quick, seen):
    audit(write(tmp_path / "study.parquet"), tmp_path / "one")
    people = sorted(set(study()["person"].to_pylist()))
    for index, names in enumerate((people[3:], people[1:3], people[:1])):
        kept = pa.compute.is_in(study()["person"], pa.array(names))
        write(tmp_path / "three" / f"{index}.parquet", study().filter(kept))
    audit(tmp_path / "three", tmp_path / "out")
    one, three = (as_arrays(table.sample) for table in seen)
    for name, values in one.items():
        np.testing.assert_array_equal(values, three[name])
    assert seen[0].sample.sequence_names == seen[1].sample.sequence_names
