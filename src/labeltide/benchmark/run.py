"""Run a study: fleet after fleet, each finished run kept at once, whatever happens next."""

from __future__ import annotations

import multiprocessing
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import labeltide
from labeltide import _validation
from labeltide.benchmark.datasets import DatasetSpec, Split, load_dataset, missing_files
from labeltide.benchmark.measure import measure
from labeltide.benchmark.plan import FleetPlan, plan_fleets
from labeltide.benchmark.progress import study_bar
from labeltide.benchmark.records import append_records, drop_torn_line, read_records
from labeltide.benchmark.study import Study, told_noise
from labeltide.estimators import METHODS, fit_fleet
from labeltide.noise.corrupt import corrupt
from labeltide.training import watch_epochs, write_atomically

FORMAT = 1


def run_study(
    study: Study,
    data: str | Path,
    out: str | Path,
    *,
    jobs: int = 1,
    fleet_size: int = 64,
    device: str = "auto",
    verbose: bool = False,
) -> Path:
    """Run what is not yet recorded of a study and give back the folder of its records.

    Killed at any moment and called again, it goes on where it stopped: finished runs stay, the fleet in work goes on
    from its checkpoint, and the numbers are those of an undisturbed run.

    Parameters
    ----------
    study : as `read_study` gives it
    data : folder below which the study's files lie
    out : folder for `records.jsonl` and a copy of the study
        A folder that holds the records of another study is refused.
    jobs : processes side by side
    fleet_size : most runs trained together
    """
    data, out = Path(data), Path(out)
    _validation.check_number("jobs", jobs, 1, whole=True)
    _validation.check_number("fleet_size", fleet_size, 1, whole=True)
    _check_files(study, data)
    _claim(study, out)
    done = {record["key"] for record in read_records(out)}
    fleets = [plan for plan in plan_fleets(study, fleet_size) if not all(run.key in done for run in plan.runs)]
    device = _validation.check_device(device)
    with study_bar([len(plan.runs) for plan in fleets], verbose) as bar:
        for plan, records in _run_all(fleets, data, out, device, jobs, bar.start):
            append_records(out, [record for record in records if record["key"] not in done])
            shutil.rmtree(_checkpoint(out, plan), ignore_errors=True)
            bar.finish(plan.title, len(plan.runs))
    shutil.rmtree(out / "unfinished", ignore_errors=True)
    return out


def _run_all(
    fleets: list[FleetPlan], data: Path, out: Path, device: str, jobs: int, on_start: Any
) -> Iterator[tuple[FleetPlan, list[dict[str, Any]]]]:
    if jobs == 1:
        for plan in fleets:
            with watch_epochs(on_start(plan.title, len(plan.runs))):
                records = run_fleet(plan, data, out, device)
            yield plan, records
        return
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    threads = max(1, torch.get_num_threads() // jobs)
    with ProcessPoolExecutor(jobs, context, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        futures = {pool.submit(run_fleet, plan, data, out, device): plan for plan in fleets}
        for future in as_completed(futures):
            yield futures[future], future.result()


def run_fleet(plan: FleetPlan, data: Path, out: Path, device: str) -> list[dict[str, Any]]:
    """Train all runs of a fleet and measure each."""
    spec, method = plan.runs[0].dataset, plan.runs[0].method
    split = _load(spec, data)
    settings = method.settings_for(spec)
    told = settings.pop("noise", None)
    train = split.train
    clean = train.labels[..., 0]
    noises = [run.noise.make(len(train.classes), train.features.shape[1]) for run in plan.runs]
    labels = [
        corrupt(clean, noise, np.random.default_rng(run.noise_seed))
        for run, noise in zip(plan.runs, noises, strict=True)
    ]
    shared: dict[str, Any] = {**settings, "device": device, "checkpoint": _checkpoint(out, plan)}
    estimators = [METHODS[method.method](random_state=run.draw, **shared) for run in plan.runs]
    if told is not None:
        for estimator, noise in zip(estimators, noises, strict=True):
            estimator.set_params(noise=told_noise(told, np.asarray(noise)))
    started = time.perf_counter()
    fit_fleet(estimators, train.features, labels, clock=train.clock, lengths=train.lengths)
    seconds = (time.perf_counter() - started) / len(plan.runs)
    origin = {"settings": settings, "device": _device_name(device), "fleet": len(plan.runs), **_origin()}
    return [
        {
            "format": FORMAT,
            "key": run.key,
            "dataset": spec.name,
            "dataset_info": _about(spec, split),
            "shape": run.noise.shape,
            "level": dict(run.noise.level),
            "variant": run.noise.variant,
            "method": method.label,
            "draw": run.draw,
            "seed": run.draw,
            **origin,
            "seconds": round(seconds, 4),
            **measure(estimator, noise, recorded, split),
        }
        for run, estimator, noise, recorded in zip(plan.runs, estimators, noises, labels, strict=True)
    ]


_loaded: dict[tuple[str, Path], Split] = {}


def _load(spec: DatasetSpec, data: Path) -> Split:
    """Load a data set once in each process."""
    key = (repr(spec), data)
    if key not in _loaded:
        _loaded[key] = load_dataset(spec, data)
    return _loaded[key]


def _check_files(study: Study, data: Path) -> None:
    missing = {name for spec in study.datasets for name in missing_files(spec, data)}
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} files of the study are not below {data}: {', '.join(sorted(missing))}. "
            "Point --data at their folder, or get them with 'labeltide datasets fetch NAME'."
        )


def _claim(study: Study, out: Path) -> None:
    """Lay a copy of the study beside its results; refuse to mix it with another."""
    copy = out / "study.toml"
    if copy.exists() and copy.read_text(encoding="utf-8") != study.text:
        raise ValueError(f"{out} holds the results of another study, or of another version of it. Choose a new folder.")
    drop_torn_line(out / "records.jsonl")
    write_atomically(copy, study.text.encode())


def _checkpoint(out: Path, plan: FleetPlan) -> Path:
    return out / "unfinished" / plan.digest


def _about(spec: DatasetSpec, split: Split) -> dict[str, Any]:
    n_train, n_steps, n_features = split.train.features.shape
    names = list(spec.labels) or [str(name) for name in split.train.classes]
    return {
        "faithful": spec.faithful,
        "note": spec.note,
        "split": spec.split_name,
        "n_train": n_train,
        "n_test": len(split.test),
        "n_steps": n_steps,
        "n_features": n_features,
        "classes": names,
    }


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"


@cache
def _origin() -> dict[str, Any]:
    """The versions and the commit that produced a record."""
    folder = Path(labeltide.__file__).parent
    answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    versions = {
        "labeltide": labeltide.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
    return {"versions": versions, "commit": answer.stdout.strip() or None}
