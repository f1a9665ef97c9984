"""The compiled library: found where setup built it for this processor, called from as many threads as torch has.

Where there was no compiler `library` gives None, and torch does the same work with its own operations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch
from torch import Tensor

_kept_threads: ContextVar[int | None] = ContextVar("kept_threads", default=None)
LIBRARIES = {"AVX512": ("avx512", "avx2", "plain"), "AVX2": ("avx2", "plain")}  # best first


@cache
def library() -> ctypes.CDLL | None:
    """The compiled library for this processor, or None."""
    folder = Path(__file__).parent
    for name in LIBRARIES.get(torch.backends.cpu.get_cpu_capability(), ("plain",)):
        for suffix in EXTENSION_SUFFIXES:
            path = folder / f"_native_{name}{suffix}"
            if path.exists():
                try:
                    return ctypes.CDLL(str(path))
                except OSError:  # built for another system
                    continue
    return None


def run(name: str, task: ctypes.Structure, items: int) -> None:
    """Share the items of a task among the library's own threads; ctypes lets go of Python's lock meanwhile."""
    compiled = library()
    assert compiled is not None
    if compiled.labeltide_run(
        _kernel(compiled, name), ctypes.byref(task), ctypes.c_int64(items), ctypes.c_int64(threads())
    ):
        raise MemoryError(f"Not enough memory for {name}.")


@cache
def _kernel(compiled: ctypes.CDLL, name: str) -> ctypes.c_void_p:
    return ctypes.cast(getattr(compiled, name), ctypes.c_void_p)


def pointer(tensor: Tensor | None) -> int | None:
    """The address of a tensor's first value, for a field of a task."""
    return None if tensor is None else tensor.data_ptr()


class Sum(ctypes.Structure):
    """The parts of each member, to be summed in their order: the same bits on any number of threads."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "count", "size", "stride")),
        *((name, ctypes.c_void_p) for name in ("parts", "sums")),
    ]


def sum_parts(parts: Tensor) -> Tensor:
    """Sum (members, count, size) over its second axis."""
    members, count, size = parts.shape
    sums = parts.new_empty(members, size)
    run("labeltide_sum", Sum(members, count, size, size, pointer(parts), pointer(sums)), members)
    return sums


def threads() -> int:
    """How many threads a call may use."""
    return _kept_threads.get() or torch.get_num_threads()


@contextmanager
def all_threads_to_ourselves() -> Iterator[None]:
    """Let torch use one thread for its own operations while our calls use as many as it had.

    Around a fused kernel torch's operations are small. Shared among threads they gain little on a quiet machine, and
    on a busy one every operation waits for the slowest thread: a fit took ten times as long beside one other process.
    """
    before = torch.get_num_threads()
    token = _kept_threads.set(threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _kept_threads.reset(token)
