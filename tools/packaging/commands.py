"""Other programs, run for the packaging checks. One that fails ends the check with a sentence."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"


def run(*command: str | Path, folder: Path | None = None, **variables: str) -> None:
    """Run a command and show what it prints; the variables are added to the environment."""
    _check(command, subprocess.run(_words(command), cwd=folder, env=_environment(variables), text=True))


def read(*command: str | Path, folder: Path | None = None, **variables: str) -> str:
    """Run a command and return what it prints; it is shown only if the command fails."""
    ended = attempt(*command, folder=folder, **variables)
    if ended.returncode:
        print(ended.stdout, flush=True)
    _check(command, ended)
    return ended.stdout


def attempt(*command: str | Path, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that may fail."""
    return subprocess.run(
        _words(command),
        cwd=folder,
        env=_environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def step(title: str) -> Iterator[None]:
    """Say what begins, and how long it took."""
    print(f"{title} ...", flush=True)
    started = time.perf_counter()
    yield
    print(f"{title}: {time.perf_counter() - started:.0f} s", flush=True)


def _check(command: tuple[str | Path, ...], ended: subprocess.CompletedProcess[str]) -> None:
    if ended.returncode:
        raise SystemExit(
            f"Every command of a packaging check must end with code 0. This one ended with {ended.returncode}, and "
            f"what it said stands above: {shlex.join(_words(command))}. Mend that and start again."
        )


def _words(command: tuple[str | Path, ...]) -> list[str]:
    return [str(word) for word in command]


def _environment(variables: dict[str, str]) -> dict[str, str]:
    """The caller's variables without PYTHONPATH, which could lead to the tree's own src folder."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
