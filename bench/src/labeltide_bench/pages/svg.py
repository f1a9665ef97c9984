"""Compact SVG from matplotlib, so that a page can hold a hundred figures on a light or dark background."""

from __future__ import annotations

import re
from html import escape

INK = "#1f2430"  # the one colour that a page may turn to its own


def shorten(svg: str) -> str:
    """Remove invisible parts: decimals of coordinates, bare groups, metadata, repeated styles."""
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(?<= d=")[^"]*', lambda match: _short_path(match[0]), svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(-?\d+\.\d\d)\d+", r"\1", tag[0]), svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    return _share_styles(_unwrap(svg))


def _short_path(path: str) -> str:
    """One decimal, a tenth of a point, and no blanks that the letters make needless."""
    path = re.sub(r"(-?\d+\.\d)\d+", r"\1", path)
    return re.sub(r"\s*([MLCQz])\s*", r"\1", path).strip()


def _unwrap(svg: str) -> str:
    """Take away groups without attributes, which only nest."""
    kept, is_bare = [], []
    for part in re.split(r"(<g\b[^>]*>\n?|</g>\n?)", svg):
        if part.startswith("<g"):
            is_bare.append(part.strip() == "<g>")
            kept.append("" if is_bare[-1] else part)
        elif part.startswith("</g>"):
            kept.append("" if is_bare.pop() else part)
        else:
            kept.append(part)
    return "".join(kept)


def _share_styles(svg: str) -> str:
    """Write the style of a row of markers once, around them."""
    row = re.compile(r'(?:<use [^>]*? style="([^"]*)"/>\n)(?:<use [^>]*? style="\1"/>\n)+')

    def share(match: re.Match[str]) -> str:
        return f'<g style="{match[1]}">\n{re.sub(r" style=.[^>]*(?=/>)", "", match[0])}</g>\n'

    return row.sub(share, svg)


def inline_svg(svg: str, alt: str) -> str:
    """The drawing alone, without the parts that only a file needs, and with the page's text colour for ink."""
    body = svg[svg.index("<svg") :]
    head, rest = body.split(">", 1)
    view = re.search(r'viewBox="[^"]*"', head)
    head = f'<svg role="img" aria-label="{escape(alt)}" {view[0] if view else ""}'
    return f"{head}>{rest}".replace("xlink:href", "href").replace(INK, "currentColor")
