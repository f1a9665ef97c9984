"""Whether two versions of labeltide give the same numbers, bit for bit.

    PYTHONPATH=old/src:old/bench/src python tools/same_numbers.py run before
    PYTHONPATH=src:bench/src         python tools/same_numbers.py run after --models before
    python tools/same_numbers.py compare before after

`run` writes the results of four jobs into a folder: the quick study of the paper, an audit of a small table, an audit
of a large table that is read in parts, and saved models with their predictions. `--models` also predicts with the
models that another version saved. `compare` lists every number that differs, and by how much; it exits with code 1
where one does. Texts are compared apart from numbers, and times, paths and versions not at all.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MODELS = ("ignore", "discontinuous", "continuous", "tide")
# Of one run, not of the numbers: when and how long, where, by which version, and the digests of files.
IGNORED = {"seconds", "train_seconds", "predict_seconds", "started", "finished", "created", "version", "versions"}
IGNORED |= {"command", "commit", "path", "digest", "host", "labeltide", "environment", "sha256"}
SKIPPED_FILES = {"report.html", "README.md"}  # words about the numbers that the other files hold


def labeltide(*arguments: object) -> None:
    """Run a command of the version that PYTHONPATH names, on one thread of the CPU."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-m", "labeltide", *map(str, arguments)]
    subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL)


def run_study(out: Path, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as empty:  # without the public recordings, which are optional
        labeltide("bench", ROOT / "bench/studies/quick.toml", "--data", empty, "--out", out, "--device", "cpu")


def run_audit(out: Path, options: argparse.Namespace) -> None:
    table = out.parent / "small.parquet"
    labeltide("simulate", table, "--people", 12, "--days", 4, "--seed", 3)
    labeltide("audit", table, "--clock", "hour_of_day", "--fast", "--quiet", "--device", "cpu", "--out", out)
    table.unlink()


def run_parts(out: Path, options: argparse.Namespace) -> None:
    table = out.parent / "large.parquet"
    labeltide("simulate", table, "--rows", options.rows, "--seed", 3)
    labeltide("audit", table, "--clock", "hour_of_day", "--fast", "--quiet", "--device", "cpu", "--out", out)
    table.unlink()


def run_models(out: Path, options: argparse.Namespace) -> None:
    import numpy as np
    import torch

    import labeltide as lt

    torch.set_num_threads(1)
    study = lt.make_sequences(n=60, n_steps=30, n_features=4, n_classes=3, stay=0.9, random_state=0)
    X, labels = np.asarray(study.features), lt.corrupt(study.labels[..., 0], lt.make_noise("growth", 3, 30), 0)
    for name in MODELS:
        as_given = {"standardize": False} if "standardize" in lt.METHODS[name]().get_params() else {}  # as of old
        model = lt.METHODS[name](epochs=5, device="cpu", random_state=0, **as_given).fit(X, labels)
        model.save(out / name)
        _keep_predictions(lt.load(out / name), X, labels, out / f"{name}.npz")
        if options.models:
            _keep_predictions(lt.load(options.models / "models" / name), X, labels, out / f"{name}-of-other.npz")


def _keep_predictions(model: Any, X: Any, labels: Any, path: Path) -> None:
    import numpy as np

    arrays = {"proba": model.predict_proba(X), "predicted": model.predict(X), "noise": model.noise_matrices_}
    if hasattr(model, "audit"):
        arrays["quality"] = model.audit(X, labels).quality
    np.savez(path, **arrays)


JOBS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "study": run_study,
    "audit": run_audit,
    "parts": run_parts,
    "models": run_models,
}


def run(options: argparse.Namespace) -> None:
    for name in options.only or JOBS:
        out = options.folder / name
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        if name == "models":
            out.mkdir()
        started = time.monotonic()
        JOBS[name](out, options)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)


def numbers(path: Path) -> dict[str, Any]:
    """Everything that a file of results holds, by a name that says where."""
    import numpy as np
    import pyarrow.parquet as pq

    if path.suffix == ".json":
        return dict(_leaves(json.loads(path.read_text())))
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return dict(_leaves({record["key"]: record for record in records}))
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        return {name: table[name].combine_chunks().to_numpy(zero_copy_only=False) for name in table.column_names}
    if path.suffix == ".npz":
        return dict(np.load(path))
    if path.suffix == ".safetensors" or path.parent.name == "models":
        from safetensors import safe_open

        with safe_open(path, "numpy") as file:
            facts = {key: json.loads(text) for key, text in (file.metadata() or {}).items()}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return dict(_leaves(facts.get("labeltide", facts))) | tensors
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return {name: _numbers_or_texts([row[name] for row in rows]) for name in (rows[0] if rows else {})}
    return {"bytes": path.read_bytes()}


def _numbers_or_texts(cells: list[str]) -> Any:
    import numpy as np

    try:
        return np.array([float(cell) if cell else math.nan for cell in cells])
    except ValueError:
        return np.array(cells)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a JSON document by their path; a list of numbers is one value."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in IGNORED and not key.endswith("_seconds"):
                yield from _leaves(item, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{name}[{index}]")
    else:
        yield name, value


def difference(old: Any, new: Any) -> str | None:
    """How two values differ, or None where they are the same to the last bit."""
    import numpy as np

    if isinstance(old, str | bytes) or old is None or isinstance(new, str | bytes) or new is None:
        return None if old == new else f"{_short(old)} -> {_short(new)}"
    try:
        first, second = np.asarray(old), np.asarray(new)
    except ValueError:  # ragged
        return None if old == new else f"{_short(old)} -> {_short(new)}"
    if first.shape != second.shape:
        return f"shape {first.shape} -> {second.shape}"
    if first.dtype.kind in "biuf" and second.dtype.kind in "biuf":
        types = f"type {first.dtype} -> {second.dtype}; "
        if first.dtype == second.dtype or isinstance(old, int | float | list):  # JSON has one type of numbers
            types = ""
        same = (first == second) | ((first != first) & (second != second))
        if same.all():
            return f"{types}same values" if types else None
        apart = np.abs(first.astype(float) - second.astype(float))[~same]
        largest = math.inf if np.isnan(apart).any() else apart.max()
        if same.size == 1:
            return f"{_short(old)} -> {_short(new)}, by {largest:.3g}"
        return f"{types}{(~same).sum()} of {same.size} differ, by at most {largest:.3g}"
    same = np.array([a == b or (a != a and b != b) for a, b in zip(first.ravel(), second.ravel(), strict=True)], bool)
    if same.all():
        return None
    where = int(np.flatnonzero(~same)[0])
    return f"{(~same).sum()} of {same.size} differ: {_short(first.ravel()[where])} -> {_short(second.ravel()[where])}"


def _is_text(value: Any) -> bool:
    if isinstance(value, list) and value:
        return all(_is_text(item) for item in value)
    return isinstance(value, str) and not value.replace(".", "").isdigit()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."


def compare(old: Path, new: Path, most: int) -> int:
    """Print what differs; the number of differences."""
    total = 0
    for job in JOBS:
        if not (old / job).is_dir() or not (new / job).is_dir():
            print(f"{job}: not in both folders, not compared")
            continue
        found, words, values = [], [], 0
        files = {p.relative_to(root) for root in (old / job, new / job) for p in root.rglob("*") if p.is_file()}
        for file in sorted(files):
            if file.name in SKIPPED_FILES or file.name.startswith(".") or "-of-other" in file.name:
                continue
            if not (old / job / file).exists() or not (new / job / file).exists():
                found.append(f"{file}: only in {old if (old / job / file).exists() else new}")
                continue
            first, second = numbers(old / job / file), numbers(new / job / file)
            values += len(first)
            for name in [*first, *(name for name in second if name not in first)]:
                if name not in first or name not in second:
                    found.append(f"{file}: {name} only in {old if name in first else new}")
                elif (change := difference(first[name], second[name])) is not None:
                    (words if _is_text(first[name]) else found).append(f"{file}: {name}: {change}")
        for path in sorted((new / job).glob("*-of-other.npz")):  # models of the old version, read by the new one
            reference = numbers(old / job / path.name.replace("-of-other", ""))
            for name, value in numbers(path).items():
                values += 1
                if (change := difference(reference[name], value)) is not None:
                    found.append(f"{path.name}: {name}: {change}")
        print(f"{job}: {len(files)} files, {values} values, {len(found)} differ; {len(words)} texts differ")
        for kind in (found, words):
            for line in kind[:most]:
                print(f"  {line}")
            if len(kind) > most:
                print(f"  ... and {len(kind) - most} more")
        total += len(found)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="write the results of this version")
    running.add_argument("folder", type=Path)
    running.add_argument("--only", nargs="+", choices=list(JOBS), help="these jobs alone")
    running.add_argument("--rows", default="3e6", help="of the large table; above 2e6 it is read in parts")
    running.add_argument("--models", type=Path, help="the folder of another version, whose models are read as well")
    comparing = commands.add_parser("compare", help="list what differs between two folders")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--most", type=int, default=40, help="lines printed for each job")
    options = parser.parse_args()
    if options.command == "run":
        run(options)
    else:
        sys.exit(1 if compare(options.old, options.new, options.most) else 0)


if __name__ == "__main__":
    main()
