"""Runs tests/test_contracts.py against the labeltide that is installed for this Python.

    python tools/packaging/contracts.py          # every kernel variant
    python tools/packaging/contracts.py --fast   # the best variant, and no searches over settings

The tests are copied to a temporary folder, from where the tree's src folder cannot be imported.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("conftest.py", "shared_settings.py", "test_contracts.py", "variants.py")
SLOW = ("grid_search", "cross_val_score", "users_own_type")


def installed() -> str:
    """The folder of the installed package, which must not be the tree's."""
    found = importlib.util.find_spec("labeltide")
    folder = str(found.origin) if found else "nowhere"
    if found is None or Path(folder).is_relative_to(ROOT / "src"):
        raise SystemExit(f"These tests need an installed wheel. labeltide comes from {folder}. Use `make wheel`.")
    return str(Path(folder).parent)


def selection() -> str:
    """The share for --fast, as pytest's -k takes it."""
    from labeltide.kernels import library

    others = [*library.runnable(), "torch"][1:]
    return " and ".join(f"not {name}" for name in (*others, *SLOW))


def run(folder: Path, *, fast: bool) -> int:
    """Copy the tests and run them."""
    for name in FILES:
        shutil.copy(ROOT / "tests" / name, folder / name)
    options = ["--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    options += ["-o", "pythonpath=.", "-q", "--numprocesses", str(min(2, os.cpu_count() or 1))]
    chosen = ["-k", selection()] if fast else []
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen, "test_contracts.py"], cwd=folder
    ).returncode


def main() -> int:
    """Run the contracts; pytest's exit code."""
    parser = argparse.ArgumentParser(description="Run the contracts against an installed labeltide.")
    parser.add_argument("--fast", action="store_true", help="only the best kernel variant, and no searches")
    fast = parser.parse_args().fast
    print(f"Contracts of {installed()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="labeltide-contracts-") as name:
        return run(Path(name).resolve(), fast=fast)


if __name__ == "__main__":
    sys.exit(main())
