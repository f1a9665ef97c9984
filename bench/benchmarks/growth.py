"""What an audit costs as annotators and classes grow: seconds of each part and peak memory, one process for each case.

    python bench/benchmarks/growth.py --suite small --out bench/results/scale/growth.jsonl --tag before

Tables are simulated: true labels persist, features are normal around the mean of their class, and one label in ten is
wrong at the start of a sequence and one in four at its end. Every record has the wall and CPU time of the whole audit,
of its stages and of the functions in `PARTS`, the peak resident memory, and the load of the machine before.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

STEPS = 100  # of a sequence
PARTS = (  # functions whose time is kept, where they are called from; nested ones count in both
    "labeltide.estimators.tide:label_chain",
    "labeltide.estimators.tide:cross_fit",
    "labeltide.estimators.tide:join_evidence",
    "labeltide.estimators.tide:choose_noise",
    "labeltide.estimators.tide:distill",
    "labeltide.auditing.fitting:judge",
    "labeltide.auditing.fitting:infer",
    "labeltide.inference.audit:audit_labels",
    "labeltide.estimators.tide:estimate_annotators",
    "labeltide.estimators.tide:diagnose",
    "labeltide.estimators.tide:judge_temporality",
    "labeltide.inference.temporality:change_tests",
    "labeltide.inference.temporality:likelihood_ratio_test",
)


class Case(NamedTuple):
    """The size of a table."""

    rows: int
    classes: int
    annotators: int
    fast: bool = False

    @property
    def name(self) -> str:
        size = f"{self.rows} rows, {self.classes} classes, {self.annotators} annotators"
        return f"{size}, fast" if self.fast else size


SUITES = {
    "small": [*(Case(10_000, 3, n) for n in (1, 2, 4, 8, 12)), *(Case(10_000, n, 1) for n in (6, 12, 18, 25))],
    "annotators": [Case(100_000, 3, n) for n in (1, 2, 4, 8, 12)],
    "classes": [Case(300_000, n, 1) for n in (3, 6, 12, 18, 25)],
    "few": [Case(1_200, 25, 1), Case(1_800, 20, 1), Case(1_800, 100, 1), Case(1_800, 127, 1)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, help="the cases to run")
    parser.add_argument("--case", help="one case: ROWS,CLASSES,ANNOTATORS or ROWS,CLASSES,ANNOTATORS,fast")
    parser.add_argument("--out", type=Path, default=Path("bench/results/scale/growth.jsonl"))
    parser.add_argument("--tag", default="now", help="a word kept with each record, such as before or after")
    parser.add_argument("--limit", type=float, default=500.0, help="seconds after which a case is given up")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cases = SUITES[arguments.suite] if arguments.suite else [read_case(arguments.case)]
    if arguments.inside:
        print(json.dumps(measure(cases[0])))
        return
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for case in cases:
        record = {"tag": arguments.tag, "case": case.name, **run_apart(case, arguments.limit)}
        record["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        with arguments.out.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)


def read_case(text: str) -> Case:
    """From the words of the command line."""
    rows, classes, annotators, *fast = text.split(",")
    return Case(int(float(rows)), int(classes), int(annotators), bool(fast))


def run_apart(case: Case, limit: float) -> dict[str, Any]:
    """The record of a case from a process of its own; the exit code and the last words where it fails."""
    words = [sys.executable, __file__, "--inside", "--case", ",".join(map(str, case[:3])) + ",fast" * case.fast]
    load = os.getloadavg()[0]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"load": load, "unfinished": limit}
    if done.returncode:
        return {"load": load, "exit_code": done.returncode, "error": done.stderr.strip()[-400:]}
    return {"load": load, **json.loads(done.stdout.splitlines()[-1])}


def measure(case: Case) -> dict[str, Any]:
    """Audit a simulated table; seconds of the whole, of stages and of parts."""
    import labeltide as lt

    warnings.simplefilter("ignore")
    table = simulate(case)
    spent: dict[str, float] = {}
    for part in PARTS:
        watch(part, spent)
    labels = [name for name in table.column_names if name.startswith("label")]
    start, cpu = time.perf_counter(), time.process_time()
    options: dict[str, Any] = {"fast": True} if case.fast else {}
    result = lt.audit(table, sequence="sequence", time="time", label=labels, **options)
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "cpu": round(time.process_time() - cpu, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        "stages": {name: round(value, 1) for name, value in result.summary["seconds"].items()},
        "parts": {name: round(value, 1) for name, value in spent.items()},
        "messages": result.summary["table"]["messages"],
    }


def simulate(case: Case, seed: int = 0) -> pa.Table:
    """A table with the columns sequence, time, x0 to x7 and one column of labels for each annotator."""
    generator = np.random.default_rng(seed)
    steps = min(STEPS, max(10, case.rows // 40))
    n_rows, moment = -(-case.rows // steps), np.arange(steps) / (steps - 1)
    stays = generator.random((n_rows, steps)) < 0.9
    truth = generator.integers(case.classes, size=(n_rows, steps))
    for t in range(1, steps):
        truth[:, t] = np.where(stays[:, t], truth[:, t - 1], truth[:, t])
    centres = 1.5 * generator.normal(size=(case.classes, 8))
    features = centres[truth] + generator.normal(size=(n_rows, steps, 8))
    columns: dict[str, Any] = {
        "sequence": np.repeat(np.arange(n_rows), steps),
        "time": np.tile(np.arange(steps), n_rows),
    }
    columns |= {f"x{i}": features[..., i].ravel().round(4) for i in range(8)}
    for annotator in range(case.annotators):
        wrong = generator.random(truth.shape) < (0.1 + 0.15 * moment) * (0.5 + annotator / max(1, case.annotators - 1))
        other = (truth + generator.integers(1, case.classes, size=truth.shape)) % case.classes
        names = np.array([f"class {i:03d}" for i in range(case.classes)])
        columns[f"label_{annotator:02d}"] = names[np.where(wrong, other, truth)].ravel()
    return pa.table(columns).slice(0, case.rows)


def watch(part: str, spent: dict[str, float]) -> None:
    """Add up the time that a function of a module takes."""
    module, name = part.split(":")
    index = importlib.import_module(module)
    function: Callable[..., Any] = getattr(index, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - start

    setattr(index, name, timed)


if __name__ == "__main__":
    main()
