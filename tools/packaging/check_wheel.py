"""Build the sdist and the wheel, and try the wheel in a fresh environment.

python tools/packaging/check_wheel.py          # with all contracts
python tools/packaging/check_wheel.py --fast   # with the contracts of the best kernel variant
"""

from __future__ import annotations

import argparse

from commands import CONSTRAINTS, step
from contents import kernels
from distributions import build
from environments import TESTING, fresh_environment
from without_compiler import check_without_compiler


def main() -> None:
    """Build, install, check the kernels, run the contracts, build without a compiler."""
    parser = argparse.ArgumentParser(description="Build the sdist and the wheel, and try the wheel.")
    parser.add_argument("--fast", action="store_true", help="only the best kernel variant, and no searches")
    fast = parser.parse_args().fast
    built = build()
    with fresh_environment() as environment:
        with step("Install the wheel"):
            environment.install("--constraint", CONSTRAINTS, built.wheel, *TESTING)
        environment.check_kernels(kernels())
        environment.contracts(fast=fast)
        check_without_compiler(built.source, environment)
    print(built)


if __name__ == "__main__":
    main()
