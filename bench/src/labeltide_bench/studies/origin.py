"""Provenance of a record: versions, commit and device."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeltide import __version__


@cache
def origin(device: str) -> dict[str, Any]:
    """Versions, commit and device. Failures to find them raise no error."""
    versions = {
        "labeltide": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return {"versions": versions, "commit": _commit(), "device": name}


def _commit() -> str | None:
    """The commit of the checkout that labeltide runs from, "-dirty" where files differ from it.

    LABELTIDE_COMMIT names the commit of a copy without a git folder, such as on a rented machine.
    """
    file = Path(__file__).parents[1] / "__init__.py"
    commit = os.environ.get("LABELTIDE_COMMIT")
    if commit or _git("ls-files", "--error-unmatch", file.name) is None:
        return commit  # installed without a checkout: a repository around it is another one
    changed = _git("status", "--porcelain", "--untracked-files=no", ":/src", ":/bench/src")
    return (_git("rev-parse", "HEAD") or "") + ("-dirty" if changed else "")


def _git(*arguments: str) -> str | None:
    """Output of git in the folder of the package; None where it fails."""
    folder = Path(__file__).parents[1]
    try:
        answer = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
