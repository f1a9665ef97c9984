"""The templates of all pages, with escaping switched on."""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def make_environment() -> Environment:
    """Templates of reports, and the style sheet that they share with the page of an audit."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("labeltide_bench.pages"), PackageLoader("labeltide.auditing.page")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawing"] = lambda picture: Markup(picture.inline)
    environment.filters["markup"] = Markup  # of drawings made here, whose texts are escaped
    return environment
