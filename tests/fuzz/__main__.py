"""Fuzz every target for its share of some minutes: `make fuzz FUZZ_MINUTES=60`, from the tests folder `python -m fuzz`.

Prints the seed, inputs by kind, and the place of every input that ended as none may. Exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time

import torch

from fuzz.engine import fuzz
from fuzz.targets import TARGETS
from fuzz.targets.samples import sample_folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=None, help="drawn by chance and printed where left out")
    parser.add_argument("--kinds", default="", help="separated by semicolons; all by default")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sample_folder()  # one for all
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    chosen = [kind for kind in options.kinds.split(";") if kind] or list(TARGETS)
    print(f"seed {seed}, {options.minutes:g} minutes for {len(chosen)} kinds", flush=True)
    total, failed, began = 0, 0, time.monotonic()
    end = began + 60 * options.minutes
    print(f"| {'kind':24} | {'inputs':>7} | {'accepted':>8} | {'refused':>7} | {'failed':>6} |\n|---|--:|--:|--:|--:|")
    for index, kind in enumerate(chosen):
        share = max(0.5, (end - time.monotonic()) / (len(chosen) - index))
        found = fuzz(TARGETS[kind], share, seed)
        bad = len(found.failures)
        print(f"| {kind:24} | {found.tried:7} | {found.accepted:8} | {found.refused:7} | {bad:6} |", flush=True)
        for path, why in found.failures:
            print(f"FAILED {path}\n{why}", file=sys.stderr, flush=True)
        total, failed = total + found.tried, failed + bad
    print(f"{total} inputs, {failed} failures, {time.monotonic() - began:.0f} s")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
