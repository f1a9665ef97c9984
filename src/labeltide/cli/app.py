"""The command-line program to which the other files of this folder add their commands."""

from __future__ import annotations

from cyclopts import App
from rich.console import Console

import labeltide

app = App(
    name="labeltide",
    help="Learn from labels whose quality changes over time, and see when and how they went wrong.",
    help_epilogue=(
        "Exit codes: 0 done; 2 wrong use; 3 the data cannot answer; 4 more labels are wrong than --fail-above allows; "
        "130 stopped by Ctrl-C, 143 by SIGTERM."
    ),
    version=labeltide.__version__,
    suppress_keyboard_interrupt=False,  # `main` says that it stopped
)


class _Console(Console):
    """Leaves a closed standard output to `main`; rich would end with exit code 1 although all was written."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


console = _Console(soft_wrap=True, emoji=False)  # a name such as :bomb: stays what it is
