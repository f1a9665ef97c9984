"""Style of figures, and their SVG and PNG files, for light and dark pages."""

from __future__ import annotations

import io
import math
import re
import textwrap
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from labeltide._files import write_atomically
from labeltide_bench.pages.method_order import base_name

Palette = Mapping[str, str]  # method → colour, for all figures of a page
COLOURS = {
    "ignore": "#8b93a1",
    "anchor": "#c28b1e",
    "volmin": "#b5653a",
    "plugin": "#3f9c6b",
    "discontinuous": "#2b93c9",
    "continuous": "#7d6fd6",
    "tide": "#e0485c",
    "known": "#4f9a9a",
}
SPARE = (
    "#d36ba6",
    "#6f9a2e",
    "#5f86d6",
    "#9c8a5a",
    "#a97bc9",
    "#b8554f",
    "#c77f3f",
)  # read on black and on white
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
ENTRY, LINE = 1.9, 0.19  # inches of a legend's entry and of its line
LARGE = 400_000  # characters of SVG above which a page carries the PNG instead
INK = "#1f2430"  # the one colour that a page may turn to its own
SETTINGS: Any = {  # Any: matplotlib types its several hundred keys one by one
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.14,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # names are shown as they are, dollar signs and all
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.bottom": False,  # the grid marks the places
    "ytick.left": False,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "lines.linewidth": 1.5,
}


@dataclass(frozen=True)
class Picture:
    """A drawn figure, ready for a page and for files."""

    name: str
    caption: str
    alt: str
    svg: str
    png: bytes
    width: int  # in the page's pixels, at which its text is as large as the page's small print

    @property
    def inline(self) -> str:
        """Markup for the page: small SVG in the page's own ink, or an embedded PNG."""
        if len(self.svg) <= LARGE:
            return inline_svg(self.svg, self.alt)
        data = b64encode(self.png).decode()
        return f'<img alt="{escape(self.alt)}" src="data:image/png;base64,{data}">'

    def save(self, folder: Path) -> None:
        write_atomically(folder / f"{self.name}.svg", self.svg.encode())
        write_atomically(folder / f"{self.name}.png", self.png)


def picture(figure: Figure, name: str, caption: str, alt: str) -> Picture:
    """Save a figure in both forms; the same figure gives the same bytes."""
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
        svg = io.StringIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=140, facecolor="white", metadata={"Software": None})
    width = round(figure.get_figwidth() * 96)
    return Picture(name, caption, alt, shorten(svg.getvalue()), png.getvalue(), width)


def shown(name: str, width: int = 18, lines: int = 2) -> str:
    """A name that fits a small panel; control characters, which no SVG may hold, become blanks."""
    clean = " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())
    text = textwrap.wrap(clean, width, max_lines=lines, placeholder=" …") or ["unnamed"]
    return "\n".join(text)


def colours(methods: Sequence[str]) -> dict[str, str]:
    """A colour for each method: a known one keeps its own, a second form of it and unknown ones get spare ones.

    A method under its plain name comes first, so that "continuous (paper's code)" never takes the colour of continuous.
    """
    taken: dict[str, str] = {}
    spare = iter(SPARE * (1 + len(methods) // len(SPARE)))
    for method in sorted(methods, key=lambda name: name != base_name(name)):
        usual = COLOURS.get(base_name(method))
        taken[method] = usual if usual and usual not in taken.values() else next(spare)
    return {method: taken[method] for method in methods}


def fence(values: Iterable[float]) -> float:
    """The largest value that is no outlier: at most three interquartile ranges above the upper quartile (Tukey 1977).

    An axis that ends there is not set by one collapsed run.
    """
    kept = np.array([value for value in values if math.isfinite(value)], dtype=float)
    if not kept.size:
        return 0.0
    low, high = np.percentile(kept, [25, 75])
    return float(kept[kept <= high + 3 * (high - low)].max())


def grid(
    rows: int,
    columns: int,
    panel: tuple[float, float],
    *,
    entries: int = 0,
    left: float = 0.72,
    gap: float = 0.16,
    row_gap: float = 0.2,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of equal small panels, with room on the left for labels and below for a legend; all in inches.

    The places are set by hand: matplotlib's own layout takes longer than all of the drawing.
    """
    top, right = 0.42, 0.12
    width = max(left + columns * (panel[0] + gap) - gap + right, 3.4)
    bottom = 0.56 + LINE * math.ceil(entries / _legend_columns(width, entries))
    height = top + rows * (panel[1] + row_gap) - row_gap + bottom
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    indices = {
        "left": left / width,
        "right": 1 - right / width,
        "top": 1 - top / height,
        "bottom": bottom / height,
        "wspace": gap / panel[0],
        "hspace": row_gap / panel[1],
    }
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey="row", gridspec_kw=indices)
    for axis in axes.flat:
        axis.xaxis.set_major_locator(MaxNLocator(4 if panel[0] > 1.5 else 3, steps=[1, 2, 5, 10]))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return figure, [list(row) for row in axes]


def legend(figure: Figure, names: Sequence[str], looks: Sequence[dict[str, Any]]) -> None:
    """One legend below all panels, where it covers nothing; `grid` made room for this many entries."""
    handles = [Line2D([], [], **look) for look in looks]
    # A label that starts with an underscore would be left out: a blank of no width goes before it.
    labels = [("\N{ZERO WIDTH SPACE}" if name.startswith("_") else "") + shown(name, 26, 1) for name in names]
    columns = _legend_columns(figure.get_figwidth(), len(names))
    figure.legend(handles, labels, loc="lower center", ncols=columns, borderaxespad=0.2, labelspacing=0.3)


def _legend_columns(width: float, entries: int) -> int:
    """As many as fit side by side, in rows of about the same length."""
    most = max(1, int(width / ENTRY))
    return max(1, math.ceil(entries / math.ceil(entries / most))) if entries else 1


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
