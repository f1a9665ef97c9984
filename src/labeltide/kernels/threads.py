"""How many threads kernels use, and how many torch's own operations around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from threadpoolctl import ThreadpoolController

_kernel_threads: ContextVar[int | None] = ContextVar("kernel_threads", default=None)


def kernel_threads() -> int:
    """How many threads a call of a compiled kernel may use."""
    return _kernel_threads.get() or torch.get_num_threads()


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Let torch use one thread for its own operations while compiled kernels use as many as it had.

    Around a fused kernel torch's operations are small. Shared among threads they gain little on a quiet machine, and
    on a busy one every operation waits for the slowest thread: a fit took ten times as long beside one other process.
    OpenMP keeps this number for each Python thread by itself (`torch.set_num_threads` would set it for the process), so
    fits in several Python threads neither disturb each other nor leave anything behind.
    """
    token = _kernel_threads.set(kernel_threads())
    try:
        with _openmp().limit(limits=1):
            yield
    finally:
        _kernel_threads.reset(token)


@cache
def _openmp() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="openmp")
