"""Benchmark studies: read a TOML file, run every fit once, keep one JSON line for each."""

from labeltide.benchmark.run import run_study
from labeltide.benchmark.study import Study, read_study

__all__ = ["Study", "read_study", "run_study"]
