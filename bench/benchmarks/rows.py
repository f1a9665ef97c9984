"""Audits and predictions of simulated studies by number of rows: seconds by stage, rate, peak memory.

Run it as ``python bench/benchmarks/rows.py --rows 1e5 1e6 1e7``. ``--rows 1e8`` took a quarter of an hour on two cores,
of which the audit took 496 s. ``--csv-folder 200`` audits the same rows from as many CSV files in shuffled order, and
``--kills 10`` kills the audit at as many random moments, resumes it, and compares the bytes of its results.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

import labeltide as lt
from labeltide.auditing import reading
from labeltide.data.studies import write_large_study

RECORDS = Path(__file__).parents[1] / "results" / "scale"
COMPARED = ("labels.parquet", "issues.parquet", "issues.csv", "noise.csv", "model/model.safetensors")
CHILD, DEVICE, WORKERS = "--child", "ROWS_DEVICE", "ROWS_WORKERS"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", type=float, default=[1e5, 1e6, 1e7])
    parser.add_argument("--work", type=Path, default=Path("rows-work"), help="folder for tables and results")
    parser.add_argument("--csv-folder", type=int, default=0, help="audit from as many CSV files in shuffled order")
    parser.add_argument("--kills", type=int, default=0, help="kill and resume as often")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--keep", action="store_true", help="keep tables and results")
    parser.add_argument(CHILD, nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return _child(*arguments.child)
    for rows in arguments.rows:
        record = measure(int(rows), arguments)
        name = f"rows-{int(rows)}{'-csv' if arguments.csv_folder else ''}{'-kills' if arguments.kills else ''}"
        name += "" if arguments.device == "cpu" else f"-{arguments.device}"
        name += f"-{arguments.workers}.json" if arguments.workers > 1 else ".json"
        RECORDS.mkdir(parents=True, exist_ok=True)
        (RECORDS / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(record, indent=1))


def measure(rows: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Simulate, audit and predict, each in a process of its own."""
    os.environ[DEVICE], os.environ[WORKERS] = arguments.device, str(arguments.workers)  # for the children
    work = arguments.work / str(rows)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    record: dict[str, Any] = {"rows": rows, "load at start": os.getloadavg()[0], "cores": os.cpu_count()}
    table = work / "study.parquet"
    record["simulate"] = _run("simulate", table, rows)
    shown: Path = table
    if arguments.csv_folder:
        shown = write_csv_files(table, work / "csv", arguments.csv_folder)
        record["csv files"] = arguments.csv_folder
    record["audit"] = _run("audit", shown, work / "out")
    record["audit"]["rows a second"] = rows / record["audit"]["seconds"]
    record["page megabytes"] = (work / "out" / "report.html").stat().st_size / 1e6
    record["labels megabytes"] = (work / "out" / "labels.parquet").stat().st_size / 1e6
    record["predict"] = _run("predict", work / "out", table, work / "predicted.parquet")
    record["predict"]["rows a second"] = rows / record["predict"]["seconds"]
    if arguments.kills:
        record["kills"] = kill_and_compare(shown, work, arguments.kills, record["audit"]["seconds"])
    if not arguments.keep:
        shutil.rmtree(work)
    return record


def write_csv_files(table: Path, folder: Path, count: int) -> Path:
    """The rows of a table in shuffled order in CSV files; each row group is spread over all files."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    sinks = [(folder / f"{number:04d}.csv").open("wb") for number in range(count)]
    file = parquet.ParquetFile(table, pre_buffer=False)
    for group in range(file.num_row_groups):
        rows = file.read_row_group(group)
        rows = rows.take(pa.array(generator.permutation(len(rows))))
        borders = np.linspace(0, len(rows), count + 1).astype(int)
        for sink, first, last in zip(sinks, borders[:-1], borders[1:], strict=True):
            csv.write_csv(rows.slice(first, last - first), sink, csv.WriteOptions(include_header=group == 0))
    for sink in sinks:
        sink.close()
    return folder


def kill_and_compare(table: Path, work: Path, count: int, seconds: float) -> dict[str, Any]:
    """Kill an audit at random moments, resume it until it ends, and compare its files with those of a whole one."""
    out, generator = work / "killed", random.Random(0)
    moments: list[float] = []
    while len(moments) < count:
        process = _start("audit", table, out, *(["resume"] if (work / ".killed-unfinished").exists() else []))
        wait = generator.uniform(1, max(2.0, 1.2 * seconds / count))
        try:
            process.wait(wait)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            moments.append(round(wait, 1))
    if not out.exists():
        subprocess.run(_command("audit", table, out, "resume"), check=True, capture_output=True)
    same = {name: (out / name).read_bytes() == (work / "out" / name).read_bytes() for name in COMPARED}
    return {"seconds before each": moments, "same bytes": same}


def _command(what: str, *words: object) -> list[str]:
    return [sys.executable, __file__, CHILD, what, *map(str, words)]


def _start(what: str, *words: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(_command(what, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _run(what: str, *words: object) -> dict[str, Any]:
    """What a child measured of itself."""
    done = subprocess.run(_command(what, *words), check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _child(what: str, *words: str) -> None:
    reading.MAX_ROWS = 0  # every table is read in parts
    device, workers = os.environ[DEVICE], int(os.environ[WORKERS])
    started = time.monotonic()
    stages: dict[str, Any] = {}
    if what == "simulate":
        write_large_study(Path(words[0]), int(words[1]))
    elif what == "predict":
        from labeltide.auditing.predict import predict_to_file

        predict_to_file(words[0], words[1], Path(words[2]), device=device)
    else:
        from labeltide.auditing.run import audit

        with lt.workers(workers):
            found = audit(words[0], out=Path(words[1]), device=device, resume="resume" in words)
        stages = {"stages": found.summary["seconds"], "issues": found.summary["issues"]["count"]}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    measured = {
        "seconds": time.monotonic() - started,
        "processor seconds": usage.ru_utime + usage.ru_stime,
        "peak gigabytes": usage.ru_maxrss / 2**20,
    }
    print(json.dumps(measured | stages))


if __name__ == "__main__":
    main()
