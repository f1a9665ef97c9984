"""Try the wheel with every supported Python that is installed here beside the one that builds it.

    python tools/packaging/check_pythons.py          # with all contracts
    python tools/packaging/check_pythons.py --fast   # with the contracts of the best kernel variant

A Python is looked for on PATH and among pyenv's versions. Each environment is removed before the next one is made.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from commands import CONSTRAINTS, attempt, step
from contents import kernels
from distributions import build
from environments import TESTING, fresh_environment

VERSIONS = ("3.12", "3.13", "3.14")


def find(version: str) -> Path | None:
    """The Python of a version; a pyenv shim of a version that is not switched on does not start, and is passed over."""
    for candidate in _candidates(version):
        asked = attempt(candidate, "-c", "import sys; print(sys.version_info[:2])")
        if asked.returncode == 0 and asked.stdout.strip() == str(tuple(map(int, version.split(".")))):
            return candidate
    return None


def _candidates(version: str) -> Iterator[Path]:
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    releases = [path for path in installed.glob(f"{version}.*") if path.name.rpartition(".")[2].isdigit()]
    for release in sorted(releases, key=lambda path: int(path.name.rpartition(".")[2]), reverse=True):
        yield release / "bin/python"


def check(python: Path, wheel: Path, *, fast: bool) -> None:
    """Install the wheel for one Python and run the contracts."""
    with fresh_environment(python) as environment:
        with step("Install the wheel"):
            environment.install("--constraint", CONSTRAINTS, wheel, *TESTING)
        environment.check_kernels(kernels())
        environment.contracts(fast=fast)


def main() -> None:
    """Try each version, or say that it is not there."""
    parser = argparse.ArgumentParser(description="Try the wheel with each Python that is installed.")
    parser.add_argument("--fast", action="store_true", help="only the best kernel variant, and no searches")
    fast = parser.parse_args().fast
    pythons = {version: find(version) for version in VERSIONS}
    wheel = build().wheel if any(pythons.values()) else None
    for version, python in pythons.items():
        if python is None or wheel is None:
            print(f"Python {version} is skipped: it is neither on PATH nor among pyenv's versions.", flush=True)
            continue
        with step(f"Python {version}"):
            check(python, wheel, fast=fast)


if __name__ == "__main__":
    main()
