"""GRU (Cho and others 2014) of a fleet as two Triton kernels: one program runs all steps of 16 rows of one member.

State and weights stay in registers over all steps, and the weight gradient is summed there too. Only the gates and
states that the backward pass needs are written to memory. The equations are those of `models/gru.py`. Each
matrix product is three tf32 products, which gives float32 accuracy on tensor cores. Without a GPU the kernels run in
Triton's interpreter (``TRITON_INTERPRET=1``).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAM_ROWS = 16  # the smallest number of rows that a tensor core takes
MAX_INPUTS = 16  # more inputs are projected by torch outside the kernels, and so is their gradient
HIDDEN_SIZES = (16, 32, 64)  # the weight gradient of a member must fit into the registers of one program


def usable(features: Tensor, *parameters: Tensor) -> bool:
    """Whether the Triton kernels support these tensors."""
    hidden = parameters[1].shape[1]
    return (
        not features.requires_grad
        and hidden in HIDDEN_SIZES
        and all(t.dtype == torch.float32 for t in (features, *parameters))
        and all(p[0].is_contiguous() for p in parameters)
        and 0 not in features.shape
    )


def triton_gru(features: Tensor, *parameters: Tensor) -> Tensor:
    """Hidden states of every step: shape (members, batch, steps, hidden). Arguments as of `kernels.gru.fused_gru`."""
    keep = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)
    return _TritonGRU.apply(keep, features.contiguous(), *parameters)


class _TritonGRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keep: bool, features: Tensor, *parameters: Tensor) -> Tensor:
        members, batch, steps, inputs = features.shape
        hidden = parameters[1].shape[1]
        out = features.new_empty(members, batch, steps, hidden)
        kept = features.new_empty((members, batch, steps, 4, hidden) if keep else (1,))
        ctx.sizes = {
            "INPUTS": max(16, triton.next_power_of_2(inputs)),
            "HIDDEN": hidden,
            "ROWS": PROGRAM_ROWS,
            "PROJECTED": inputs > MAX_INPUTS,
            "num_warps": 4 if hidden <= 32 else 8,
        }
        source = features
        if inputs > MAX_INPUTS:  # the input part of the gates of all steps: (members, batch, steps, 3 * hidden)
            gates = torch.baddbmm(parameters[2], features.flatten(1, 2), parameters[0])
            source = gates.unflatten(1, (batch, steps))
        strides = [parameter.stride(0) for parameter in parameters]
        arguments = (source, *parameters, *strides, out, kept, batch, steps, inputs)
        _forward[(members, triton.cdiv(batch, PROGRAM_ROWS))](*arguments, KEEP=keep, **ctx.sizes)
        ctx.save_for_backward(features, parameters[1], out, kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        features, weight_hidden, out, kept = ctx.saved_tensors
        members, batch, steps, inputs = features.shape
        hidden, width = weight_hidden.shape[1:]
        projected = ctx.sizes["PROJECTED"]
        tiles = triton.cdiv(batch, PROGRAM_ROWS)
        shapes = ((1, 1) if projected else (inputs, width), (hidden, width), (1, width), (1, width))
        sums = [features.new_empty(members, tiles, *shape) for shape in shapes]
        gates = features.new_empty((members, batch, steps, width) if projected else (1,))
        arguments = (features, weight_hidden, weight_hidden.stride(0), out, kept, grads[0].contiguous(), *sums, gates)
        _backward[(members, tiles)](*arguments, batch, steps, inputs, **ctx.sizes)
        weight_input, *others = (part.sum(1) for part in sums)
        if projected:
            weight_input = features.flatten(1, 2).transpose(1, 2) @ gates.flatten(1, 2)
        return None, None, weight_input, *others


@triton.jit
def _dot(a, b):  # type: ignore[no-untyped-def]
    return tl.dot(a, b, input_precision="tf32x3")


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    features, weight_input, weight_hidden, bias_input, bias_hidden,
    stride_weight_input, stride_weight_hidden, stride_bias_input, stride_bias_hidden,
    out, kept, batch, steps, inputs,
    KEEP: tl.constexpr, INPUTS: tl.constexpr, HIDDEN: tl.constexpr, ROWS: tl.constexpr, PROJECTED: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    unit, source = tl.arange(0, HIDDEN), tl.arange(0, INPUTS)
    real_row, real_input = rows < batch, source < inputs
    own_hidden = weight_hidden + member * stride_weight_hidden + unit[:, None] * (3 * HIDDEN) + unit[None, :]
    hidden_reset = tl.load(own_hidden)
    hidden_update = tl.load(own_hidden + HIDDEN)
    hidden_new = tl.load(own_hidden + 2 * HIDDEN)
    from_hidden = bias_hidden + member * stride_bias_hidden + unit
    bias_reset, bias_update = tl.load(from_hidden), tl.load(from_hidden + HIDDEN)
    bias_mix = tl.load(from_hidden + 2 * HIDDEN)
    if not PROJECTED:
        own_input = weight_input + member * stride_weight_input + source[:, None] * (3 * HIDDEN) + unit[None, :]
        input_reset = tl.load(own_input, mask=real_input[:, None], other=0.0)
        input_update = tl.load(own_input + HIDDEN, mask=real_input[:, None], other=0.0)
        input_new = tl.load(own_input + 2 * HIDDEN, mask=real_input[:, None], other=0.0)
        from_input = bias_input + member * stride_bias_input + unit
        bias_reset += tl.load(from_input)
        bias_update += tl.load(from_input + HIDDEN)
        bias_new = tl.load(from_input + 2 * HIDDEN)
    first = (member * batch + rows) * steps  # each row's first step among all steps of all rows
    state = tl.zeros((ROWS, HIDDEN), tl.float32)
    for t in range(steps):
        at = first + t
        if PROJECTED:
            own_gates = features + at[:, None] * (3 * HIDDEN) + unit[None, :]
            gate_reset = tl.load(own_gates, mask=real_row[:, None], other=0.0)
            gate_update = tl.load(own_gates + HIDDEN, mask=real_row[:, None], other=0.0)
            gate_new = tl.load(own_gates + 2 * HIDDEN, mask=real_row[:, None], other=0.0)
        else:
            real = real_row[:, None] & real_input[None, :]
            x = tl.load(features + at[:, None] * inputs + source[None, :], mask=real, other=0.0)
            gate_reset, gate_update = _dot(x, input_reset), _dot(x, input_update)
            gate_new = _dot(x, input_new) + bias_new[None, :]
        reset = tl.sigmoid(gate_reset + _dot(state, hidden_reset) + bias_reset[None, :])
        update = tl.sigmoid(gate_update + _dot(state, hidden_update) + bias_update[None, :])
        mix = _dot(state, hidden_new) + bias_mix[None, :]
        new = _tanh(gate_new + reset * mix)
        state = new + update * (state - new)
        tl.store(out + at[:, None] * HIDDEN + unit[None, :], state, mask=real_row[:, None])
        if KEEP:
            own_kept = kept + at[:, None] * (4 * HIDDEN) + unit[None, :]
            tl.store(own_kept, reset, mask=real_row[:, None])
            tl.store(own_kept + HIDDEN, update, mask=real_row[:, None])
            tl.store(own_kept + 2 * HIDDEN, new, mask=real_row[:, None])
            tl.store(own_kept + 3 * HIDDEN, mix, mask=real_row[:, None])


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    features, weight_hidden, stride_weight_hidden, out, kept, grad_out,
    sum_weight_input, sum_weight_hidden, sum_bias_input, sum_bias_hidden, grad_gates, batch, steps, inputs,
    INPUTS: tl.constexpr, HIDDEN: tl.constexpr, ROWS: tl.constexpr, PROJECTED: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    unit, source = tl.arange(0, HIDDEN), tl.arange(0, INPUTS)
    real_row, real_input = rows < batch, source < inputs
    # Transposed on loading: back[j, i] = weight[i, j].
    own_hidden = weight_hidden + member * stride_weight_hidden + unit[None, :] * (3 * HIDDEN) + unit[:, None]
    back_reset, back_update = tl.load(own_hidden), tl.load(own_hidden + HIDDEN)
    back_new = tl.load(own_hidden + 2 * HIDDEN)
    first = (member * batch + rows) * steps
    carry = tl.zeros((ROWS, HIDDEN), tl.float32)
    grad_hidden_reset = tl.zeros((HIDDEN, HIDDEN), tl.float32)
    grad_hidden_update = tl.zeros((HIDDEN, HIDDEN), tl.float32)
    grad_hidden_new = tl.zeros((HIDDEN, HIDDEN), tl.float32)
    if not PROJECTED:
        grad_input_reset = tl.zeros((INPUTS, HIDDEN), tl.float32)
        grad_input_update = tl.zeros((INPUTS, HIDDEN), tl.float32)
        grad_input_new = tl.zeros((INPUTS, HIDDEN), tl.float32)
    bias_reset = tl.zeros((HIDDEN,), tl.float32)
    bias_update = tl.zeros((HIDDEN,), tl.float32)
    bias_new = tl.zeros((HIDDEN,), tl.float32)
    bias_mix = tl.zeros((HIDDEN,), tl.float32)
    for step in range(steps):
        t = steps - 1 - step
        at = first + t
        own_kept = kept + at[:, None] * (4 * HIDDEN) + unit[None, :]
        reset = tl.load(own_kept, mask=real_row[:, None], other=0.0)
        update = tl.load(own_kept + HIDDEN, mask=real_row[:, None], other=0.0)
        new = tl.load(own_kept + 2 * HIDDEN, mask=real_row[:, None], other=0.0)
        mix = tl.load(own_kept + 3 * HIDDEN, mask=real_row[:, None], other=0.0)
        has_before = real_row & (at > first)
        before = tl.load(out + (at[:, None] - 1) * HIDDEN + unit[None, :], mask=has_before[:, None], other=0.0)
        grad = carry + tl.load(grad_out + at[:, None] * HIDDEN + unit[None, :], mask=real_row[:, None], other=0.0)
        grad_new = grad * (1 - update) * (1 - new * new)
        grad_update = grad * (before - new) * update * (1 - update)
        grad_reset = grad_new * mix * reset * (1 - reset)
        grad_mix = grad_new * reset
        carry = grad * update + _dot(grad_reset, back_reset) + _dot(grad_update, back_update) + _dot(grad_mix, back_new)
        before_t = tl.trans(before)
        grad_hidden_reset += _dot(before_t, grad_reset)
        grad_hidden_update += _dot(before_t, grad_update)
        grad_hidden_new += _dot(before_t, grad_mix)
        if PROJECTED:
            own_gates = grad_gates + at[:, None] * (3 * HIDDEN) + unit[None, :]
            tl.store(own_gates, grad_reset, mask=real_row[:, None])
            tl.store(own_gates + HIDDEN, grad_update, mask=real_row[:, None])
            tl.store(own_gates + 2 * HIDDEN, grad_new, mask=real_row[:, None])
        else:
            real = real_row[:, None] & real_input[None, :]
            x_t = tl.trans(tl.load(features + at[:, None] * inputs + source[None, :], mask=real, other=0.0))
            grad_input_reset += _dot(x_t, grad_reset)
            grad_input_update += _dot(x_t, grad_update)
            grad_input_new += _dot(x_t, grad_new)
        bias_reset += tl.sum(grad_reset, 0)
        bias_update += tl.sum(grad_update, 0)
        bias_new += tl.sum(grad_new, 0)
        bias_mix += tl.sum(grad_mix, 0)
    slot = member * tl.num_programs(1) + tl.program_id(1)
    to_hidden = sum_weight_hidden + slot * (3 * HIDDEN * HIDDEN) + unit[:, None] * (3 * HIDDEN) + unit[None, :]
    tl.store(to_hidden, grad_hidden_reset)
    tl.store(to_hidden + HIDDEN, grad_hidden_update)
    tl.store(to_hidden + 2 * HIDDEN, grad_hidden_new)
    if not PROJECTED:
        to_input = sum_weight_input + slot * (3 * HIDDEN) * inputs + source[:, None] * (3 * HIDDEN) + unit[None, :]
        tl.store(to_input, grad_input_reset, mask=real_input[:, None])
        tl.store(to_input + HIDDEN, grad_input_update, mask=real_input[:, None])
        tl.store(to_input + 2 * HIDDEN, grad_input_new, mask=real_input[:, None])
    to_bias_input = sum_bias_input + slot * (3 * HIDDEN) + unit
    tl.store(to_bias_input, bias_reset)
    tl.store(to_bias_input + HIDDEN, bias_update)
    tl.store(to_bias_input + 2 * HIDDEN, bias_new)
    to_bias_hidden = sum_bias_hidden + slot * (3 * HIDDEN) + unit
    tl.store(to_bias_hidden, bias_reset)
    tl.store(to_bias_hidden + HIDDEN, bias_update)
    tl.store(to_bias_hidden + 2 * HIDDEN, bias_mix)
