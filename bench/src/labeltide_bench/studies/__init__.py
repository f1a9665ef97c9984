"""Benchmark studies: read a TOML file, run every fit of it once, keep a record of each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labeltide_bench.studies.method_spec import published_settings as published_settings
    from labeltide_bench.studies.records import read_records as read_records
    from labeltide_bench.studies.run import run_study as run_study
    from labeltide_bench.studies.study import Study as Study
    from labeltide_bench.studies.study import read_study as read_study

# Loaded on first use, so that reading records does not load torch.
_HOMES = {
    "Study": "labeltide_bench.studies.study",
    "published_settings": "labeltide_bench.studies.method_spec",
    "read_records": "labeltide_bench.studies.records",
    "read_study": "labeltide_bench.studies.study",
    "run_study": "labeltide_bench.studies.run",
}

__all__ = ["Study", "published_settings", "read_records", "read_study", "run_study"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"labeltide_bench.studies has no {name!r}. It has: {', '.join(__all__)}.")
    return getattr(import_module(_HOMES[name]), name)
