"""Settings of the documentation; `make docs` builds it into docs/_build/html and stops at any warning."""

from __future__ import annotations

import os
import re
from pathlib import Path

import labeltide

DOCS = Path(__file__).parent
SOURCE = "https://github.com/labeltide/labeltide/blob/main"
LINK = re.compile(r"(\]\()((?:\.\./)+[^)\s]+)(\))")

project, author = "labeltide", "The labeltide developers"
release = version = labeltide.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "numpydoc",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True
numpydoc_show_class_members = False
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc has them in words
exclude_patterns = ["_build", "screenshots", "*.py", "gallery/**/*.ipynb", "gallery/**/*.zip", "gallery/**/*.json"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1,
}
html_theme = "pydata_sphinx_theme"
html_title = f"labeltide {release}"
html_static_path = ["_static"]
html_css_files = ["labeltide.css"]
html_theme_options = {
    "github_url": "https://github.com/labeltide/labeltide",
    "navbar_align": "left",
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
}
copyright = "The labeltide developers, MIT licence"
suppress_warnings = ["config.cache"]  # sphinx-gallery's settings hold functions

os.environ.setdefault("OMP_NUM_THREADS", "2")


def link_to_source(app: object, name: str, source: list[str]) -> None:
    """Links out of this folder lead to the repository."""
    page = (DOCS / name).parent

    def rewrite(match: re.Match[str]) -> str:
        target = (page / match[2]).resolve()
        if target.is_relative_to(DOCS):
            return match[0]
        return f"{match[1]}{SOURCE}/{target.relative_to(DOCS.parent).as_posix()}{match[3]}"

    source[0] = LINK.sub(rewrite, source[0])


def setup(app: object) -> None:
    app.connect("source-read", link_to_source)  # type: ignore[attr-defined]
