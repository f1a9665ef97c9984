"""Fleets one after the other, or side by side in several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from labeltide.training import OnEpochShare, watch_epochs
from labeltide_bench.studies.fleet import run_fleet
from labeltide_bench.studies.plan import FleetPlan

Finished = tuple[FleetPlan, list[dict[str, Any]]]
OnStart = Callable[[str, int], OnEpochShare]  # what begins and how many runs it has


class Job(NamedTuple):
    """A fleet and where it reads, saves itself and computes."""

    plan: FleetPlan
    data: Path
    checkpoint: Path
    device: str


def run_jobs(jobs: Sequence[Job], n_processes: int, on_start: OnStart) -> Generator[Finished, None, None]:
    """Run all and give each fleet with its records as soon as it is done."""
    if n_processes > 1 and len(jobs) > 1:
        yield from _side_by_side(jobs, min(n_processes, len(jobs)), on_start)
        return
    for job in jobs:
        with watch_epochs(on_start(job.plan.title, len(job.plan.runs))):
            records = run_fleet(*job)
        yield job.plan, records


def _side_by_side(jobs: Sequence[Job], n_processes: int, on_start: OnStart) -> Generator[Finished, None, None]:
    """What is finished or under way when one fleet fails is still given, before its error is raised."""
    on_start(f"{len(jobs)} fleets in {n_processes} processes", 0)
    problem: BaseException | None = None
    with _pool(n_processes) as pool:
        waiting = {pool.submit(run_fleet, *job): job.plan for job in jobs}
        for future in as_completed(waiting):
            if future.cancelled():
                continue
            error = future.exception()
            if error is None:
                yield waiting[future], future.result()
            elif problem is None:
                problem = error
                for other in waiting:
                    other.cancel()
    if isinstance(problem, BrokenProcessPool):
        raise ChildProcessError(
            "A worker process died; the machine may have run out of memory. Finished runs are kept: start again to "
            "go on, with fewer --jobs or a smaller --fleet-size."
        ) from problem
    if problem is not None:
        raise problem


@contextmanager
def _pool(n_processes: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that end with us: at the end, on an error or Ctrl-C, and when we are killed."""
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    threads = max(1, torch.get_num_threads() // n_processes)
    pool = ProcessPoolExecutor(n_processes, context, initializer=_start_worker, initargs=(threads,))
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(threads: int) -> None:
    """Leave Ctrl-C to the parent, and end when the parent is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
