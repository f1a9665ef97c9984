"""Compiled Adam (Kingma and Ba 2015) with gradient clipping by norm (Pascanu and others 2013), per member of a fleet.

The equations are those of `TrainingState.adam`. One pass updates both moments and the parameters.
"""

from __future__ import annotations

import ctypes

from torch import Tensor

from labeltide.kernels import library


class AdamTask(ctypes.Structure):
    """The arguments of one call, laid out as in c/adam.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "size")),
        *((name, ctypes.c_void_p) for name in ("parameters", "mean", "variance", "gradients", "count")),
        *((name, ctypes.c_void_p) for name in ("rate", "factor", "taking_part", "diverged")),
        ("clip", ctypes.c_float),
    ]


def adam_step(updated: tuple[Tensor, ...], settings: tuple[Tensor, ...], diverged: Tensor, clip: float) -> None:
    """Take one step of Adam in place, with each member's gradient clipped to the norm `clip`.

    Parameters
    ----------
    updated : parameters, mean, variance, gradients of shape (members, size), and count of shape (members, 1)
    settings : rate (members, 1), factor (size,), taking_part (members,)
    diverged : bool Tensor of shape (members,)
        Set to True for members that take part and whose gradient is not finite.
    """
    gradients = updated[3]
    tensors = (*updated, *settings, diverged)
    task = AdamTask(*gradients.shape, *(tensor.data_ptr() for tensor in tensors), clip)
    library.run("labeltide_adam", task, len(gradients))
