"""Run-time CPU dispatch: the variants of the compiled library that were built, that can run here, and the one in use.

Each variant is a shared object built from the same C files for one vector width: avx512, avx2, and plain, which needs
only the baseline of the processor family (SSE2 or NEON). Without a compiler at installation there are no variants, and
torch computes everything.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torch import Tensor

from labeltide.kernels.calls import call
from labeltide.kernels.check import CheckResult, check_library
from labeltide.kernels.threads import kernel_threads

ENVIRONMENT = "LABELTIDE_KERNELS"
VARIANTS = ("avx512", "avx2", "plain")  # best first
NEEDS = {"avx512": 2, "avx2": 1, "plain": 0}  # the lowest level of `labeltide_processor`
FOLDER = Path(__file__).parent

_override: list[str] = []  # variants set by `using`, which win over the environment variable
_left_out: list[str] = []  # kernels that `using` excludes; torch computes them


@dataclass(frozen=True)
class Library:
    """One variant, loaded and checked."""

    name: str
    path: Path
    compiled: ctypes.CDLL
    checks: dict[str, CheckResult]  # by kernel

    def offers(self, kernel: str) -> bool:
        """Whether the kernel passed its self-check and `using` does not exclude it."""
        return self.checks[kernel].passed and kernel not in _left_out


@cache
def built() -> dict[str, Path]:
    """The variants that setup built and that this system can load, with their paths."""
    paths = {}
    for name in VARIANTS:
        path = FOLDER / f"labeltide_{name}.so"
        if path.exists() and _load(path) is not None:
            paths[name] = path
    return paths


@cache
def processor_level() -> int | None:
    """The vector width of this processor as a level of `NEEDS`; None where no variant was built."""
    for path in built().values():
        compiled = _load(path)
        assert compiled is not None
        return int(compiled.labeltide_processor())
    return None


@cache
def runnable() -> tuple[str, ...]:
    """The built variants that this processor can run, best first."""
    level = processor_level()
    return tuple(name for name in built() if level is not None and NEEDS[name] <= level)


def requested() -> str | None:
    """The variant that LABELTIDE_KERNELS names; None where it names none and the best runnable one is used."""
    wanted = (_override[-1] if _override else os.environ.get(ENVIRONMENT, "")).strip().lower()
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
    path = built()[name]
    compiled = _load(path)
    assert compiled is not None
    library = Library(name, path, compiled, check_library(compiled))
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


@contextmanager
def using(name: str, without: Sequence[str] = ()) -> Iterator[None]:
    """Use a variant, except for the kernels `without`, within a block: for tests and benchmarks."""
    _override.append(name)
    _left_out.extend(without)
    try:
        yield
    finally:
        _override.pop()
        del _left_out[len(_left_out) - len(without) :]


def run(name: str, task: ctypes.Structure, items: int) -> None:
    """Run a kernel on all items of a task with the active variant; ctypes releases the GIL meanwhile."""
    library = active()
    assert library is not None
    call(library.compiled, name, task, items, kernel_threads())


def pointer(tensor: Tensor | None) -> int | None:
    """The data pointer of a tensor, for a field of a task; None for None."""
    return None if tensor is None else tensor.data_ptr()


@cache
def _load(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # built for another system
        return None
