"""The compiled step of Adam (Kingma and Ba, 2015) with clipping, for every member of a fleet in one pass."""

from __future__ import annotations

import ctypes

from torch import Tensor

from labeltide.kernels import library


class Adam(ctypes.Structure):
    """One call, as c/adam.c declares it."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "size")),
        *((name, ctypes.c_void_p) for name in ("parameters", "mean", "variance", "gradients", "count")),
        *((name, ctypes.c_void_p) for name in ("rate", "factor", "taking_part", "diverged")),
        ("clip", ctypes.c_float),
    ]


def adam_step(changed: tuple[Tensor, ...], told: tuple[Tensor, ...], diverged: Tensor, clip: float) -> None:
    """Move the parameters in place.

    Parameters
    ----------
    changed : parameters, mean, variance, gradients of shape (members, size), and count of shape (members, 1)
    told : rate (members, 1), factor (size,), taking_part (members,)
    diverged : bool Tensor of shape (members,)
        Set for members that take part with a gradient that is not finite.
    """
    gradients = changed[3]
    tensors = (*changed, *told, diverged)
    task = Adam(*gradients.shape, *(tensor.data_ptr() for tensor in tensors), clip)
    library.run("labeltide_adam", task, len(gradients))
