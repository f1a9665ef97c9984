"""Settings of the documentation; `make docs` builds it into docs/_build/html and stops at any warning."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import build_pages  # noqa: E402
import site_files  # noqa: E402

import labeltide  # noqa: E402

SOURCE = "https://github.com/labeltide/labeltide/blob/main"
LINK = re.compile(r"(\]\()((?:\.\./)+[^)\s]+)(\))")

project, author = "labeltide", "The labeltide developers"
copyright = "The labeltide developers, MIT licence"
release = version = labeltide.__version__
extensions = [
    "myst_nb",
    "mathml",
    "sphinx_design",
]
exclude_patterns = ["_build", "screenshots", "*.py"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_update_mathjax = False
html_math_renderer = "mathml"
nb_execution_mode = "cache"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = f"labeltide {release}"
html_baseurl = site_files.ADDRESS
language = "en"
html_static_path = ["_static"]
html_extra_path = [str(build_pages.LIVE)]  # the report that the first page shows
html_css_files = ["labeltide.css"]
html_copy_source = False
html_theme_options = {
    "github_url": "https://github.com/labeltide/labeltide",
    "navbar_align": "left",
    "show_prev_next": True,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}

os.environ.setdefault("OMP_NUM_THREADS", "2")
build_pages.LIVE.mkdir(parents=True, exist_ok=True)


def prepare_source(app: object, name: str, source: list[str]) -> None:
    """Links out of this folder lead to the repository."""
    page = (DOCS / name).parent

    def rewrite(match: re.Match[str]) -> str:
        target = (page / match[2]).resolve()
        if target.is_relative_to(DOCS):
            return match[0]
        return f"{match[1]}{SOURCE}/{target.relative_to(DOCS.parent).as_posix()}{match[3]}"

    source[0] = LINK.sub(rewrite, source[0])


def add_card(app: object, name: str, template: str, context: dict[str, Any], tree: object) -> None:
    """The social card of a page."""
    context["metatags"] = context.get("metatags", "") + site_files.card(context)


def setup(app: Any) -> None:
    build_pages.write_reference()
    build_pages.write_live_report()
    app.connect("source-read", prepare_source)
    app.connect("html-page-context", add_card)
    app.connect("build-finished", lambda app, error: error or site_files.write(Path(app.outdir)), priority=900)
    app.connect("build-finished", lambda app, error: build_pages.remove_source_maps(Path(app.outdir)))
