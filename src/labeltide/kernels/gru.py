"""Compiled GRU (Cho and others 2014): all steps and the linear head in one kernel, forward and backward.

`usable` says whether the kernel supports the tensors; where it does not, `models/gru.py` computes the same with torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labeltide.kernels import choose, library

TILE_ROWS = 8  # sequences that run through the steps together; ROWS in c/gru.c
LINE_FLOATS = 16  # floats in a cache line; torch aligns every tensor to one
PADDED_UNITS = 32  # hidden units are padded to a multiple of it; UNITS in c/gru.c


class GRUTask(ctypes.Structure):
    """The arguments of one call, laid out as in c/gru.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "batch", "steps", "inputs", "hidden", "classes")),
        ("strides", ctypes.c_int64 * 6),
        ("features", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p * 6),
        *((name, ctypes.c_void_p) for name in ("out", "grad_out", "kept", "gradients", "state")),
    ]


def usable(features: Tensor, *parameters: Tensor) -> bool:
    """Whether the compiled GRU supports these tensors."""
    weight_hidden = parameters[1]
    return (
        choose("gru", features.device) == "c"
        and not features.requires_grad
        and weight_hidden.shape[1] > 0
        and all(t.dtype == torch.float32 and t.is_cpu for t in (features, *parameters))
        and all(p.shape[1:].numel() == 0 or p[0].is_contiguous() for p in parameters)
        and 0 not in features.shape
    )


def fused_gru(features: Tensor, *parameters: Tensor) -> Tensor:
    """Hidden states of every step, (members, batch, steps, hidden), or logits where the parameters have a linear head.

    Parameters
    ----------
    features : Tensor of shape (members, batch, steps, inputs)
    parameters : weights of inputs and hidden states, of shape (members, inputs or hidden, 3 * hidden), their biases
        (members, 1, 3 * hidden) and, for logits, the head's weight (members, hidden, classes) and bias
    """
    keep = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)
    return _FusedGRU.apply(keep, features.contiguous(), *parameters)


def fused_advance(features: Tensor, state: Tensor, *parameters: Tensor) -> Tensor:
    """Logits of the next steps of sequences whose hidden state is `state`, shape (members, batch, hidden).

    The state is updated in place and no gradient is kept. Step by step gives the same bits as `fused_gru` at once.
    """
    task = make_gru_task(features, parameters)
    out = features.new_empty(*features.shape[:3], task.classes)
    task.out, task.state = out.data_ptr(), state.data_ptr()
    library.run("labeltide_gru_forward", task, task.members * -(-task.batch // TILE_ROWS))
    return out


class _FusedGRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keep: bool, features: Tensor, *parameters: Tensor) -> Tensor:
        task = make_gru_task(features, parameters)
        tiles = -(-task.batch // TILE_ROWS)
        out = features.new_empty(*features.shape[:3], task.classes or task.hidden)
        kept = features.new_empty(task.members * tiles * kept_size(task)) if keep else None
        task.out, task.kept = out.data_ptr(), library.pointer(kept)
        library.run("labeltide_gru_forward", task, task.members * tiles)
        ctx.save_for_backward(features, kept, *parameters)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        features, kept, *parameters = ctx.saved_tensors
        task, grad = make_gru_task(features, parameters), grads[0].contiguous()
        tiles = -(-task.batch // TILE_ROWS)
        sizes = [parameter[0].numel() for parameter in parameters]
        parts = features.new_empty(task.members, tiles, sum(sizes))
        task.kept, task.grad_out, task.gradients = kept.data_ptr(), grad.data_ptr(), parts.data_ptr()
        library.run("labeltide_gru_backward", task, task.members * tiles)
        sums = features.new_empty(task.members, sum(sizes))
        sum_task = SumTask(task.members, tiles, sum(sizes), sum(sizes), parts.data_ptr(), sums.data_ptr())
        library.run("labeltide_sum", sum_task, task.members)
        gradients = zip(sums.split(sizes, 1), parameters, strict=True)
        return None, None, *(gradient.view(parameter.shape) for gradient, parameter in gradients)


def kept_size(task: GRUTask) -> int:
    """Floats that a tile keeps for its gradient: states, gates and inputs of all steps, aligned to cache lines."""
    inputs = -(-task.steps * TILE_ROWS * task.inputs // LINE_FLOATS) * LINE_FLOATS
    hidden = -(-task.hidden // PADDED_UNITS) * PADDED_UNITS
    return (5 * task.steps + 1) * TILE_ROWS * hidden + inputs


def make_gru_task(features: Tensor, parameters: Sequence[Tensor]) -> GRUTask:
    """The arguments of one call without its outputs; the tensors must outlive them."""
    classes = parameters[4].shape[2] if len(parameters) > 4 else 0
    task = GRUTask(*features.shape, parameters[1].shape[1], classes)
    task.features = features.data_ptr()
    for i, parameter in enumerate(parameters):
        task.strides[i], task.parameters[i] = parameter.stride(0), parameter.data_ptr()
    return task


class SumTask(ctypes.Structure):
    """The arguments of a sum over the second axis, laid out as in c/pool.c; the bits do not depend on threads."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "count", "size", "stride")),
        *((name, ctypes.c_void_p) for name in ("parts", "sums")),
    ]
