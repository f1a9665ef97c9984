"""Figure 1 of the paper: bars of static and temporal methods on one data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from labeltide_bench.pages.paper.panel import nice_ticks

WIDTH, ROW, LEFT, RIGHT, TOP = 330, 22, 92, 40, 20


class Bar(NamedTuple):
    """One method: ours with its interval, and the paper's number where it printed one."""

    key: str
    name: str
    value: float
    lower: float
    upper: float
    paper: float | None = None
    paper_spread: float = 0.0


def draw_bars(title: str, bars: Sequence[Bar], top: float | None = None) -> str:
    """Horizontal bars, which leave room for names; the paper's number is a dashed mark over a light band."""
    ticks = nice_ticks(top or max(max(bar.upper, (bar.paper or 0) + bar.paper_spread) for bar in bars))
    height, right = TOP + ROW * len(bars) + 20, WIDTH - RIGHT
    foot = TOP + ROW * len(bars)

    def place(value: float) -> float:
        return LEFT + min(max(value / ticks[-1], 0), 1) * (right - LEFT)

    parts = [f'<text x="0" y="12" class="t">{escape(title)}</text>']
    parts.append(f'<path class="g" d="{"".join(f"M{place(tick):.1f} {TOP}V{foot}" for tick in ticks)}"/>')
    parts += [f'<text x="{place(tick):.1f}" y="{foot + 13}" class="x">{tick:g}</text>' for tick in ticks]
    for row, bar in enumerate(bars):
        parts.append(_bar(bar, TOP + ROW * row, place))
    alt = f"{title}: " + ", ".join(f"{bar.name} {bar.value:.1f}" for bar in bars)
    return f'<svg role="img" aria-label="{escape(alt)}" viewBox="0 0 {WIDTH} {height}">{"".join(parts)}</svg>'


def _bar(bar: Bar, top: float, place: Callable[[float], float]) -> str:
    middle = top + ROW / 2
    paper = ""
    if bar.paper is not None:
        low, high = place(bar.paper - bar.paper_spread), place(bar.paper + bar.paper_spread)
        paper = (
            f'<g class="p"><rect class="b" x="{low:.1f}" y="{top + 1}" width="{high - low:.1f}" height="{ROW - 2}"/>'
            f'<path class="d" d="M{place(bar.paper):.1f} {top + 1}v{ROW - 2}"/></g>'
        )
    return (
        f'<text x="{LEFT - 5}" y="{middle + 4:g}" class="y">{escape(bar.name)}</text><g class="c-{bar.key}">'
        f'<g class="o"><rect class="f" x="{LEFT}" y="{top + 5}" width="{place(bar.value) - LEFT:.1f}" '
        f'height="{ROW - 10}"/>'
        f'<path class="e" d="M{place(bar.lower):.1f} {middle:g}H{place(bar.upper):.1f}"/></g>{paper}</g>'
        f'<text x="{WIDTH - RIGHT + 6}" y="{middle + 4:g}" class="n">{bar.value:.1f}</text>'
    )
