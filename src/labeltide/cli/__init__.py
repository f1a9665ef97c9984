"""The command line: parses, calls, prints."""

from __future__ import annotations

import errno
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Annotated, NoReturn

from cyclopts import CycloptsError, Parameter
from rich.console import Console

import labeltide
from labeltide._files import os_error_text
from labeltide.cli.commands import app, console

__all__ = ["app", "console", "main"]

BENCH = ("bench", "report", "pack", "datasets")  # commands of labeltide-bench
WAYS_ON = {  # from a command that was stopped
    "audit": " The same command with --resume goes on from here.",
    "bench": " The same command goes on from here.",
}


NO_MEMORY = "labeltide: There is not enough memory. Free some, or give fewer rows or features."
WAYS_OUT = {  # where the system refused to write
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), " Free some space, or name another folder."),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), " Name a folder to which you may write."),
}


def _add_bench() -> None:
    """The commands of labeltide-bench, or in their place a sentence that says what to install."""
    if find_spec("labeltide_bench") is not None:
        from labeltide_bench.cli import add_commands

        add_commands(app)
        return
    for name in BENCH:

        @app.command(name=name, help="Part of labeltide-bench, which is not installed.")
        def _missing(*words: Annotated[str, Parameter(allow_leading_hyphen=True)], name: str = name) -> None:
            raise ValueError(
                f"`labeltide {name}` is part of labeltide-bench, which is not installed. Install it with: "
                "pip install labeltide-bench."
            )


_add_bench()


def main() -> None:
    """Run the command line; wrong use ends with a sentence and exit code 2, data that cannot answer with 3."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed, and nobody reads it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (open as long as the program runs)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show is escaped
    try:
        with _stopped_by_sigterm():
            try:
                app(sys.argv[1:], exit_on_error=False)
            finally:
                sys.stdout.flush()  # here, where a reader that has gone is told apart from other errors
    except CycloptsError:  # it has said what was wrong
        sys.exit(2)
    except BrokenPipeError:  # as by `head`; results are written before anything is printed, so this is no error
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains again at its end
        sys.exit(0)
    except OSError as error:
        _say(f"labeltide: {os_error_text(error)}{WAYS_OUT.get(error.errno or 0, '')}", style="red")
        sys.exit(2)
    except ValueError as error:
        _say(f"labeltide: {error}", style="red")
        sys.exit(3 if isinstance(error, labeltide.UnanswerableError) else 2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # torch's own words
            raise
        sys.stderr.write(f"{NO_MEMORY}\n")  # rich would ask for more of it
        sys.exit(2)
    except KeyboardInterrupt as stop:
        command = "".join(sys.argv[1:2])
        can_go_on = getattr(stop, "work_is_kept", command != "audit")
        _say(f"labeltide: stopped.{WAYS_ON.get(command, '') if can_go_on else ''}")
        sys.exit(143 if isinstance(stop, Terminated) else 130)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: work is kept."""


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _say(sentence: str, style: str | None = None) -> None:
    """A sentence on standard error, where anybody reads it."""
    with suppress(OSError):
        Console(stderr=True, soft_wrap=True, emoji=False).print(sentence, style=style, markup=False)
