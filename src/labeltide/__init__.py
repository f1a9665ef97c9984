"""labeltide: learn from labels whose quality changes over time."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

# Modules are loaded when a name is first used, so that commands which never train start at once and never load torch.
# The stub beside this file, which type checkers and editors read, is the only list of public names.
_HOMES = {
    name.name: str(line.module)
    for line in ast.parse(Path(__file__).with_name("__init__.pyi").read_text()).body
    if isinstance(line, ast.ImportFrom)
    for name in line.names
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"labeltide has no {name!r}. It has: {', '.join(__all__)}.")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "labeltide_bench":
            raise
        raise ModuleNotFoundError(
            f"labeltide.{name} is part of labeltide-bench, which is not installed. Install it with: "
            "pip install labeltide-bench.",
            name=error.name,
        ) from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
