"""What the sdist becomes without a C compiler: a wheel for every platform, or an error where kernels are required."""

from __future__ import annotations

import sys
from pathlib import Path

from commands import attempt, read, step
from environments import Environment

TAG = "py3-none-any"


def check_without_compiler(source: Path, environment: Environment) -> None:
    """Build without a compiler, put the wheel in place of the one installed, and ask the doctor."""
    with step("Build without a compiler"):
        wheel = _build(source, environment.folder / "plain")
        environment.install("--no-deps", "--force-reinstall", wheel)
        environment.check_kernels([])
        _check_refusal(source, environment.folder / "refused")
        print(f"Without a compiler the sdist gives {wheel.name}, and an error with LABELTIDE_REQUIRE_KERNELS=1.")


def _build(source: Path, target: Path) -> Path:
    read(*_command(source, target), CC="false", LABELTIDE_REQUIRE_KERNELS="")
    wheel = next(target.glob("*.whl"))
    if not wheel.stem.endswith(TAG):
        raise SystemExit(
            f"A wheel without kernels must have the tag {TAG}. It is named {wheel.name}. Look at setup.py."
        )
    return wheel


def _check_refusal(source: Path, target: Path) -> None:
    ended = attempt(*_command(source, target), CC="false", LABELTIDE_REQUIRE_KERNELS="1")
    if ended.returncode == 0 or list(target.glob("*.whl")):
        raise SystemExit(
            "With LABELTIDE_REQUIRE_KERNELS=1 a build without a compiler must fail. It ended well. Look at setup.py."
        )
    if "labeltide.kernels" not in ended.stdout:
        print(ended.stdout)
        raise SystemExit("The refused build must name the kernel that is missing. It said what stands above.")


def _command(source: Path, target: Path) -> list[str | Path]:
    """A wheel without kernels must not stay in pip's cache, from where later installations would take it."""
    return [sys.executable, "-m", "pip", "wheel", "--no-cache-dir", "--no-deps", "--wheel-dir", target, source]
