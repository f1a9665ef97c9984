"""Self-check of the compiled kernels: small ragged cases are computed and compared with torch's stored results."""

from __future__ import annotations

import ctypes
import time
from typing import NamedTuple

import numpy as np

from labeltide.kernels.calls import call
from labeltide.kernels.cases import Case, read_cases

LINE_BYTES = 64  # bytes in a cache line, on which the memory of a case starts
THREADS = 2  # so that another thread computes part of the items


class CheckResult(NamedTuple):
    """The result of the self-check of one kernel."""

    passed: bool
    difference: float  # the largest, relative to the largest value of its tensor
    seconds: float


def check_library(compiled: ctypes.CDLL) -> dict[str, CheckResult]:
    """The self-check of every kernel of a loaded library."""
    results: dict[str, CheckResult] = {}
    for case in read_cases():
        earlier = results.get(case.kernel, CheckResult(True, 0.0, 0.0))
        result = _check_case(compiled, case)
        results[case.kernel] = CheckResult(
            earlier.passed and result.passed,
            max(earlier.difference, result.difference),
            earlier.seconds + result.seconds,
        )
    return results


def _check_case(compiled: ctypes.CDLL, case: Case) -> CheckResult:
    started = time.perf_counter()
    room = np.zeros(case.size + LINE_BYTES, np.uint8)
    memory = room[-room.ctypes.data % LINE_BYTES :][: case.size]
    for offset, values in case.inputs:
        memory[offset : offset + len(values)] = np.frombuffer(values, np.uint8)
    for stored in case.calls:
        task = ctypes.create_string_buffer(stored.task, len(stored.task))
        for field, offset in stored.pointers:
            ctypes.c_void_p.from_buffer(task, field).value = memory.ctypes.data + offset
        call(compiled, stored.function, task, stored.items, THREADS)
    passed, worst = True, 0.0
    for comparison in case.comparisons:
        start, stored_values = comparison.offset, comparison.expected
        expected = stored_values.astype(np.float64)
        computed = memory[start : start + stored_values.nbytes].view(stored_values.dtype)
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        difference = float(np.abs(computed - expected).max(initial=0.0)) / scale
        worst = max(worst, difference if np.isfinite(difference) else np.inf)
        passed &= difference <= comparison.tolerance  # False where the difference is NaN
    return CheckResult(passed, worst, time.perf_counter() - started)
