"""Where independent work runs: in this process, in several processes of this machine, or on a Ray cluster.

A task is large: a part of a fleet, or a range of row groups. One whose worker dies is tried again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from labeltide._files import import_extra

Task = Callable[[Any, Any], Any]  # of what is shared and of its own part
Result = tuple[int, Any]  # the number of the task, and what it gave
TRIES = 3
PATIENCE = 5.0  # seconds for a connection to a cluster
CLIENT_PORT = 10001  # of ray:// addresses that name none


class Workers:
    """Runs tasks one after another, in this process; subclasses run them elsewhere."""

    count = 1  # tasks at a time

    def run(self, task: Task, shared: Any, parts: Sequence[Any]) -> Iterator[Result]:
        """Call ``task(shared, part)`` for every part; yields (number of the part, result) as they finish."""
        for number, part in enumerate(parts):
            yield number, task(shared, part)

    def close(self, kill: bool = False) -> None:
        """End what was started; with `kill` in the middle of its tasks."""


class Processes(Workers):
    """Several processes of this machine, which end with this one however it ends."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ProcessPoolExecutor | None = None

    def run(self, task: Task, shared: Any, parts: Sequence[Any]) -> Iterator[Result]:
        """When a task fails, those that finish beside it are still yielded before its error is raised."""
        left, tries, problem = set(range(len(parts))), 0, None
        threads = max(1, usable_cores() // max(1, min(self.count, len(parts))))  # few tasks share all cores
        while left and problem is None:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
                self._pool = ProcessPoolExecutor(self.count, context, initializer=_start_worker)
            waiting = {
                self._pool.submit(_run_with_threads, threads, task, shared, parts[number]): number
                for number in sorted(left)
            }
            for future in as_completed(waiting):
                error = CancelledError() if future.cancelled() else future.exception()
                if error is None:
                    left.discard(waiting[future])
                    yield waiting[future], future.result()
                elif not isinstance(error, BrokenProcessPool | CancelledError) and problem is None:
                    problem = error
                    for other in waiting:
                        other.cancel()
            if left and problem is None:
                tries += 1
                self.close()
                if tries == TRIES:
                    problem = ChildProcessError(
                        f"A worker process died {TRIES} times; the machine may have run out of memory. Use fewer "
                        "workers."
                    )
        if problem is not None:
            raise problem

    def close(self, kill: bool = False) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        for child in list((pool._processes or {}).values()) if kill else ():
            child.terminate()
        pool.shutdown(cancel_futures=True)


class RayCluster(Workers):
    """The machines of a Ray cluster (Moritz and others 2018); nodes with GPUs give each task one."""

    def __init__(self, address: str) -> None:
        self._ray = import_extra("ray", "ray", "A cluster")
        self._ours = not self._ray.is_initialized()
        if self._ours:
            _check_reachable(address)
            known = {} if address == "local" else {"address": address}
            try:
                self._ray.init(**known, log_to_driver=False, configure_logging=False, include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise _no_cluster(address, str(error).splitlines()[0]) from None
        found = self._ray.cluster_resources()
        self._gpus = int(found.get("GPU", 0))
        self.count = max(1, self._gpus or int(found.get("CPU", 1)))

    def run(self, task: Task, shared: Any, parts: Sequence[Any]) -> Iterator[Result]:
        ray = self._ray
        remote = ray.remote(max_retries=TRIES, num_cpus=1, num_gpus=1 if self._gpus else 0)(_run_with_threads)
        stored = ray.put(shared)
        waiting = {remote.remote(1, task, stored, part): number for number, part in enumerate(parts)}
        try:
            while waiting:
                (done, *_), _ = ray.wait(list(waiting), num_returns=1)
                try:
                    result = ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # what the task itself raised
                except ray.exceptions.RayError as error:
                    first = str(error).splitlines()[0]
                    raise ChildProcessError(f"A Ray worker died {TRIES + 1} times: {first}") from None
                yield waiting.pop(done), result
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)

    def close(self, kill: bool = False) -> None:
        if self._ours:
            self._ray.shutdown()


_current: ContextVar[Workers | None] = ContextVar("labeltide workers", default=None)


def current_workers() -> Workers:
    """Where independent work runs now; this process unless `workers` named another."""
    return _current.get() or Workers()


@contextmanager
def workers(n: int | None = None, ray: str | None = None) -> Iterator[Workers]:
    """Run independent work of labeltide in several processes, or on a Ray cluster, while the context lasts.

    Numbers do not depend on it: the same seed gives the same results with any number of workers.

    Parameters
    ----------
    n : processes on this machine; by default one for each core
    ray : "auto" for the cluster that this machine belongs to, an address, or "local" for one of this machine alone
        Needs ``pip install 'labeltide[ray]'``.

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2)
    >>> with lt.workers(1):  # any number of processes gives the same
    ...     clf = lt.TideClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    """
    if n is not None and ray is not None:
        raise ValueError(f"workers takes a number of processes or a Ray cluster, not both. Got n={n!r}, ray={ray!r}.")
    if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
        raise ValueError(f"n must be a whole number of processes, at least 1. Got {n!r}.")
    count = usable_cores() if n is None else n
    engine = RayCluster(ray) if ray is not None else Processes(count) if count > 1 else Workers()
    token = _current.set(engine)
    try:
        yield engine
    except BaseException:
        engine.close(kill=True)
        raise
    finally:
        _current.reset(token)
        engine.close()


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_reachable(address: str) -> None:
    """Refuse an address at which no cluster listens: Ray itself goes on trying for minutes, except for "auto"."""
    named = os.environ.get("RAY_ADDRESS", "auto") if address == "auto" else address
    scheme, _, host_and_port = named.rpartition("://")
    if named in ("auto", "local") or scheme not in ("", "ray"):
        return
    try:
        parts = urlsplit(f"//{host_and_port}")
        host, port = parts.hostname, parts.port or (CLIENT_PORT if scheme else None)
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise ValueError(f"The address of a Ray cluster is auto, local, HOST:PORT or ray://HOST:PORT. Got {named!r}.")
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError as error:
        raise _no_cluster(named, f"no connection within {PATIENCE:g} s: {error.strerror or error}") from None


def _no_cluster(address: str, why: str) -> ValueError:
    return ValueError(
        f"There is no Ray cluster at {address!r} ({why}). Start one with `ray start --head`, or use ray='local'."
    )


def _run_with_threads(threads: int, task: Task, shared: Any, part: Any) -> Any:
    import torch

    torch.set_num_threads(threads)
    return task(shared, part)


def _start_worker() -> None:
    """Ignore Ctrl-C, which the parent handles, and end when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
