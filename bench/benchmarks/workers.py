"""Overhead of a task, and speed-up of independent fits, in processes and on a Ray cluster of this machine.

    python bench/benchmarks/workers.py --workers 2      # bench/results/scale/workers.json

A task that does nothing, with 8 MB that all tasks share, is timed 200 times. Then eight independent fits of `tide` run
in one process, which may use all cores, and in as many workers as asked for; predictions must be the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import labeltide as lt
from labeltide._workers import Workers

RESULTS = Path(__file__).parents[1] / "results" / "scale" / "workers.json"
TASKS, FITS = 200, 8


def nothing(shared: np.ndarray, part: int) -> int:
    """A task whose time is all overhead."""
    return part + len(shared) * 0


def fit(shared: tuple[np.ndarray, np.ndarray], part: int) -> bytes:
    """One independent fit; its predictions."""
    features, labels = shared
    fitted = lt.TideClassifier(epochs=15, random_state=part, device="cpu").fit(features, labels)
    return bytes(fitted.predict(features).tobytes())


def overhead(workers: Workers) -> float:
    """Milliseconds a task, after a first round that starts the workers."""
    shared = np.zeros(1_000_000)
    list(workers.run(nothing, shared, range(4)))
    started = time.perf_counter()
    list(workers.run(nothing, shared, range(TASKS)))
    return round(1000 * (time.perf_counter() - started) / TASKS, 2)


def speed(workers: Workers, shared: tuple[np.ndarray, np.ndarray]) -> tuple[float, list[bytes]]:
    """Seconds of all fits, and what they predict."""
    list(workers.run(nothing, np.zeros(1), range(4)))
    started = time.perf_counter()
    results = dict(workers.run(fit, shared, range(FITS)))
    return time.perf_counter() - started, [results[number] for number in range(FITS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    study = lt.make_sequences(300, 50, 8, stay=0.9, random_state=0)
    labels = lt.corrupt(study.clean_labels, lt.make_noise("growth", 2, 50, 0.3), random_state=0)
    shared = (study.features, labels)
    ways: dict[str, dict[str, Any]] = {
        "this process": {"n": 1},
        "processes": {"n": arguments.workers},
        "ray": {"ray": "local"},
    }
    record: dict[str, Any] = {"workers": arguments.workers, "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    expected: list[bytes] = []
    for name, how in ways.items():
        with lt.workers(**how) as workers:
            waste = overhead(workers)
            timed = [speed(workers, shared) for _ in range(arguments.rounds)]
        expected = expected or timed[0][1]
        record[name] = {
            "milliseconds a task": waste,
            "seconds of eight fits": [round(seconds, 2) for seconds, _ in timed],
            "same bytes": all(results == expected for _, results in timed),
        }
    base = statistics.median(record["this process"]["seconds of eight fits"])
    for name in ("processes", "ray"):
        record[name]["speed-up"] = round(base / statistics.median(record[name]["seconds of eight fits"]), 2)
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
