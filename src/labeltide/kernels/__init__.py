"""Compiled kernels, in C for CPUs and in Triton for GPUs, and `choose`, which selects the backend of a kernel.

Every kernel has a reference implementation in torch elsewhere in the library. A kernel is used only if its self-check
passed (`check`), so a miscompiled kernel costs time and does not change results.
"""

from labeltide.kernels.library import KERNELS, TRITON_KERNELS, choose

__all__ = ["KERNELS", "TRITON_KERNELS", "choose"]
