"""Write requirements.lock: every package of the development environment, with its version and the hashes of its files.

    python tools/packaging/lock.py

uv resolves pyproject.toml with its dev extra for all platforms and Pythons at once; it is installed for this alone.
"""

from __future__ import annotations

import re

from commands import CONSTRAINTS, ROOT, step
from environments import fresh_environment

LOCK = ROOT / "requirements.lock"
RESOLVER = "uv>=0.5"
OPTIONS = ("--extra", "dev", "--universal", "--python-version", "3.11", "--generate-hashes", "--no-header")
QUIET = ("--no-emit-index-url", "--no-emit-find-links", "--no-annotate", "--quiet")
LEFT_OUT = re.compile(r"(torch==|triton|cuda-|nvidia-)")  # torch, and what only its CUDA build needs
HEADER = """\
# Every package of the development environment, with the hashes of its files. `make lock` writes it anew from
# pyproject.toml and constraints.txt; do not edit it. To install exactly this, in an environment of your own:
#
#     python -m pip install --require-hashes --requirement requirements.lock
#     python -m pip install --constraint constraints.txt torch
#     python -m pip install --no-deps --editable .
#
# torch is not here, nor what only its CUDA build needs (nvidia, cuda, triton): torch 2.13.0 has one file for CPUs and
# others for GPUs, from different places and with different hashes. constraints.txt holds its version.
"""


def without_torch(resolved: str) -> str:
    """Leave out the packages whose files depend on the processor torch is built for; a package begins unindented."""
    packages = re.split(r"^(?=[a-z0-9])", resolved, flags=re.MULTILINE | re.IGNORECASE)
    return "".join(package for package in packages if not LEFT_OUT.match(package))


def main() -> None:
    """Resolve, and write the file."""
    with fresh_environment() as environment, step("Resolve"):
        environment.install(RESOLVER)
        found = environment.folder / "resolved.txt"
        options = [*OPTIONS, *QUIET, "--constraint", str(CONSTRAINTS), "--output-file", str(found)]
        environment.read("uv", "pip", "compile", str(ROOT / "pyproject.toml"), *options)
        locked = without_torch(found.read_text())
    LOCK.write_text(HEADER + locked)
    print(f"{LOCK.name}: {locked.count('==')} packages, {locked.count('--hash=')} hashes")


if __name__ == "__main__":
    main()
