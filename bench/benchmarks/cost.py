"""What `audit_predictions` and `consensus` cost: seconds, processor time and peak memory, each in a process of its own.

    OMP_NUM_THREADS=2 python bench/benchmarks/cost.py --data DATA      # or LABELTIDE_DATA=DATA; --parts for some

predictions: 10^5 labels in memory. table-N: `lt.audit` of a Parquet table of N rows with the probabilities of a model.
salami: `compare_annotators` of 884 songs that two of eight people divided into sections, 69 labels, one step a second.
tokens: sentences like those of CoNLL, 43,000 tokens, of which 47 workers label five of 47 parts each; tokens-all: all
47 label all. workers: 1,000 workers with 200 labels each. Writes cost.jsonl.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import labeltide as lt

RESULT = Path(__file__).parents[1] / "results" / "scale" / "cost.jsonl"
TABLES = {f"table-1e{power}": 10**power for power in (5, 6, 7, 8)}
WRITTEN_AT_ONCE = 10**6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--parts", nargs="*", choices=[*PARTS, *TABLES], default=[*PARTS, *list(TABLES)[:3]])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        prepared = prepare(arguments.child, arguments.data)
        started, spent = time.perf_counter(), time.process_time()
        prepared()
        used = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - spent}
        used["MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return print(json.dumps({key: round(value, 1) for key, value in used.items()}))
    about = {"date": date.today().isoformat(), "cores": os.cpu_count(), "threads": os.environ.get("OMP_NUM_THREADS")}
    for part in arguments.parts:
        command = [sys.executable, __file__, "--data", str(arguments.data), "--child", part]
        load = round(os.getloadavg()[0], 1)
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        record = {"part": part, **json.loads(found), "load at start": load, **about}
        print(record, flush=True)
        with arguments.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def prepare(part: str, data: str) -> Callable[[], object]:
    """Make the input; the function that is returned is what is measured."""
    if part in TABLES:
        folder = Path(tempfile.mkdtemp())
        write_table(folder / "table.parquet", TABLES[part])
        return lambda: lt.audit(
            folder / "table.parquet", probabilities="p_a,p_b,p_c", label="label", sequence="night", out=folder / "out"
        )
    return PARTS[part](data)


def predictions(data: str) -> Callable[[], object]:
    chances, labels, _ = draw(1000, 100, 0)

    def run() -> tuple[object, ...]:
        audit = lt.audit_predictions(chances, labels)
        return audit.quality, audit.is_issue, audit.suggested, audit.share_wrong

    return run


def draw(n: int, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities of three classes by a model that is right in about 85 %, labels of growing noise, true labels."""
    rng = np.random.default_rng(seed)
    moves = rng.random((n, steps)) < 0.1
    truth = rng.integers(0, 3, (n, steps))
    last = np.maximum.accumulate(np.where(moves, np.arange(steps), 0), 1)
    truth = np.take_along_axis(truth, last, 1)
    logits = 1.7 * np.eye(3)[truth] + rng.gumbel(size=(n, steps, 3)) * 0.6
    chances = np.exp(1.5 * logits)
    labels = lt.corrupt(truth, lt.make_noise("growth", 3, steps, rate=0.2), random_state=seed)
    return (chances / chances.sum(-1, keepdims=True)).astype(np.float32), labels, truth


def write_table(path: Path, rows: int) -> None:
    steps, writer = 1000, None
    for number in range(0, rows, WRITTEN_AT_ONCE):
        n = min(WRITTEN_AT_ONCE, rows - number) // steps
        chances, labels, _ = draw(n, steps, number)
        columns = {"night": np.repeat(np.arange(n) + number // steps, steps), "label": labels.ravel()}
        columns |= {f"p_{name}": chances[..., index].ravel() for index, name in enumerate("abc")}
        table = pa.table(columns | {"label": np.array(["a", "b", "c"])[columns["label"]]})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def salami(data: str) -> Callable[[], object]:
    columns = parquet.read_table(Path(data) / "salami" / "spans.parquet").to_pydict()
    people: dict[int, set[str]] = {}
    for track, person in zip(columns["track"], columns["annotator"], strict=True):
        people.setdefault(track, set()).add(person)
    names = ("track", "annotator", "onset", "offset", "label")
    spans = [line for line in zip(*(columns[name] for name in names), strict=True) if len(people[line[0]]) == 2]
    folder = Path(tempfile.mkdtemp())
    with (folder / "spans.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["recording", "annotator", "onset", "duration", "label"])
        writer.writerows([track, who, onset, end - onset, label] for track, who, onset, end, label in spans)
    return lambda: lt.compare_annotators(folder / "spans.csv", out=folder / "out")


def crowd(rows: int, steps: int, workers: int, share: float, classes: int = 9) -> Callable[[], object]:
    """Workers label a share of the rows each; the first class is common and errors are a tenth."""
    rng = np.random.default_rng(0)
    truth = np.where(rng.random((rows, steps)) < 0.83, 0, rng.integers(0, classes, (rows, steps)))
    labels = np.full((rows, steps, workers), -1, dtype=np.int16)
    for worker in range(workers):
        chosen = rng.random(rows) < share
        wrong = rng.random((chosen.sum(), steps)) < rng.uniform(0.02, 0.25)
        labels[chosen, :, worker] = np.where(wrong, rng.integers(0, classes, wrong.shape), truth[chosen])
    return lambda: lt.consensus(labels.astype(np.int64), classes=range(classes))


PARTS: dict[str, Callable[[str], Callable[[], object]]] = {
    "predictions": predictions,
    "salami": salami,
    "tokens": lambda data: crowd(3256, 13, 47, 5 / 47),
    "tokens-all": lambda data: crowd(3256, 13, 47, 1.0),
    "workers": lambda data: crowd(2000, 20, 1000, 0.005),
}

if __name__ == "__main__":
    main()
