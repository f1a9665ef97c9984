"""How columns, table rows and values are named in sentences."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

_LONGEST = 60


def quoted(names: Sequence[object], most: int = 12) -> str:
    """Names for a sentence, each in quotes and not too long, the first of them where there are many."""
    shown = [repr(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...") for text in map(str, names[:most])]
    if len(names) > most:
        return ", ".join(shown) + f", ... ({len(names)} in all)"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def listed(names: Sequence[Hashable], most: int = 20) -> str:
    """The representation of each name, with commas between; the first of them where there are many."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")


def name_rows(rows: np.ndarray, most: int = 5) -> str:
    """Table rows by their number, counted from 0."""
    shown = ", ".join(str(row) for row in rows[:most])
    more = f", ... ({len(rows)} in all)" if len(rows) > most else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"


def unique_texts(values: Iterable[object]) -> list[str]:
    """A distinct text for every value, valid as UTF-8."""
    values = list(values)
    unique = [_text(value) for value in values]
    if len(set(unique)) < len(unique):
        unique = [_text(repr(value)) for value in values]
    seen: dict[str, int] = {}
    for place, text in enumerate(unique):
        while unique[place] in seen:
            seen[text] += 1
            unique[place] = f"{text} ({seen[text]})"
        seen[unique[place]] = 1
    return unique


def _text(value: object) -> str:
    text = " / ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text.encode("utf-8", "replace").decode()
