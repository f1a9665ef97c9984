"""The compiled GRU, fused over time.

Where there was no compiler, or the tensors are not what it is written for, `usable` says no and `gru.py` does the same
with torch alone.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from labeltide import _native

ROWS = 8  # sequences that run through the steps together, as in _native_gru.c
CHUNKS = 4  # parts of a batch summed apart; a fixed number, so that sums depend neither on threads nor on members
MULTIPLE = 32  # hidden units come in pairs of the widest vectors


class Shape(ctypes.Structure):
    """The sizes of one call, as _native_gru.c declares them."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("members", "batch", "steps", "inputs", "hidden", "chunks"),
            *("stride_weight_input", "stride_weight_hidden", "stride_bias_input", "stride_bias_hidden"),
        )
    ]


def usable(features: Tensor, *parameters: Tensor) -> bool:
    """Whether the compiled GRU can take these tensors."""
    weight_hidden = parameters[1]
    return (
        _native.library() is not None
        and not features.requires_grad
        and weight_hidden.shape[1] % MULTIPLE == 0
        and all(t.dtype == torch.float32 and t.device.type == "cpu" for t in (features, *parameters))
        and all(p.shape[1:].numel() == 0 or p[0].is_contiguous() for p in parameters)
        and 0 not in features.shape
    )


def fused_gru(
    features: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias_input: Tensor, bias_hidden: Tensor
) -> Tensor:
    """Hidden states of every step, starting from zero: shape (members, batch, steps, hidden).

    Parameters
    ----------
    features : Tensor of shape (members, batch, steps, inputs)
    weight_input, weight_hidden : Tensor of shape (members, inputs or hidden, 3 * hidden)
    bias_input, bias_hidden : Tensor of shape (members, 1, 3 * hidden)
    """
    parameters = (weight_input, weight_hidden, bias_input, bias_hidden)
    keep = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)
    return _FusedGRU.apply(keep, features.contiguous(), *parameters)


class _FusedGRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keep: bool, features: Tensor, *parameters: Tensor) -> Tensor:
        members, batch, steps, inputs = features.shape
        hidden = parameters[1].shape[1]
        tiles = -(-batch // ROWS)
        chunks = min(tiles, CHUNKS)
        shape = Shape(members, batch, steps, inputs, hidden, chunks, *(p.stride(0) for p in parameters))
        out = features.new_empty(members, batch, steps, hidden)
        kept = features.new_empty(members * tiles * steps * 4 * ROWS * hidden) if keep else None
        arguments = (ctypes.byref(shape), features, *parameters, out, kept)
        _native.call("labeltide_gru_forward", arguments, members * chunks)
        ctx.shape = shape
        ctx.save_for_backward(features, parameters[1], out, kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        features, weight_hidden, out, kept = ctx.saved_tensors
        shape = ctx.shape
        items, width = shape.members * shape.chunks, 3 * shape.hidden
        sizes = ((shape.inputs, width), (shape.hidden, width), (1, width), (1, width))
        sums = [features.new_empty(items, *size) for size in sizes]
        back = weight_hidden.transpose(1, 2).contiguous()
        arguments = (ctypes.byref(shape), features, back, out, kept, grads[0].contiguous(), *sums)
        _native.call("labeltide_gru_backward", arguments, items)
        return None, None, *(part.unflatten(0, (shape.members, shape.chunks)).sum(1) for part in sums)
