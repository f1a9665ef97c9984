"""Kills at random moments: an audit, a study, a prediction and a review go on and end with the same bytes.

    python bench/benchmarks/kills.py --kills 30 --kinds audit,bench,predict,review

Each kind runs once undisturbed. Then its process is killed (SIGKILL) after a random share of that time, again and
again; the same command goes on (an audit with --resume) until it ends. Files are compared byte by byte, but for the
times of day, durations and commits in audit.json and in records. Adds to kills.json and kills.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import review_kills

KINDS = ("audit", "bench", "predict", "review")
TIMES = ("created", "seconds", "finished", "date", "command", "commit")  # somebody may commit in between
STUDY = """draws = 2
[datasets.toy]
simulate = { n = 14, n_steps = 6, n_features = 2, stay = 0.9 }
settings = { epochs = 40, batch_size = 6, hidden_size = 4 }
[[noise]]
shape = "mixed"
rates = [0.2, 0.3]
[methods.ignore]
[methods.plugin]
"""
QUICK = (
    "from labeltide.auditing import fitting; fitting.EPOCHS, fitting.HIDDEN_SIZE = 4, 8; "
    "from labeltide.training.state import Checkpoint; Checkpoint.__init__.__defaults__ = (0.0,); "
    "from labeltide.cli import main; main()"
)


@dataclass
class Trial:
    """One kind of command: how it starts and goes on, what it leaves, and what happened to it."""

    kind: str
    start: list[str]
    go_on: list[str]
    result: Callable[[], dict[str, bytes]]  # the files of a whole result; nothing where there is none
    clear: Callable[[], None]
    kills: int = 0
    ends: int = 0
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0


def command(words: list[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    log = open(os.devnull, "wb")  # noqa: SIM115  (the child keeps it)
    return subprocess.Popen([sys.executable, "-c", QUICK, *words], stdout=log, stderr=subprocess.PIPE, env=environment)


def finish(words: list[str]) -> str:
    """Run a command to its end; what it said where it failed."""
    child = command(words)
    message = child.communicate(timeout=600)[1].decode()
    return "" if child.returncode == 0 else message or f"exit code {child.returncode}"


def timeless(content: bytes) -> bytes:
    """JSON, or JSON lines in any order, without the time of day and durations."""
    lines = [json.loads(line) for line in content.splitlines()] if content.count(b"\n{") else [json.loads(content)]
    kept = [{name: value for name, value in line.items() if name not in TIMES} for line in lines]
    return json.dumps(sorted(kept, key=lambda line: str(line.get("key"))), sort_keys=True).encode()


def folder_result(folder: Path, names: tuple[str, ...]) -> Callable[[], dict[str, bytes]]:
    def read() -> dict[str, bytes]:
        if not folder.exists():
            return {}
        content = {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}
        return {name: timeless(data) if ".json" in name else data for name, data in content.items()}

    return read


def remove(*paths: Path) -> Callable[[], None]:
    def clear() -> None:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)

    return clear


def make_table(path: Path) -> Path:
    random = np.random.default_rng(0)
    true = (np.cumsum(random.random((10, 15)) < 0.15, axis=1) + random.integers(2, size=(10, 1))) % 2
    wrong = random.random(true.shape) < 0.1
    columns = {
        "person": np.repeat([f"p{number}" for number in range(10)], 15),
        "minute": np.tile(np.arange(15), 10),
        "signal": (2 * true + random.normal(0, 0.5, true.shape)).ravel(),
        "label": np.array(["rest", "walk"])[(true ^ wrong).ravel()],
    }
    parquet.write_table(pa.table(columns), path)
    return path


def make_trials(folder: Path) -> dict[str, Trial]:
    table, study = make_table(folder / "study.parquet"), folder / "toy.toml"
    study.write_text(STUDY)
    out, unfinished = folder / "out", folder / ".out-unfinished"
    words = ["audit", str(table), "--out", str(out), "--quiet", "--device", "cpu"]
    files = ("audit.json", "labels.parquet", "issues.csv", "noise.csv", "model/model.safetensors")
    audit = Trial("audit", words, [*words, "--resume"], folder_result(out, files), remove(out, unfinished))
    records = folder / "records"
    words = ["bench", str(study), "--out", str(records), "--device", "cpu", "--fleet-size", "2"]
    bench = Trial("bench", words, words, folder_result(records, ("records.jsonl", "study.toml")), remove(records))
    reviewed, new = folder / "reviewed", folder / "new.parquet"
    words = ["audit", str(table), "--out", str(reviewed), "--quiet", "--device", "cpu"]
    message = finish(words)
    assert not message, message
    words = ["predict", str(reviewed), str(table), "--out", str(new), "--device", "cpu"]
    predict = Trial("predict", words, words, lambda: {"new": new.read_bytes()} if new.exists() else {}, remove(new))
    return {trial.kind: trial for trial in (audit, bench, predict)}


def run_trial(trial: Trial, kills: int, random: np.random.Generator, end: float) -> None:
    """Kill until there were enough kills; every end is compared with the undisturbed one."""
    trial.clear()
    began = time.perf_counter()
    messages = finish(trial.start)
    assert not messages, messages
    trial.seconds, expected = time.perf_counter() - began, trial.result()
    while trial.kills < kills and time.monotonic() < end:
        trial.clear()
        words = trial.start
        for _ in range(int(random.integers(1, 4))):
            if trial.kills < kills and kill_once(trial, words, random):
                trial.kills += 1
                words = trial.go_on
        messages = "" if trial.kind == "predict" and trial.result() else finish(words)  # it writes new files alone
        if "no interrupted audit" in messages:  # it was killed before anything was begun, or after its end
            messages = finish(trial.start)
        trial.ends += 1
        if messages:
            trial.differences.append(messages[-300:])
        elif trial.result() != expected:
            names = [name for name, data in expected.items() if trial.result().get(name) != data]
            trial.differences.append(f"differs in {names}")


def review_trial(folder: Path, kills: int) -> Trial:
    """Decisions over HTTP while the server is killed; every decision must be there once (`review_kills.py`)."""
    review_kills.KILLS, review_kills.DECISIONS = kills, 20 * kills + 60
    began = time.perf_counter()
    found = review_kills.decide_through_kills(review_kills.make_audit(folder / "served", 20, 500))
    messages = [f"{found['lost']} lost, {found['doubled']} doubled"] if found["lost"] or found["doubled"] else []
    trial = Trial("review", [], [], dict, lambda: None, found["kills"], 1, messages)
    trial.seconds = time.perf_counter() - began
    return trial


def kill_once(trial: Trial, words: list[str], random: np.random.Generator) -> bool:
    child = command(words)
    try:
        child.wait(float(random.uniform(0.2, 0.9)) * trial.seconds)
        child.communicate()
        return False  # it had ended before
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return True


def keep(folder: Path, trial: Trial, seed: int) -> None:
    """Add a trial to kills.json, which holds those of earlier calls too, and write the page of all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "kills.json"
    runs = json.loads(path.read_text()) if path.exists() else []
    described = {name: getattr(trial, name) for name in ("kind", "kills", "ends", "differences")}
    runs.append({**described, "seconds": round(trial.seconds, 1), "seed": seed, "commit": head()})
    path.write_text(json.dumps(runs, indent=1) + "\n")
    (folder / "kills.md").write_text("\n".join(page_of(runs)) + "\n")


def head() -> str:
    message = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return message.stdout.strip()


def page_of(runs: list[dict[str, Any]]) -> list[str]:
    lines = ["# Kills at random moments", "", "`python bench/benchmarks/kills.py`, one line for each call and kind", ""]
    lines += ["| command | seed | kills | ends compared | ends that differ | seconds undisturbed (review: in all) |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    lines += [
        f"| {run['kind']} | {run['seed']} | {run['kills']} | {run['ends']} | {len(run['differences'])} | "
        f"{run['seconds']:.1f} |"
        for run in runs
    ]
    kills, ends = (sum(run[name] for run in runs) for name in ("kills", "ends"))
    return [*lines, f"| all | | {kills} | {ends} | {sum(len(run['differences']) for run in runs)} | |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results/faults"))
    parser.add_argument("--kills", type=int, default=30, help="of each kind of command")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60, help="after which nothing more is killed")
    options = parser.parse_args()
    random, end = np.random.default_rng(options.seed), time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as name:
        trials = make_trials(Path(name))
        for kind in options.kinds.split(","):
            if kind == "review":
                trial = review_trial(Path(name), options.kills)
            else:
                trial = trials[kind]
                run_trial(trial, options.kills, random, end)
            print(trial.kind, trial.kills, trial.ends, trial.differences, flush=True)
            keep(options.out, trial, options.seed)


if __name__ == "__main__":
    main()
