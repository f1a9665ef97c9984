"""The last pass of a large audit alone: flags, reasons, labels.parquet, issues.parquet and issues.csv, several times.

    python bench/benchmarks/last_pass.py --rows 3e6 --repeats 3 --threads 2

A simulated study is audited in parts. Where the audit would write its results, they are written again and again from
the same judged parts. Prints, for each time, seconds of the clock, processor seconds of the process and of the thread
that writes, all for a million rows, and the digests of the files.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from labeltide.auditing import reading, run
from labeltide.auditing.run import audit
from labeltide.data.studies import write_large_study

FILES = ("labels.parquet", "issues.parquet", "issues.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=3e6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="of the networks: cpu or cuda")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    pa.set_cpu_count(arguments.threads)
    reading.MAX_ROWS = 0  # every table is read in parts
    run.finish = repeated(run.finish, arguments.repeats)
    with tempfile.TemporaryDirectory() as name:
        table = Path(name) / "study.parquet"
        write_large_study(table, int(arguments.rows))
        audit(table, out=Path(name) / "out", device=arguments.device, fast=True)


def repeated(finish: Any, repeats: int) -> Any:
    """The function that writes results, called as often; the last of them stay."""

    def finish_again(job: Any, flags: Any, totals: Any, draft: Path, *more: Any, **options: Any) -> None:
        millions = job.layout.n_labels / 1e6
        for _ in range(repeats):
            shutil.rmtree(draft)
            draft.mkdir()
            fresh, began = copy.deepcopy(totals), _clocks()
            finish(job, flags, fresh, draft, *more, **options)
            spent = [(end - start) / millions for start, end in zip(began, _clocks(), strict=True)]
            digests = [hashlib.md5((draft / name).read_bytes()).hexdigest()[:8] for name in FILES]
            print("clock {:.3f}, processor {:.3f}, writing thread {:.3f} s a million;".format(*spent), *digests)
        vars(totals).update(vars(fresh))

    return finish_again


def _clocks() -> tuple[float, float, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.monotonic(), usage.ru_utime + usage.ru_stime, time.thread_time()


if __name__ == "__main__":
    main()
