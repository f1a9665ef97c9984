"""Fail where a kernel is no longer clearly faster than torch: a gate on ratios, which hardly depend on the machine.

    python tools/ratios.py

A GRU fit is timed with the compiled kernels and with torch, alternating, five times each; the gate takes the medians.
The rule of CONTRIBUTING.md is that a kernel below 1.3 times is removed.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from unittest.mock import patch

import labeltide as lt
from labeltide.kernels import library

LEAST = 1.3
ROUNDS = 5


def fit_seconds(backend: str) -> float:
    """Seconds of one short fit of the `ignore` method."""
    study = lt.make_sequences(n=64, n_steps=50, n_features=8, stay=0.9, random_state=0)
    recorded = lt.corrupt(study, lt.make_noise("mixed", n_steps=50, rate=0.3), random_state=0)
    with patch.dict(os.environ, {library.ENVIRONMENT: backend}):
        started = time.perf_counter()
        lt.METHODS["ignore"](random_state=0, epochs=10).fit(recorded.features, recorded.labels)
    return time.perf_counter() - started


def main() -> int:
    """Time both, alternating so that a busy machine slows both; 1 below the least ratio."""
    best = next(iter(library.runnable()), None)
    if best is None:
        print("No kernels were built here, so there is nothing to compare.")
        return 1
    seconds: dict[str, list[float]] = {best: [], "torch": []}
    for backend in seconds:
        fit_seconds(backend)  # warm up
    for _ in range(ROUNDS):
        for backend, measured in seconds.items():
            measured.append(fit_seconds(backend))
    medians = {backend: statistics.median(measured) for backend, measured in seconds.items()}
    ratio = medians["torch"] / medians[best]
    print(f"fit: torch {medians['torch']:.2f} s, {best} {medians[best]:.2f} s, ratio {ratio:.1f}, at least {LEAST}")
    return int(ratio < LEAST)


if __name__ == "__main__":
    sys.exit(main())
