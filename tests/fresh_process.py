"""Code in a process of its own that has imported nothing of labeltide, without paying for torch's import each time."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("fork_server.py")


def run_code(
    code: str,
    *arguments: object,
    folder: str | Path = ".",
    paths: Iterable[str | Path] = (),
    strict: bool = False,
) -> subprocess.CompletedProcess[str]:
    """What ``python -c code arguments`` would do in the folder, with further `paths` to import from.

    With `strict` a UserWarning is an error, as with ``-W error::UserWarning``.
    """
    task: dict[str, Any] = {"code": code, "arguments": list(map(str, arguments)), "paths": list(map(str, paths))}
    task |= {"folder": str(folder), "strict": strict}
    if sys.platform != "linux":  # elsewhere libraries do not survive a fork
        return _run_alone(**task)
    with tempfile.TemporaryDirectory() as target:
        out, err = Path(target, "out"), Path(target, "err")
        out.touch()
        err.touch()
        return subprocess.CompletedProcess(
            code, _ask(task | {"out": str(out), "err": str(err)}), *map(Path.read_text, (out, err))
        )


def _run_alone(
    code: str, arguments: list[str], paths: list[str], folder: str, strict: bool
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, *(["-W", "error::UserWarning"] if strict else []), "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _ask(task: dict[str, Any]) -> int:
    """The exit code of a task, negative for a signal."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    print(json.dumps(task), file=server.stdin, flush=True)
    return int(server.stdout.readline())


@functools.cache
def _server() -> subprocess.Popen[str]:
    """One for each process of the tests, with which it ends: its standard input is then closed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SERVER.read_text()]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    atexit.register(server.communicate)
    return server
