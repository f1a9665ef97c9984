"""The compiled library: which variants were built, which of them this processor runs, and which is in use.

Each variant is one shared object built from the same C files for another vector width: avx512, avx2, and plain, which
needs no more than the processor family's least (SSE2 or NEON). Where there was no compiler there is none, and torch
does the same work with its own operations.
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
from labeltide.kernels.check import Verdict, check_library
from labeltide.kernels.threads import kernel_threads

ENVIRONMENT = "LABELTIDE_KERNELS"
VARIANTS = ("avx512", "avx2", "plain")  # best first
NEEDS = {"avx512": 2, "avx2": 1, "plain": 0}  # the least level of `labeltide_processor`
FOLDER = Path(__file__).parent

_override: list[str] = []  # what tests ask for in place of the environment
_left_out: list[str] = []  # kernels that torch computes although they passed


@dataclass(frozen=True)
class Library:
    """One variant, loaded and checked."""

    name: str
    path: Path
    compiled: ctypes.CDLL
    verdicts: dict[str, Verdict]  # by kernel

    def offers(self, kernel: str) -> bool:
        """Whether the kernel computed what torch does in its self-check, and nobody asked to leave it out."""
        return self.verdicts[kernel].passed and kernel not in _left_out


@cache
def built() -> dict[str, Path]:
    """The variants that setup built and that this system can load."""
    found = {}
    for name in VARIANTS:
        path = FOLDER / f"labeltide_{name}.so"
        if path.exists() and _load(path) is not None:
            found[name] = path
    return found


@cache
def processor_level() -> int | None:
    """Which vector width this processor has, as `NEEDS` counts; None where nothing was built that could tell."""
    for path in built().values():
        compiled = _load(path)
        assert compiled is not None
        return int(compiled.labeltide_processor())
    return None


@cache
def runnable() -> tuple[str, ...]:
    """The variants that were built and that this processor can run, best first."""
    level = processor_level()
    return tuple(name for name in built() if level is not None and NEEDS[name] <= level)


def requested() -> str | None:
    """What LABELTIDE_KERNELS asks for; None leaves the choice to the processor."""
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
    """The variant in use, or None where torch does all the work."""
    wanted = requested()
    if wanted == "torch" or not runnable():
        return None
    return load(wanted or runnable()[0])


@cache
def load(name: str) -> Library:
    """Load one variant and check every kernel of it; a kernel that fails is named in one warning and not used."""
    path = built()[name]
    compiled = _load(path)
    assert compiled is not None
    library = Library(name, path, compiled, check_library(compiled))
    for kernel, verdict in library.verdicts.items():
        if not verdict.passed:
            warnings.warn(
                f"The compiled kernel {kernel!r} ({name}) does not compute what torch does on this machine: its "
                f"self-check is off by {verdict.difference:.2g}. labeltide uses torch in its place, slower and right. "
                "Please report it with the output of `labeltide doctor`.",
                RuntimeWarning,
                stacklevel=2,
            )
    return library


@contextmanager
def using(name: str, without: Sequence[str] = ()) -> Iterator[None]:
    """Ask for a variant as LABELTIDE_KERNELS does, but for some kernels, within a block: for tests and benchmarks."""
    _override.append(name)
    _left_out.extend(without)
    try:
        yield
    finally:
        _override.pop()
        del _left_out[len(_left_out) - len(without) :]


def run(name: str, task: ctypes.Structure, items: int) -> None:
    """Share the items of a task among the library's own threads; ctypes lets go of Python's lock meanwhile."""
    library = active()
    assert library is not None
    call(library.compiled, name, task, items, kernel_threads())


def pointer(tensor: Tensor | None) -> int | None:
    """The address of a tensor's first value, for a field of a task."""
    return None if tensor is None else tensor.data_ptr()


@cache
def _load(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # built for another system
        return None
