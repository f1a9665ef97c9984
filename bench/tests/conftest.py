"""One thread for torch, and the same settings of hypothesis as labeltide's own tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import shared_settings  # noqa: F401
