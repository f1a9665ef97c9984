"""Faults of the machine that need a system of their own: a full disk, little memory, forks, one thread, no HOME.

    python bench/benchmarks/faults.py --out bench/results/faults

Each fault is one command in another process. Writes faults.json and faults.md: the exit code, the last line that was
said, and what was left in the folder. The full disk is a tmpfs of 1 MB, which needs root; it is left out elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kills import QUICK, make_table

FORK = """
import os, sys
import numpy as np
import labeltide as lt
X, y = np.random.default_rng(0).normal(size=(12, 6, 2)), np.random.default_rng(1).integers(0, 2, (12, 6))
fit = lambda: lt.METHODS["ignore"](epochs=2, hidden_size=4, random_state=0, device="cpu").fit(X, y).predict_proba(X)
child = os.fork()
if child == 0:
    np.save(sys.argv[1], fit())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(np.load(sys.argv[1]), fit())
print("the fit of a fork after the import has the same numbers")
"""


def run(code: str, words: list[str], limit: Callable[[], None] | None = None, **environment: str) -> tuple[int, str]:
    """Exit code and last line of a command."""
    result = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limit,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )
    messages = (result.stderr + result.stdout).strip().splitlines()
    if "Traceback (most recent call last):" in result.stderr:
        return result.returncode, f"TRACEBACK {messages[-1] if messages else ''}"
    return result.returncode, messages[-1] if messages else ""


def limit_memory(megabytes: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def audit(table: Path, out: Path) -> list[str]:
    return ["audit", str(table), "--out", str(out), "--device", "cpu", "--quiet"]


def full_disk(folder: Path, table: Path) -> dict[str, Any] | None:
    """An audit onto a disk of some kilobytes; then the same where there is room."""
    disk = folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        return None
    try:
        code, message = run(QUICK, audit(table, disk / "out"))
        left = sorted(str(path.relative_to(disk)) for path in disk.rglob("*") if path.is_file())
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        again, _ = run(QUICK, [*audit(table, disk / "out"), *(["--resume"] if left else [])])
        return {"code": code, "message": message, "left": left, "again": again}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def try_all(folder: Path) -> dict[str, Any]:
    table = make_table(folder / "study.parquet")
    found: dict[str, Any] = {"full disk": full_disk(folder, table)}

    def keep(name: str, result: tuple[int, str], out: Path | None = None) -> None:
        left = [] if out is None else sorted(path.name for path in out.parent.glob(f"*{out.name}*"))
        found[name] = {"code": result[0], "message": result[1], "left": left}
        print(name, found[name], flush=True)

    for megabytes in (1100, 1800):
        out = folder / f"memory{megabytes}"
        keep(f"address space of {megabytes} MB", run(QUICK, audit(table, out), limit_memory(megabytes)), out)
    keep("no HOME, no user", run(QUICK, audit(table, folder / "home"), HOME="/nowhere", USER="", LOGNAME=""))
    keep("fork after the import", run(FORK, [str(folder / "forked.npy")]))
    keep(
        "a terminal of ASCII",
        run(QUICK, ["simulate", str(folder / "größe.csv"), "--days", "1"], PYTHONIOENCODING="ascii"),
    )
    keep("no temporary folder of its own", run(QUICK, audit(table, folder / "tmp"), TMPDIR="/nowhere"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results/faults"))
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        found = try_all(Path(name))
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"seconds": round(time.perf_counter() - began), **found}, indent=1, ensure_ascii=False)
    text = text.replace(name, "FOLDER")
    (options.out / "faults.json").write_text(text + "\n", encoding="utf-8")
    lines = [
        "# Faults",
        "",
        "`python bench/benchmarks/faults.py`",
        "",
        "| fault | exit code | message | left |",
        "|---|--:|---|---|",
    ]
    for fault, entry in json.loads(text).items():
        if isinstance(entry, dict):
            message = entry["message"].replace("|", "/")
            lines.append(
                f"| {fault} | {entry['code']} | {message or 'nothing'} | {', '.join(entry['left']) or 'nothing'} |"
            )
    (options.out / "faults.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
