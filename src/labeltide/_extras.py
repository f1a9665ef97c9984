"""Libraries that only some functions need: imported when used, with a sentence where one is not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_extra(module: str, extra: str, purpose: str, instead: str = "") -> Any:
    """The module, or a ValueError that says what it is for, how to install it and what can be done instead."""
    try:
        return import_module(module)
    except ImportError:
        name = module.split(".")[0]
        raise ValueError(
            f"{purpose} needs {name}, which is not installed. Install it with: pip install 'labeltide[{extra}]'"
            f"{f'; or {instead}' if instead else ''}."
        ) from None
