"""Try the wheel with every dependency at the least version that pyproject.toml allows.

python tools/packaging/check_floors.py          # with all contracts
python tools/packaging/check_floors.py --fast   # with the contracts of the best kernel variant
python tools/packaging/check_floors.py --list   # only say what the versions are
"""

from __future__ import annotations

import argparse
import re
import tomllib

from commands import ROOT, step
from contents import kernels
from distributions import build
from environments import TESTING, Environment, fresh_environment

STUDY = "study.parquet"
COLUMNS = ("--sequence", "person", "--time", "time", "--label", "label")


def floors() -> list[str]:
    """Each dependency with its least version: `numpy>=1.26` becomes `numpy==1.26`, which pip reads as 1.26.0."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [_floor(dependency) for dependency in project["dependencies"]]


def _floor(dependency: str) -> str:
    found = re.fullmatch(r"([\w.-]+)>=([\w.]+)", dependency)
    if found is None:
        raise SystemExit(
            f"Every dependency in pyproject.toml must be written as name>=version. Got {dependency!r}. Write it so, or "
            "teach tools/packaging/check_floors.py to read it."
        )
    return f"{found[1]}=={found[2]}"


def try_commands(environment: Environment) -> None:
    """Import the package and use the command line: its libraries are not what the contracts are about."""
    with step("Commands"):
        environment.read("python", "-W", "error::SyntaxWarning", "-c", "import labeltide; labeltide.METHODS")
        environment.read("labeltide", "demo", "--help")
        environment.read("labeltide", "simulate", STUDY, "--people", "10", "--days", "2")
        print(environment.read("labeltide", "audit", STUDY, *COLUMNS, "--out", "audit"), flush=True)


def main() -> None:
    """Install exactly the floors, then the wheel, and try it."""
    parser = argparse.ArgumentParser(description="Try the wheel with the least versions of its dependencies.")
    parser.add_argument("--fast", action="store_true", help="only the best kernel variant, and no searches")
    parser.add_argument("--list", action="store_true", help="only print the versions")
    arguments = parser.parse_args()
    print(*floors(), sep="\n", flush=True)
    if arguments.list:
        return
    wheel = build().wheel
    with fresh_environment() as environment:
        with step("Install the floors and the wheel"):
            environment.install(wheel, *floors(), *TESTING)
        environment.check_kernels(kernels())
        try_commands(environment)
        environment.contracts(fast=arguments.fast)


if __name__ == "__main__":
    main()
