"""The command line: parses, calls, prints."""

from labeltide.cli.commands import app, console, main

__all__ = ["app", "console", "main"]
