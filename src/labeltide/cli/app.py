"""The command-line program to which the other files of this folder add their commands."""

from __future__ import annotations

from cyclopts import App
from rich.console import Console

import labeltide

app = App(
    name="labeltide",
    help="Learn from labels whose quality changes over time, and see when and how they went wrong.",
    version=labeltide.__version__,
    suppress_keyboard_interrupt=False,  # `main` says that it stopped
)
console = Console(soft_wrap=True)
