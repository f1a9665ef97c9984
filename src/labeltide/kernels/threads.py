"""Thread counts: of the compiled kernels, and of the OpenMP pool that torch's operations use around them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import torch
from threadpoolctl import ThreadpoolController

_kernel_threads: ContextVar[int | None] = ContextVar("kernel_threads", default=None)


def kernel_threads() -> int:
    """The largest number of threads for a call of a compiled kernel."""
    return _kernel_threads.get() or torch.get_num_threads()


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Limit torch's operations to one thread while compiled kernels use as many as torch had; also a decorator.

    Around a fused kernel torch's operations are small. Threads speed them up little on an idle machine, and on a busy
    machine every operation waits for the slowest thread: a fit took ten times as long beside one other process.
    OpenMP keeps this number per Python thread (`torch.set_num_threads` would set it for the process), so fits in
    several Python threads do not affect each other, and the number is restored at the end. MKL follows OpenMP's number
    only until `torch.set_num_threads` is called, so that MKL's own number for this Python thread is set as well.
    """
    token = _kernel_threads.set(kernel_threads())
    set_for_products = _mkl_local()
    before = set_for_products(1)
    try:
        with _openmp().limit(limits=1):
            yield
    finally:
        set_for_products(before)
        _kernel_threads.reset(token)


@cache
def _openmp() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="openmp")


@cache
def _mkl_local() -> Callable[[int], int]:
    """MKL's function that sets the number of threads of this Python thread and gives back the one before."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu*")):
        function = getattr(ctypes.CDLL(str(path)), "MKL_Set_Num_Threads_Local", None)
        if function is not None:
            return function
    return lambda threads: 0  # a torch without MKL
