"""A kernel proves itself before it is believed: small ragged cases are computed and compared with torch's results."""

from __future__ import annotations

import ctypes
import time
from typing import NamedTuple

import numpy as np

from labeltide.kernels.calls import call
from labeltide.kernels.cases import Case, read_cases

LINE = 64  # bytes in a cache line, on which the memory of a case starts
THREADS = 2  # so that a share of the items is done by another thread


class Verdict(NamedTuple):
    """What the self-check of one kernel found."""

    passed: bool
    difference: float  # the largest, relative to the largest value of its tensor
    seconds: float


def check_library(compiled: ctypes.CDLL) -> dict[str, Verdict]:
    """The verdict on every kernel of a loaded library."""
    verdicts: dict[str, Verdict] = {}
    for case in read_cases():
        earlier = verdicts.get(case.kernel, Verdict(True, 0.0, 0.0))
        verdict = _check(compiled, case)
        verdicts[case.kernel] = Verdict(
            earlier.passed and verdict.passed,
            max(earlier.difference, verdict.difference),
            earlier.seconds + verdict.seconds,
        )
    return verdicts


def _check(compiled: ctypes.CDLL, case: Case) -> Verdict:
    started = time.perf_counter()
    room = np.zeros(case.size + LINE, np.uint8)
    memory = room[-room.ctypes.data % LINE :][: case.size]
    for offset, values in case.inputs:
        memory[offset : offset + len(values)] = np.frombuffer(values, np.uint8)
    for stored in case.calls:
        task = ctypes.create_string_buffer(stored.task, len(stored.task))
        for field, place in stored.pointers:
            ctypes.c_void_p.from_buffer(task, field).value = memory.ctypes.data + place
        call(compiled, stored.function, task, stored.items, THREADS)
    passed, worst = True, 0.0
    for check in case.checks:
        expected = check.expected.astype(np.float64)
        found = memory[check.offset : check.offset + check.expected.nbytes].view(check.expected.dtype)
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        difference = float(np.abs(found - expected).max(initial=0.0)) / scale
        worst = max(worst, difference if np.isfinite(difference) else np.inf)
        passed &= difference <= check.tolerance  # not where it is NaN
    return Verdict(passed, worst, time.perf_counter() - started)
