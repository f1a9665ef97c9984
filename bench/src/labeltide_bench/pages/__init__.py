"""Reports of studies: tables, figures and one HTML page, from records alone, without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labeltide_bench.pages.figures import draw_noise as draw_noise
    from labeltide_bench.pages.paper.page import write_paper as write_paper
    from labeltide_bench.pages.report import write_report as write_report

# Loaded on first use, so that importing this package does not load matplotlib.
_HOMES = {
    "draw_noise": "labeltide_bench.pages.figures",
    "write_paper": "labeltide_bench.pages.paper.page",
    "write_report": "labeltide_bench.pages.report",
}

__all__ = ["draw_noise", "write_paper", "write_report"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"labeltide_bench.pages has no {name!r}. It has: {', '.join(__all__)}.")
    return getattr(import_module(_HOMES[name]), name)
