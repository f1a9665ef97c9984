"""Run fleets in sequence, or in parallel processes."""

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
from labeltide_bench.studies.plan import FleetPlan
from labeltide_bench.studies.run_fleet import run_fleet

Finished = tuple[FleetPlan, list[dict[str, Any]]]
OnStart = Callable[[str, int], OnEpochShare]  # what begins and how many runs it has


class FleetTask(NamedTuple):
    """A fleet with its data folder, checkpoint and device."""

    plan: FleetPlan
    data: Path
    checkpoint: Path
    device: str


def run_fleets(tasks: Sequence[FleetTask], n_processes: int, on_start: OnStart) -> Generator[Finished, None, None]:
    """Run all fleets and yield each with its records when it is finished."""
    if n_processes > 1 and len(tasks) > 1:
        yield from _side_by_side(tasks, min(n_processes, len(tasks)), on_start)
        return
    for task in tasks:
        with watch_epochs(on_start(task.plan.title, len(task.plan.runs))):
            records = run_fleet(*task)
        yield task.plan, records


def _side_by_side(tasks: Sequence[FleetTask], n_processes: int, on_start: OnStart) -> Generator[Finished, None, None]:
    """When a fleet fails, the finished and running ones are still yielded before its error is raised."""
    on_start(f"{len(tasks)} fleets in {n_processes} processes", 0)
    problem: BaseException | None = None
    with _pool(n_processes) as pool:
        waiting = {pool.submit(run_fleet, *task): task.plan for task in tasks}
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
    """Worker processes that end with this process: normally, on an error or Ctrl-C, and when it is killed."""
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
    """Ignore Ctrl-C, which the parent handles, and end when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
