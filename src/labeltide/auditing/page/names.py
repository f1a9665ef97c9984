"""Names from the user's table, sanitised for display: one short line without control characters."""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup, escape

ISOLATE, END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
SHORT, LONG = 40, 200  # letters in a cell; letters kept in the page's data
TEXT = 1200  # letters of a sentence that may hold names

# Controls, half characters, and the marks that change the direction of whatever follows them.
_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]"
)


def clean(value: Any) -> str:
    """One line of visible text; what no page or terminal should meet becomes a blank."""
    return " ".join(_UNSEEN.sub(" ", str(value)).split())


def sound(value: Any) -> str:
    """The text as it is, less the half characters that no file can hold."""
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shorten(text: str, limit: int = SHORT) -> str:
    """A long text with its middle left out: ids differ at their ends as often as at their beginnings."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return text[: limit - tail - 1] + ELLIPSIS + text[len(text) - tail :]


def display_name(value: Any, limit: int = SHORT) -> str:
    """A name for a heading, a cell or a drawing."""
    return shorten(clean(value), limit) or "unnamed"


def in_quotes(value: Any, limit: int = SHORT) -> str:
    """A name inside a sentence, kept apart from the direction of the words around it."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{ISOLATE}{display_name(value, limit)}{END}\N{RIGHT DOUBLE QUOTATION MARK}"


def terminal_text(text: str) -> str:
    """A sentence for a terminal: without the invisible marks, with straight quotation marks."""
    return clean(text.replace(ISOLATE, "").replace(END, "")).translate({0x201C: '"', 0x201D: '"'})


def name_markup(value: Any, limit: int = SHORT) -> Markup:
    """A name for the page; where it was shortened, more of it shows on pointing."""
    short, whole = display_name(value, limit), display_name(value, LONG)
    title = Markup(' title="{}"').format(whole) if whole != short else ""
    return Markup("<bdi{}>{}</bdi>").format(title, short)


def text_markup(value: Any) -> Markup:
    """A sentence that may hold names."""
    return escape(shorten(clean(value), TEXT))
