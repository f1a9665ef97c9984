"""Windows to learn from on disk: the same numbers as in memory, whole or not at all, in any order of files."""

import shutil
from collections import namedtuple

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import labeltide as lt
from auditing.streaming.quick import WINDOW, QuickTide, study
from labeltide.auditing import fitting, run, sampling, survey
from labeltide.auditing import reading as source
from labeltide.auditing.resume import disk_needed
from labeltide.chain import em, select
from labeltide.tables.files import open_files

ARRAYS = ("features", "fit_labels", "lengths", "clock", "gaps", "groups")
Usage = namedtuple("Usage", "total used free")
Read = namedtuple("Read", "layout sample n_windows learned")


@pytest.fixture(autouse=True)
def in_parts(monkeypatch):
    """Small parts of a file, and few windows in memory."""
    monkeypatch.setattr(source, "MAX_ROWS", 100)
    monkeypatch.setattr(source, "_may_be_large", lambda path: True)
    monkeypatch.setattr(survey, "CHUNK_ROWS", 300)
    monkeypatch.setattr(fitting, "TRAINING_STEPS", 20 * WINDOW)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(fitting, "TideClassifier", QuickTide)
    monkeypatch.setattr(fitting, "plant", lambda *_: ())
    for name in ("thin_evidence", "thin_for_tests"):
        monkeypatch.setattr(fitting, name, lambda training, *_: training)


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


@pytest.mark.parametrize("train_on", ["all", 600])
def test_windows_on_disk_are_those_in_memory(tmp_path, quick, seen, train_on):
    result = audit(write(tmp_path / "study.parquet"), tmp_path / "out", train_on=train_on)
    (table,) = seen
    on_disk, held = table.learned, table.sample
    assert isinstance(on_disk.features, np.memmap)
    assert len(on_disk.lengths) == result.summary["settings"]["windows learned from"] > len(held.lengths)
    assert (len(on_disk.lengths) == table.n_windows) == (train_on == "all")
    starts = {}
    for row, (group, moment) in enumerate(zip(on_disk.groups, on_disk.clock[:, -1], strict=True)):
        starts[on_disk.sequence_names[group], moment, on_disk.features[row].tobytes()] = row
    rows = [
        starts[held.sequence_names[group], moment, held.features[row].tobytes()]
        for row, (group, moment) in enumerate(zip(held.groups, held.clock[:, -1], strict=True))
    ]
    assert rows == sorted(rows)
    for name in ARRAYS[:-1]:
        np.testing.assert_array_equal(getattr(on_disk, name)[rows], getattr(held, name))


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
    assert seen[0].learned.features.shape[1] == 10


def test_the_order_and_number_of_files_do_not_matter(tmp_path, quick, seen):
    audit(write(tmp_path / "study.parquet"), tmp_path / "one")
    people = sorted(set(study()["person"].to_pylist()))
    for place, names in enumerate((people[3:], people[1:3], people[:1])):
        kept = pa.compute.is_in(study()["person"], pa.array(names))
        write(tmp_path / "three" / f"{place}.parquet", study().filter(kept))
    audit(tmp_path / "three", tmp_path / "out")
    one, three = (as_arrays(table.learned) for table in seen)
    for name, values in one.items():
        np.testing.assert_array_equal(values, three[name])
    assert seen[0].learned.sequence_names == seen[1].learned.sequence_names


def test_an_audit_killed_while_it_writes_windows_leaves_none_and_goes_on(tmp_path, quick, seen, monkeypatch):
    path = write(tmp_path / "study.parquet")
    whole, fill, calls, left = audit(path, tmp_path / "whole"), sampling._fill, [], []

    def stop(*arguments):
        calls.append(1)
        fill(*arguments)
        if len(calls) == 2:  # the first call fills the windows in memory
            raise KeyboardInterrupt

    monkeypatch.setattr(sampling, "_fill", stop)
    with pytest.raises(KeyboardInterrupt):
        audit(path, tmp_path / "killed")
    work = tmp_path / ".killed-unfinished"
    assert work.exists()
    assert not [each for each in work.iterdir() if "windows" in each.name]
    (work / ".windows-abcdefgh" / "new").mkdir(parents=True)  # of a process that was killed without notice
    monkeypatch.setattr(sampling, "_fill", lambda *given: left.append([*work.glob(".windows-abc*")]) or fill(*given))
    resumed = audit(path, tmp_path / "killed", resume=True)
    for name in ("labels.parquet", "noise.csv", "model/model.safetensors"):
        assert (whole.folder / name).read_bytes() == (resumed.folder / name).read_bytes()
    assert [len(each) for each in left[:2]] == [1, 0], "the draft is gone before other windows are written"
    assert not work.exists()


def test_windows_that_were_written_are_not_written_again(tmp_path, quick, seen, monkeypatch):
    path = write(tmp_path / "study.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(QuickTide, "fit", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            audit(path, tmp_path / "killed")
    first = as_arrays(seen[0].learned)
    monkeypatch.setattr(sampling, "draft_beside", None)
    audit(path, tmp_path / "killed", resume=True)
    for name, values in as_arrays(seen[1].learned).items():
        np.testing.assert_array_equal(first[name], values)


def test_a_fit_from_disk_has_the_bits_of_one_from_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "EPOCHS", 1)
    for module, name in ((em, "LABEL_ITERATIONS"), (em, "JOINT_ITERATIONS"), (select, "SELECTION_ITERATIONS")):
        monkeypatch.setattr(module, name, 1)
    path = write(tmp_path / "study.parquet")
    kept, fit, load = [], fitting.fit, np.load

    def fit_and_stop(*given):
        kept.append(fit(*given))
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "fit", fit_and_stop)
    for how in ("c", None):
        monkeypatch.setattr(sampling.np, "load", lambda file, mmap_mode, how=how: load(file, mmap_mode=how))
        with pytest.raises(KeyboardInterrupt):
            audit(path, tmp_path / str(how))
    for name in ("model_", "fold_model_"):
        for one, other in zip(*(getattr(each, name).parameters() for each in kept), strict=True):
            assert one.equal(other)
    np.testing.assert_array_equal(kept[0].noise_matrices_, kept[1].noise_matrices_)


def test_too_little_disk_for_the_windows_is_refused_with_what_they_need(tmp_path, quick, monkeypatch):
    path = write(tmp_path / "study.parquet")
    monkeypatch.setattr(run, "say_disk", lambda *_: "")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(ValueError, match=r"windows to learn from take 0\.\d GB of disk .*--train-on N"):
        audit(path, tmp_path / "out")


def test_disk_for_windows_is_counted_before_an_audit_starts(tmp_path):
    files = open_files(write(tmp_path / "study.parquet"))
    usual, some, every = (disk_needed(files, False, train_on=number) for number in (None, 500, np.inf))
    assert usual < some < every < usual + 200 * files.n_rows
