"""Work on several chunks at a time with results in order, a bounded number of them waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from labeltide.kernels.threads import kernel_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def work_ahead(function: Callable[[Item], Result], items: Iterable[Item], most: int | None = None) -> Iterator[Result]:
    """The results of a function in the order of the items, computed on as many threads as torch has, or at most so."""
    threads = min(kernel_threads(), most or kernel_threads())
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(copy_context().run, function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
