"""Checks of the values in a study file; every error begins with the key it is about.

They are written by hand. msgspec or pydantic could replace the type checks, but their messages do not name the key as
the file spells it, the rule, the value and the choices; translating them would take as much code as these checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from labeltide import _validation

Check = Callable[[str, Any], Any]  # takes the key's full name and its value, gives the value back


def text(where: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{where} must be a text in quotes. Got {value!r}.")
    return value


def flag(where: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{where} must be true or false. Got {value!r}.")
    return value


def number_between(low: float, high: float = float("inf"), *, whole: bool = False, above: bool = False) -> Check:
    """A check for a number between low and high."""

    def check(where: str, value: Any) -> Any:
        _validation.check_number(where, value, low, high, whole=whole, above=above)
        return value

    return check


def value_list(where: str, value: Any) -> list[Any]:
    """A list of at least one value."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where} must be a list of at least one value, in [ ]. Got {value!r}.")
    return value


def text_list(where: str, value: Any) -> tuple[str, ...]:
    """A list of different texts."""
    names = value_list(where, value)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(f'{where} must be a list of different texts, such as ["a", "b"]. Got {value!r}.')
    return tuple(names)


def table(where: str, value: Any) -> dict[str, Any]:
    """A table of keys and values."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a table of keys and values. Got {value!r}.")
    return value


def table_of(checks: dict[str, Check], required: Iterable[str] = ()) -> Check:
    """A check for a table with these keys and no others."""

    def check(where: str, value: Any) -> dict[str, Any]:
        entry = table(where, value)
        _validation.check_keys(f"key in {where}", entry, checks)
        missing = [key for key in required if key not in entry]
        if missing:
            raise ValueError(f"{where} needs the key {' and '.join(missing)}.")
        return {key: checks[key](f"{where}.{key}", item) for key, item in entry.items()}

    return check
