"""Compiled deterministic reduction: sums over the tiles of each member, taken in a fixed order."""

from __future__ import annotations

import ctypes

from torch import Tensor

from labeltide.kernels import library


class SumTask(ctypes.Structure):
    """The arguments of one call, laid out as in c/pool.c. Results have the same bits on any number of threads."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "count", "size", "stride")),
        *((name, ctypes.c_void_p) for name in ("parts", "sums")),
    ]


def sum_parts(parts: Tensor) -> Tensor:
    """Sum (members, count, size) over its second axis."""
    members, count, size = parts.shape
    sums = parts.new_empty(members, size)
    library.run("labeltide_sum", SumTask(members, count, size, size, parts.data_ptr(), sums.data_ptr()), members)
    return sums
