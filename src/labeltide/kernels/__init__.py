"""Compiled kernels, in C for processors and in Triton for GPUs, and the one function that chooses among them.

Every kernel has a plain torch version elsewhere in the library, which defines what it computes. A kernel is used only
where its own self-check passed (`check`), so a miscompiled kernel costs time and never changes a result.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import torch

from labeltide.kernels import library

KERNELS = ("gru", "network", "objective", "adam", "chain")  # the compiled ones; see the file of each name
TRITON = ("gru", "chain")
Backend = Literal["c", "triton", "torch"]


def choose(kernel: str, device: torch.device) -> Backend:
    """What computes this kernel on this device; the environment variable LABELTIDE_KERNELS has the last word."""
    if device.type == "cpu":
        active = library.active()
        return "c" if active is not None and active.offers(kernel) else "torch"
    if device.type == "cuda" and kernel in TRITON and library.requested() != "torch" and find_spec("triton"):
        return "triton"
    return "torch"
