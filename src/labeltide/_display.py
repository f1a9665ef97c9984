"""How results show themselves: short texts for a console, and small pieces of HTML for notebooks.

The HTML has no script, no address and no style sheet. Colours are those of the text around it, so that it reads on
light and on dark pages and in a static export. Every name is escaped.
"""

from __future__ import annotations

import reprlib
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from markupsafe import Markup

LINE, MAX_LETTERS = 110, 60  # letters of a line of a short text, and of one value
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 520, 150, 52, 22, 8  # of a drawing, and its margins
POINTS = 200  # of a curve that are drawn
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2")  # tell curves apart without colours

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


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if np.isfinite(share) else "not known"


def points(share: float) -> str:
    """A difference of two shares."""
    return f"{100 * share:.1f} points" if np.isfinite(share) else "not known"


def p_value(p: float) -> str:
    return "not available" if not np.isfinite(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def draw(
    clock: np.ndarray,
    curves: Mapping[str, np.ndarray],
    band: tuple[np.ndarray, np.ndarray] | None = None,
    description: str = "",
) -> Markup:
    """Curves of shares over the clock as SVG, the first with a band; `description` is for screen readers."""
    keep = thinned(len(clock), POINTS)
    values = [*curves.values(), *(band or ())]
    most = max((float(np.nanmax(each)) for each in values if np.isfinite(each).any()), default=1.0)
    top = min(1.0, max(0.05, 1.1 * most))
    low, high = float(clock[0]), float(clock[-1])
    x = LEFT + (WIDTH - LEFT - 8) * (clock[keep] - low) / ((high - low) or 1.0)

    def y(shares: np.ndarray) -> np.ndarray:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * np.clip(shares, 0, top) / top

    parts = [_axes(top, low, high)]
    if band is not None:
        outline = np.append(x, x[::-1]), np.append(y(band[1][keep]), y(band[0][keep])[::-1])
        parts.append(Markup('<path d="{}Z" fill="currentColor" opacity=".15"/>').format(line_path(*outline, "h0")))
    for number, (name, shares) in enumerate(curves.items()):
        dash = DASHES[number % len(DASHES)]
        line = Markup(
            '<path d="{}" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" '
            'stroke-dasharray="{}"><title>{}</title></path>'
        )
        parts.append(line.format(line_path(x, y(shares[keep]), "h0"), dash, name))
    head = Markup('<svg role="img" aria-label="{}" viewBox="0 0 {} {}" style="width:100%;max-width:{}px">')
    key = _key(list(curves)) if len(curves) > 1 else Markup("")
    return head.format(description, WIDTH, HEIGHT, WIDTH) + Markup("").join(parts) + Markup("</svg>") + key


def _key(names: Sequence[str]) -> Markup:
    """Which curve has which dashes."""
    mark = '<svg aria-hidden="true" viewBox="0 0 30 6" style="width:30px;height:6px">'
    mark += '<path d="M0 3H30" stroke="currentColor" stroke-width="1.6" stroke-dasharray="{}"/></svg>'
    item = Markup('<span style="white-space:nowrap;margin-right:1em">' + mark + " {}</span>")
    items = [item.format(DASHES[number % len(DASHES)], name) for number, name in enumerate(names)]
    return Markup('<div style="font-size:85%">{}</div>').format(Markup(" ").join(items))


def _axes(top: float, low: float, high: float) -> Markup:
    floor = HEIGHT - BOTTOM
    text = Markup('<text x="{}" y="{}" text-anchor="{}" font-size="11" fill="currentColor">{}</text>')
    labels = [
        text.format(LEFT - 5, TOP + 8, "end", percent(top)),
        text.format(LEFT - 5, floor, "end", "0 %"),
        text.format(LEFT, HEIGHT - 6, "start", f"{low:.4g}"),
        text.format(WIDTH - 8, HEIGHT - 6, "end", f"{high:.4g}"),
        text.format((LEFT + WIDTH) // 2, HEIGHT - 6, "middle", "clock"),
    ]
    box = Markup('<path d="M{} {}V{}H{}" fill="none" stroke="currentColor" opacity=".4"/>')
    return Markup("").join([box.format(LEFT, TOP, floor, WIDTH - 8), *labels])


def thinned(n: int, most: int) -> np.ndarray:
    """At most so many of the indices below n, the first and the last among them: int of shape (kept,)."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def line_path(x: np.ndarray, y: np.ndarray, start: str = "") -> str:
    """Lines between known points as an SVG path; a gap lifts the pen.

    With "h0" at the start of every line, a point alone is a dot, which round ends make visible.
    """
    pieces, is_down = [], False
    for across, down in zip(x, y, strict=True):
        known = bool(np.isfinite(across) and np.isfinite(down))
        if known:
            pieces.append(f"L{across:.1f} {down:.1f}" if is_down else f"M{across:.1f} {down:.1f}{start}")
        is_down = known
    return "".join(pieces)
