"""Build the kernels with several compilers, options and targets, and replay the stored cases with each build.

    python tools/kernels/check.py          # everything
    python tools/kernels/check.py --ci     # a share that takes less than a minute

Wheels are built with one compiler, but whoever builds from source has another one, with flags of their own. Every build
links `replay.c` with the kernels; warnings are errors. aarch64 runs under qemu. A compiler that is not installed is
skipped, and what this processor lacks the instructions for is built and not run.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KERNELS = ROOT / "src/labeltide/kernels"
CASES = KERNELS / "cases.bin"

COMMON = ["-std=gnu11", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]
LIBRARIES = ["-lm", "-lpthread"]
VARIANTS = {
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-ffp-contract=fast", "-DLANES=16"],
    "avx2": ["-mavx2", "-mfma", "-ffp-contract=fast", "-DLANES=8"],
    "plain": [],
}
NEEDED = {"avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "fma"}, "avx2": {"avx2", "fma"}, "plain": set()}
# The last one is what a distributor's own flags may make of setup.py's.
LEVELS = ("-O2 -fno-tree-vectorize", "-O3 -fno-tree-vectorize", "-O3")
# Undefined behaviour is only printed unless it is told to end the program.
SANITIZERS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
PACKAGES = {
    "gcc": "gcc",
    "clang": "clang",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
}
LIMIT = 300  # seconds for a build or a run; what takes longer hangs


@dataclass
class Build:
    """One row of the table."""

    compiler: str
    variant: str
    flags: str
    machine: str = platform.machine()

    @property
    def crossed(self) -> bool:
        return self.machine != platform.machine()

    @property
    def command(self) -> list[str]:
        """The compiler with the options that choose the target; a crossed build brings its libraries along."""
        if not self.crossed:
            return [self.compiler]
        return [f"{self.machine}-linux-gnu-gcc" if self.compiler == "gcc" else self.compiler, *self._crossing()]

    @property
    def tools(self) -> list[str]:
        """What must be installed to build; clang uses the C library that comes with gcc for the target."""
        return [self.command[0], *([f"{self.machine}-linux-gnu-gcc"] if self.crossed else [])]

    def _crossing(self) -> list[str]:
        return ["-static"] if self.compiler == "gcc" else [f"--target={self.machine}-linux-gnu", "-static"]


class Outcome(NamedTuple):
    """What became of a build: `passed`, `failed` or `skipped`, the reason if it did not pass, and what it printed."""

    result: str
    reason: str = ""
    difference: str = ""
    printed: str = ""


def builds(*, ci: bool) -> list[Build]:
    """The rows of the table, or the share of them that continuous integration runs."""
    variants = list(VARIANTS) if platform.machine() == "x86_64" else ["plain"]
    rows = []
    for compiler in ("gcc", "clang"):
        for flags in LEVELS[1:2] if ci else LEVELS:
            rows += [Build(compiler, variant, flags) for variant in variants]
    if platform.machine() == "x86_64":
        for compiler in ("gcc",) if ci else ("gcc", "clang"):
            rows += [Build(compiler, "plain", flags, "aarch64") for flags in (LEVELS[:1] if ci else LEVELS)]
    checked = [variant for variant in ("plain", "avx2") if variant in variants]
    return rows + [Build("gcc", variant, SANITIZERS) for variant in (checked[:1] if ci else checked)]


def check(build: Build, folder: Path) -> Outcome:
    """Build and replay."""
    missing = [tool for tool in build.tools if shutil.which(tool) is None]
    if missing:
        return Outcome("skipped", _not_installed(missing[0]))
    program = folder / "replay"
    flags = [*COMMON, *build.flags.split(), *VARIANTS[build.variant]]
    sources = [str(HERE / "replay.c"), *map(str, sorted((KERNELS / "c").glob("*.c")))]
    built = _run([*build.command, *flags, "-o", str(program), *sources, *LIBRARIES])
    if built.returncode:
        return Outcome("failed", "it cannot be built", printed=built.stdout)
    lacking = NEEDED[build.variant] - _processor_flags()
    if lacking:
        return Outcome("skipped", f"built and not run: this processor lacks {', '.join(sorted(lacking))}")
    emulator = shutil.which(f"qemu-{build.machine}") or shutil.which(f"qemu-{build.machine}-static")
    if build.crossed and emulator is None:
        return Outcome("skipped", f"built and not run: {_not_installed(f'qemu-{build.machine}')}")
    ran = _run([*([str(emulator)] if build.crossed else []), str(program), str(CASES)])
    verdicts = re.findall(r"^(.+?) +(passed|FAILED) (\S+)$", ran.stdout, re.MULTILINE)
    difference = f"{max((float(found) for *_, found in verdicts), default=0.0):.1e}" if verdicts else ""
    failed = [name for name, verdict, _ in verdicts if verdict == "FAILED"]
    if ran.returncode == 0 and verdicts and not failed:
        return Outcome("passed", "", difference)
    wrong = f"wrong: {'; '.join(failed)}" if failed else f"it ended with code {ran.returncode}"
    return Outcome("failed", wrong, difference, ran.stdout)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, f"It took longer than {LIMIT} seconds: {' '.join(command)}\n")


def _not_installed(tool: str) -> str:
    return f"{tool} is not installed: `apt-get install {PACKAGES[tool]}`"


def _processor_flags() -> set[str]:
    path = Path("/proc/cpuinfo")
    line = re.search(r"^flags\s*:(.*)$", path.read_text(), re.MULTILINE) if path.exists() else None
    return set(line[1].split()) if line else set()


def _version(build: Build) -> str:
    if shutil.which(build.command[0]) is None:
        return build.compiler
    first = _run([build.command[0], "--version"]).stdout.partition("\n")[0]
    return f"{build.compiler} {(re.findall(r'[0-9]+[.][0-9]+[.][0-9]+', first) or ['?'])[-1]}"


def _row(*cells: str) -> str:
    widths = (13, 15, 68, 8, 10, 7)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()


def main() -> int:
    """Print the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(description="Build the kernels in many ways and replay the stored cases.")
    parser.add_argument("--ci", action="store_true", help="run a share that takes less than a minute")
    print(_row("compiler", "target", "flags", "result", "difference", "seconds"), flush=True)
    outcomes = []
    for build in builds(ci=parser.parse_args().ci):
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            outcome = check(build, Path(folder))
        seconds = f"{time.perf_counter() - started:.1f}"
        target = f"{build.machine} {build.variant}"
        row = _row(_version(build), target, build.flags, outcome.result, outcome.difference, seconds)
        print(f"{row}  {outcome.reason}".rstrip(), flush=True)
        outcomes.append((build, outcome))
    for build, outcome in outcomes:
        if outcome.printed:
            print(f"\n{' '.join(build.command)} {build.flags} ({build.variant}):\n{outcome.printed.rstrip()}")
    counts = Counter(outcome.result for _, outcome in outcomes)
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
