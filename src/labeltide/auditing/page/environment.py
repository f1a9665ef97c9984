"""The templates of the pages, in which everything is escaped."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from labeltide.auditing.page.names import name_markup, text_markup
from labeltide.auditing.page.numbers import percent


def environment() -> Environment:
    """The templates of the pages; what came from a table is escaped."""
    found = Environment(
        loader=PackageLoader("labeltide.auditing.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(name=name_markup, text=text_markup, percent=percent)
    return found
