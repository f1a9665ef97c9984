"""Compiled kernels, in C for CPUs and in Triton for GPUs, and `choose`, which selects the backend of a kernel.

Every kernel has a reference implementation in torch elsewhere in the library. A kernel is used only if its self-check
passed (`check`), so a miscompiled kernel costs time and does not change results.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import torch

from labeltide.kernels import library

KERNELS = ("gru", "network", "objective", "adam", "chain")  # implemented in C, each in the file of its name
TRITON_KERNELS = ("gru", "chain")
Backend = Literal["c", "triton", "torch"]


def choose(kernel: str, device: torch.device) -> Backend:
    """The backend of a kernel on a device; the environment variable LABELTIDE_KERNELS overrides the choice."""
    if device.type == "cpu":
        active = library.active()
        return "c" if active is not None and active.offers(kernel) else "torch"
    if device.type == "cuda" and kernel in TRITON_KERNELS and library.requested() != "torch" and find_spec("triton"):
        return "triton"
    return "torch"
