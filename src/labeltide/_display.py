"""How results show themselves: short texts for a console, and small pieces of HTML for notebooks.

The HTML has no script, no address and no style sheet. Colours are those of the text around it, so that it reads on
light and on dark pages and in a static export. Every name is escaped.
"""

from __future__ import annotations

import reprlib
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from markupsafe import Markup

LINE, MAX_LETTERS = 110, 60  # letters of a line of a short text, and of one value

_reprlib = reprlib.Repr()
_reprlib.maxstring = _reprlib.maxother = MAX_LETTERS
_reprlib.maxtuple = _reprlib.maxlist = _reprlib.maxdict = 4
_reprlib.maxlevel = 2


class ShortRepr:
    """A dataclass whose text is a few lines: arrays show their shape, other values their beginning."""

    def __repr__(self) -> str:
        shown = [field.name for field in fields(self) if field.repr]  # type: ignore[arg-type]
        parts = ", ".join(f"{name}={short(getattr(self, name))}" for name in shown)
        text = f"{type(self).__name__}({parts})"
        return "\n".join(textwrap.wrap(text, LINE, subsequent_indent="    ", break_on_hyphens=False))


def short(value: Any) -> str:
    """The beginning of a value; an array by its shape."""
    if isinstance(value, np.ndarray):
        return f"<{'x'.join(map(str, value.shape))} {value.dtype}>"
    if isinstance(value, float | np.floating):
        return f"{float(value):.4g}"
    if isinstance(value, ShortRepr):
        return f"<{type(value).__name__}>"
    if isinstance(value, tuple) and value and type(value) is not tuple:  # a named tuple
        return f"{type(value).__name__}({', '.join(map(short, value))})"[: 2 * MAX_LETTERS]
    if isinstance(value, tuple | list) and value and isinstance(value[0], tuple | np.ndarray):
        return f"<{len(value)} of {type(value[0]).__name__}>"
    if isinstance(value, dict) and len(value) > _reprlib.maxdict:
        return f"<dict of {len(value)}>"
    return _reprlib.repr(value)


def panel(title: Any, *parts: Any) -> str:
    """A titled piece of HTML."""
    head = Markup('<div style="font-weight:600;margin:.2em 0">{}</div>').format(title)
    body = Markup("").join(Markup("{}").format(part) for part in parts if part)
    style = "max-width:46em;line-height:1.35;overflow-x:auto"
    return str(Markup('<div class="labeltide" style="{}">{}{}</div>').format(style, head, body))


def sentence(words: Any) -> Markup:
    return Markup('<div style="margin:.2em 0">{}</div>').format(words)


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Markup:
    """A plain table; the first column is aligned to the left, numbers to the right."""

    def line(tag: str, cells: Sequence[Any]) -> Markup:
        sides = ["left"] + ["right"] * (len(cells) - 1)
        cell = Markup('<{} style="text-align:{};padding:.1em .7em .1em 0;background:none">{}</{}>')
        shown = [cell.format(Markup(tag), side, text, Markup(tag)) for side, text in zip(sides, cells, strict=True)]
        return Markup('<tr style="background:none">{}</tr>').format(Markup("").join(shown))

    body = Markup("").join(line("td", row) for row in rows)
    style = "border-collapse:collapse;font-variant-numeric:tabular-nums"
    return Markup('<table style="{}"><thead>{}</thead><tbody>{}</tbody></table>').format(style, line("th", head), body)


def percent(share: float, unit: str = "%") -> str:
    """A share in percent, or a difference of two shares in points."""
    return f"{100 * share:.1f} {unit}" if np.isfinite(share) else "not known"


def p_value(p: float) -> str:
    return "not available" if not np.isfinite(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
