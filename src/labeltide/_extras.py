"""Libraries that only some functions need: imported when used, with a sentence where one is not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """The module, or a ValueError that says what it is for and how to install it."""
    try:
        return import_module(module)
    except ImportError:
        name = module.split(".")[0]
        raise ValueError(
            f"{purpose} needs {name}, which is not installed. Install it with: pip install 'labeltide[{extra}]'."
        ) from None
