"""Study files, records given to reports, and archives given to `datasets fetch`."""

from __future__ import annotations

import io
import json
import random
import stat
import tomllib
import zipfile
from typing import Any
from unittest.mock import patch

import numpy as np

from datasets import archives
from fuzz.engine import ForbiddenError, Room, Target
from fuzz.mutations import mutate_bytes, mutate_json, other_value
from labeltide_bench import datasets as public
from labeltide_bench.datasets import eeg_eye_state, uci_har
from labeltide_bench.pages.results import read_results
from labeltide_bench.pages.summary import summarise
from labeltide_bench.studies import read_study
from labeltide_bench.studies.packed import write_packed
from studies.toys import STUDY, TABLE


def run_study(content: bytes, room: Room) -> None:
    read_study(room.put("study.toml", content))


def mutate_study(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    """A study with some values changed, written as TOML again."""
    if draw.random() < 0.4:
        return None
    try:
        return _toml(mutate_json(draw, tomllib.loads(content.decode()))).encode()
    except (ValueError, RecursionError, AttributeError):
        return mutate_bytes(draw, content, [content])


def _toml(value: dict[str, Any]) -> str:
    return "\n".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, float):
        return str(value).replace("inf", "inf") if value == value else "nan"
    return json.dumps(value)


def _record(method: str, draw: int) -> dict[str, Any]:
    matrices = np.tile([[0.8, 0.2], [0.3, 0.7]], (4, 1, 1)).tolist()
    info = {"faithful": True, "note": "n", "split": "s", "n_train": 9, "n_test": 5, "n_steps": 4, "n_features": 2}
    return {
        "format": 1,
        "key": f"{method}-{draw}",
        "dataset": "toy",
        "dataset_info": {**info, "classes": ["a", "b"]},
        "shape": "mixed",
        "level": {"rate": 0.3},
        "rate": 0.3,
        "variant": "uniform",
        "method": method,
        "draw": draw,
        "settings": {"epochs": 3},
        "versions": {"labeltide": "0.1.0"},
        "device": "cpu",
        "fleet": 1,
        "seconds": 2.5,
        "metrics": {"test_error": 0.1, "train_error": 0.1, "frobenius": 0.2, "absolute": 0.1, "wrong_labels": 0.3},
        "over_time": {"test_error": [0.1] * 4, "frobenius": [0.1] * 4},
        "clock": [0.0, 0.3, 0.6, 1.0],
        "true_noise": matrices,
        "noise": matrices,
    }


def _records() -> list[dict[str, Any]]:
    return [_record(method, draw) for method in ("tide", "ignore", "plugin") for draw in range(2)]


def _prepare_records(room: Room) -> list[bytes]:
    return ["".join(json.dumps(record) + "\n" for record in _records()).encode()]


def _read(room: Room) -> None:
    summarise(read_results(room.folder / "records"))


def run_records(content: bytes, room: Room) -> None:
    (room.folder / "records").mkdir(exist_ok=True)
    room.put("records/records.jsonl", content)
    _read(room)


def mutate_records(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    if draw.random() < 0.3:
        return None
    lines = content.splitlines(keepends=True) or [b"{}\n"]
    index = draw.randrange(len(lines))
    try:
        lines[index] = json.dumps(mutate_json(draw, json.loads(lines[index]))).encode() + b"\n"
    except (ValueError, RecursionError):
        return None
    return b"".join(lines)


def _prepare_packed(room: Room) -> list[bytes]:
    (room.folder / "records").mkdir()
    write_packed(_records(), room.folder / "records" / "records.parquet")
    return [(room.folder / "records" / "records.parquet").read_bytes()]


def run_packed(content: bytes, room: Room) -> None:
    room.put("records/records.parquet", content)
    _read(room)


def mutate_packed(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    """Records with one place changed in all of them, so that they still share a type."""
    if draw.random() < 0.4:
        return None
    records = _records()
    name = draw.choice(list(records[0]))
    value = other_value(draw, records[0][name])
    try:
        write_packed([{**record, name: value} for record in records], room.folder / "mutated.parquet")
    except Exception:
        return None
    return (room.folder / "mutated.parquet").read_bytes()


def _prepare_archives(room: Room) -> list[bytes]:
    paths = archives.make_eeg(room.folder / "eeg.zip"), archives.make_har(room.folder / "har.zip", 4)
    inner = zipfile.ZipFile(paths[1]).read("UCI HAR Dataset.zip")
    return [*(path.read_bytes() for path in paths), inner]


def run_archive(content: bytes, room: Room) -> None:
    path = room.put("a.zip", content)
    before = {each.name for each in room.folder.iterdir()}
    counts = patch.multiple(uci_har, N_FEATURES=4, CLASS_COUNTS=archives.HAR_COUNTS)
    name = "eeg_eye_state" if b"EEG Eye State" in content else "uci_har"
    try:
        with counts, patch.object(eeg_eye_state, "CLASS_COUNTS", archives.EEG_COUNTS):
            public.fetch(name, room.out / "data", archives=path)
    except public.FetchError as error:
        left = [each for each in room.out.rglob("*") if each.is_file()]
        if left:
            raise ForbiddenError(f"{left[0].name} was left behind") from error
        for folder in room.out.iterdir():
            folder.rmdir()
        raise ValueError(str(error)) from error
    finally:
        if {each.name for each in room.folder.iterdir()} != before:
            raise ForbiddenError("something was written outside of the data folder")


def mutate_archive(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    """Members that lead outside, links, bombs, missing and doubled members, other contents."""
    if draw.random() < 0.4:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:
        return None
    if not files:
        return None
    index = draw.randrange(len(files))
    name, data = files[index]
    kind = draw.randrange(7)
    if kind == 0:
        files[index] = (draw.choice(["../../", "/", "C:\\", "a/../../"]) + name, data)
    elif kind == 1:
        files.pop(index)
    elif kind == 2:
        files.append((f"copy/{name}", data))
    elif kind == 3:
        files[index] = (name, data + b"0 " * draw.choice([10, 100_000, 5_000_000]))
    else:
        files[index] = (name, mutate_bytes(draw, data, [data]))
    return _zip(draw, files)


def _zip(draw: random.Random, files: list[tuple[str, bytes]]) -> bytes:
    sink = io.BytesIO()
    linked = draw.randrange(len(files)) if files and draw.random() < 0.1 else -1
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for index, (name, data) in enumerate(files):
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if index == linked:
                info.external_attr, data = (stat.S_IFLNK | 0o777) << 16, b"/etc/passwd"
            archive.writestr(info, data)
    return sink.getvalue()


BENCHES = (
    Target("studies", lambda room: [STUDY.encode(), (STUDY + TABLE).encode()], run_study, mutate_study),
    Target("records", _prepare_records, run_records, mutate_records),
    Target("packed records", _prepare_packed, run_packed, mutate_packed),
    Target("archives", _prepare_archives, run_archive, mutate_archive),
)
