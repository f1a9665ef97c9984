"""The command line: parses, calls, prints. One file for each group of commands."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from typing import Annotated

from cyclopts import CycloptsError, Parameter
from rich.console import Console

import labeltide
from labeltide.cli import audit_commands, export_commands, result_commands, review_commands, trial_commands
from labeltide.cli.app import app, console

__all__ = [
    "app",
    "audit_commands",
    "console",
    "export_commands",
    "main",
    "result_commands",
    "review_commands",
    "trial_commands",
]

BENCH = ("bench", "report", "pack", "datasets")  # commands of labeltide-bench
WAYS_ON = {  # from a command that was stopped
    "audit": " The same command with --resume goes on from here.",
    "bench": " The same command goes on from here.",
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
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        app(sys.argv[1:], exit_on_error=False)
    except CycloptsError:  # it has said what was wrong
        sys.exit(2)
    except (ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"labeltide: {error}", style="red", markup=False)
        sys.exit(3 if isinstance(error, labeltide.UnanswerableError) else 2)
    except KeyboardInterrupt:
        way_on = WAYS_ON.get("".join(sys.argv[1:2]), "")
        Console(stderr=True, soft_wrap=True).print(f"labeltide: stopped.{way_on}", markup=False)
        sys.exit(130)
