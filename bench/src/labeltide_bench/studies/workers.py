"""Run fleets in sequence, or side by side: in processes of this machine or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from labeltide._workers import Workers, current_workers, workers
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
    """Run all fleets and yield each with its records when it is finished.

    Side by side where there are several processes, or within `labeltide.workers`. When a fleet fails, those that
    finish beside it are still yielded before its error is raised.
    """
    side_by_side = n_processes > 1 or current_workers().count > 1
    if not side_by_side or len(tasks) < 2:
        for task in tasks:
            with watch_epochs(on_start(task.plan.title, len(task.plan.runs))):
                records = run_fleet(*task)
            yield task.plan, records
        return
    with _engine(min(n_processes, len(tasks))) as engine:
        on_start(f"{len(tasks)} fleets by {engine.count} workers", 0)
        try:
            for number, records in engine.run(_run_task, None, tasks):
                yield tasks[number].plan, records
        except ChildProcessError as error:
            raise ChildProcessError(
                "A worker process died; the machine may have run out of memory. Finished runs are kept: start again "
                "to go on, with fewer --jobs or a smaller --fleet-size."
            ) from error


def _engine(n_processes: int) -> AbstractContextManager[Workers]:
    """The workers of the context, or processes of our own."""
    return nullcontext(current_workers()) if current_workers().count > 1 else workers(n_processes)


def _run_task(_: None, task: FleetTask) -> list[dict[str, Any]]:
    return run_fleet(*task)
