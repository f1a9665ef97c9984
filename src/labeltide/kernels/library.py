"""Run-time CPU dispatch: the variants of the compiled library that were built, that can run here, and the one in use.

Each variant is a shared object built from the same C files for one vector width: avx512, avx2, and plain, which needs
only the baseline of the processor family (SSE2 or NEON). Without a compiler at installation there are no variants, and
torch computes everything.
"""

from __future__ import annotations

import ctypes
import io
import os
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

KERNELS = ("gru", "network", "objective", "adam", "chain")  # implemented in C, each in the file of its name
TRITON_KERNELS = ("gru", "chain")
Backend = Literal["c", "triton", "torch"]

ENVIRONMENT = "LABELTIDE_KERNELS"
VARIANTS = ("avx512", "avx2", "plain")  # best first
NEEDS = {"avx512": 2, "avx2": 1, "plain": 0}  # the lowest level of `labeltide_processor`
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Library:
    """One variant, loaded and checked."""

    name: str
    compiled: ctypes.CDLL
    checks: dict[str, CheckResult]  # by kernel


@cache
def built() -> dict[str, ctypes.CDLL]:
    """The variants that setup built and that this system can load."""
    loaded, suffix = {}, ".dll" if os.name == "nt" else ".so"
    for name in VARIANTS:
        with suppress(OSError):  # not built, or for another system
            loaded[name] = ctypes.CDLL(str(FOLDER / f"labeltide_{name}{suffix}"))
    return loaded


@cache
def processor_level() -> int | None:
    """The vector width of this processor as a level of `NEEDS`; None where no variant was built."""
    return next((int(compiled.labeltide_processor()) for compiled in built().values()), None)


@cache
def runnable() -> tuple[str, ...]:
    """The built variants that this processor can run, best first."""
    level = processor_level()
    return tuple(name for name in built() if level is not None and NEEDS[name] <= level)


def requested() -> str | None:
    """The variant that LABELTIDE_KERNELS names; None where it names none and the best runnable one is used."""
    wanted = os.environ.get(ENVIRONMENT, "").strip().lower()
    if not wanted:
        return None
    if wanted not in (*VARIANTS, "torch"):
        raise ValueError(f"{ENVIRONMENT} must be one of: {', '.join(VARIANTS)}, torch. Got {wanted!r}.")
    if wanted != "torch" and wanted not in runnable():
        why = "this processor cannot run it" if wanted in built() else "it was not built here"
        raise ValueError(
            f"{ENVIRONMENT}={wanted} is not possible: {why}. This machine has: {', '.join((*runnable(), 'torch'))}."
        )
    return wanted


def active() -> Library | None:
    """The variant in use, or None where torch computes everything."""
    wanted = requested()
    if wanted == "torch" or not runnable():
        return None
    return load(wanted or runnable()[0])


@cache
def load(name: str) -> Library:
    """Load one variant and self-check its kernels; a kernel that fails is named in a warning and not used."""
    compiled = built()[name]
    library = Library(name, compiled, check_library(compiled))
    for kernel, result in library.checks.items():
        if not result.passed:
            warnings.warn(
                f"The compiled kernel {kernel!r} ({name}) does not compute what torch does on this machine: its "
                f"self-check is off by {result.difference:.2g}. labeltide uses torch in its place, slower and right. "
                "Please report it with the output of `labeltide doctor`.",
                RuntimeWarning,
                stacklevel=2,
            )
    return library


def run(name: str, task: ctypes.Structure, items: int) -> None:
    """Run a kernel on all items of a task with the active variant; ctypes releases the GIL meanwhile."""
    library = active()
    assert library is not None
    call(library.compiled, name, task, items, kernel_threads())


def pointer(tensor: Tensor | None) -> int | None:
    """The data pointer of a tensor, for a field of a task; None for None."""
    return None if tensor is None else tensor.data_ptr()


LINE_BYTES = 64  # bytes in a cache line, on which the memory of a case starts


class CheckResult(NamedTuple):
    """The result of the self-check of one kernel."""

    passed: bool
    difference: float  # the largest, relative to the largest value of its tensor
    seconds: float


def check_library(compiled: ctypes.CDLL) -> dict[str, CheckResult]:
    """The self-check of every kernel of a loaded library."""
    results: dict[str, CheckResult] = {}
    for case in read_cases():
        passed, worst, seconds = results.get(case.kernel, CheckResult(True, 0.0, 0.0))
        started = time.perf_counter()
        room = np.zeros(case.size + LINE_BYTES, np.uint8)
        memory = room[-room.ctypes.data % LINE_BYTES :][: case.size]
        for offset, values in case.inputs:
            memory[offset : offset + len(values)] = np.frombuffer(values, np.uint8)
        for stored in case.calls:
            task = ctypes.create_string_buffer(stored.task, len(stored.task))
            for position, offset in stored.pointers:
                ctypes.c_void_p.from_buffer(task, position).value = memory.ctypes.data + offset
            call(compiled, stored.function, task, stored.items, threads=2)
        for start, expected, tolerance in case.comparisons:
            computed = memory[start : start + expected.nbytes].view(expected.dtype)
            scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0.0)))
            difference = float(np.abs(computed - expected.astype(np.float64)).max(initial=0.0)) / scale
            worst = max(worst, difference if np.isfinite(difference) else np.inf)
            passed &= difference <= tolerance  # False where the difference is NaN
        results[case.kernel] = CheckResult(passed, worst, seconds + time.perf_counter() - started)
    return results


PATH = FOLDER / "cases.bin"
MAGIC = b"LTCASES1"
KINDS = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint8))
NAME_BYTES = 32


class Call(NamedTuple):
    """One kernel function, its task as bytes, and its pointers: (offset in the task, offset in the memory) each."""

    function: str
    items: int
    task: bytes
    pointers: list[tuple[int, int]]


class Comparison(NamedTuple):
    """Expected values of a part of the memory after the calls; the tolerance is relative to the largest of them."""

    offset: int
    expected: np.ndarray
    tolerance: float


@dataclass
class Case:
    """A memory of `size` bytes, its initial content, the calls and the comparisons.

    `tools/kernel_cases.py` writes the cases; the self-check and the C program `tools/kernels/replay.c` read them. All
    numbers are little-endian, and every part starts at a multiple of eight bytes.
    """

    name: str
    kernel: str
    size: int
    inputs: list[tuple[int, bytes]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)


def read_cases(path: Path = PATH) -> list[Case]:
    """All stored cases."""
    file = io.BytesIO(path.read_bytes())

    def take(size: int) -> bytes:
        return file.read(-(-size // 8) * 8)[:size]

    def numbers(count: int = 1) -> tuple[int, ...]:
        return struct.unpack(f"<{count}q", take(8 * count))

    def name() -> str:
        return take(NAME_BYTES).rstrip(b"\0").decode()

    if take(8) != MAGIC:
        raise ValueError(f"{path} does not hold kernel cases.")
    cases = []
    for _ in range(*numbers()):
        case = Case(name(), name(), numbers()[0])
        for _ in range(*numbers()):
            offset, size = numbers(2)
            case.inputs.append((offset, take(size)))
        for _ in range(*numbers()):
            function, (items, size) = name(), numbers(2)
            task = take(size)
            case.calls.append(Call(function, items, task, [numbers(2) for _ in range(*numbers())]))  # type: ignore[misc]
        for _ in range(*numbers()):
            offset, count, kind = numbers(3)
            (tolerance,) = struct.unpack("<d", take(8))
            expected = np.frombuffer(take(count * KINDS[kind].itemsize), KINDS[kind])
            case.comparisons.append(Comparison(offset, expected, tolerance))
        cases.append(case)
    return cases


def call(compiled: ctypes.CDLL, name: str, task: ctypes.Structure | ctypes.Array, items: int, threads: int) -> None:
    """Run a kernel on all items of a task, on at most `threads` threads of the compiled library."""
    kernel = ctypes.cast(getattr(compiled, name), ctypes.c_void_p)
    if compiled.labeltide_run(kernel, ctypes.byref(task), ctypes.c_int64(items), ctypes.c_int64(threads)):
        raise MemoryError(f"Not enough memory for {name}.")


_kernel_threads: ContextVar[int | None] = ContextVar("kernel_threads", default=None)


def kernel_threads() -> int:
    """The largest number of threads for a call of a compiled kernel."""
    return _kernel_threads.get() or torch.get_num_threads()


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Limit torch's operations to one thread while compiled kernels use as many as torch had; also a decorator.

    On a busy machine every small operation waits for the slowest thread: a fit took ten times as long beside one other
    process. OpenMP keeps this number per Python thread (`torch.set_num_threads` would set it for the process). MKL
    follows it only until `torch.set_num_threads` is called, so that MKL's own number for this thread is set as well.
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


def choose(kernel: str, device: torch.device) -> Backend:
    """The backend of a kernel on a device; the environment variable LABELTIDE_KERNELS overrides the choice."""
    if device.type == "cpu":
        loaded = active()
        return "c" if loaded is not None and loaded.checks[kernel].passed else "torch"
    if device.type == "cuda" and kernel in TRITON_KERNELS and requested() != "torch" and find_spec("triton"):
        return "triton"
    return "torch"
