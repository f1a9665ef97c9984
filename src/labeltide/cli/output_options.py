"""Options that say in which form a command gives its result, for people or for machines."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from labeltide._validation import check_choice
from labeltide.cli.app import console

FORMATS = ("text", "json", "github")


@Parameter(name="*")
@dataclass(frozen=True)
class OutputOptions:
    """How the result is given."""

    format: Annotated[str, Parameter(help="text, json (one document) or github (workflow commands).")] = "text"
    quiet: Annotated[bool, Parameter(negative=(), help="Print nothing but errors, and what --format asks for.")] = False

    def __post_init__(self) -> None:
        check_choice("format", self.format, FORMATS)

    @property
    def for_machines(self) -> bool:
        return self.format != "text"

    def show(self, text: str) -> None:
        """Print what was asked for: text for a person unless quiet, machine output as it is."""
        if self.for_machines:
            sys.stdout.write(f"{text}\n".encode("utf-8", "replace").decode())
            sys.stdout.flush()
        elif not self.quiet:
            console.print(text, markup=False, highlight=False)
