"""Compiled multilayer perceptron from the clock to Q (`noise/functions.py`): one call forward, two backward.

The calls compute all layers and the noise matrices. Backpropagation is written out; autograd is not involved.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labeltide._fleet import MemberLinear
from labeltide.kernels import choose, library

TILE_POINTS, MAX_LAYERS, GRADIENT_ROWS = 8, 16, 16  # ROWS, MAX_LAYERS and FEW in c/network.c
WIDTH_MULTIPLE = 32  # hidden layers but the first are computed in pairs of the widest vectors


class NetworkInput(NamedTuple):
    """Clock and constants: how moments are scaled to the network's input, and how its logits are bounded."""

    clock: Tensor  # float64, (points,)
    ends: Tensor  # float64, (2,)
    scale: float  # the input is scale * position + shift, with the position in [0, 1]
    shift: float
    bound: float  # logits are soft-clipped to (-bound, bound); 0 leaves them
    classes: int


class NetworkTask(ctypes.Structure):
    """The arguments of one call, laid out as in c/network.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "copies", "points", "layers", "classes")),
        ("widths", ctypes.c_int64 * MAX_LAYERS),
        ("weight_strides", ctypes.c_int64 * (MAX_LAYERS + 1)),
        ("bias_strides", ctypes.c_int64 * (MAX_LAYERS + 1)),
        ("weights", ctypes.c_void_p * (MAX_LAYERS + 1)),
        ("biases", ctypes.c_void_p * (MAX_LAYERS + 1)),
        ("units", ctypes.c_float * (MAX_LAYERS + 1)),
        *((name, ctypes.c_float) for name in ("scale", "shift", "bound")),
        *((name, ctypes.c_void_p) for name in ("clock", "ends", "matrices", "grad_matrices")),
        *((name, ctypes.c_void_p) for name in ("values", "deltas", "turned", "gradients")),
        ("gradient_stride", ctypes.c_int64),
    ]


def usable(layers: Sequence[MemberLinear], inputs: NetworkInput) -> bool:
    """Whether the compiled network supports these layers, the head last, and this clock."""
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    return (
        choose("network", inputs.clock.device) == "c"
        and inputs.clock.ndim == 1
        and len(inputs.clock) > 0
        and all(t.dtype == torch.float64 and t.is_cpu and t.is_contiguous() for t in inputs[:2])
        and all(p.dtype == torch.float32 and p.is_cpu for p in parameters)
        and all(p[0].is_contiguous() for p in parameters)
        and 1 < len(layers) <= MAX_LAYERS + 1
        and layers[0].weight.shape[-2] == 1
        and all(layer.weight.shape[-1] % WIDTH_MULTIPLE == 0 for layer in layers[1:-1])
    )


def fused_network(layers: Sequence[MemberLinear], inputs: NetworkInput) -> Tensor:
    """Q at every moment: shape (members * copies, points, classes, classes)."""
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    keep = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)
    return _FusedNetwork.apply(CompiledNetwork(layers, inputs, keep), *parameters)


class CompiledNetwork:
    """Buffers and task for layers whose parameters are updated in place; every call reuses them."""

    def __init__(self, layers: Sequence[MemberLinear], inputs: NetworkInput, keep: bool = True) -> None:
        self.inputs, self.keep = inputs, keep
        sizes = [layer.weight.shape[-2:] for layer in layers]
        copies = layers[0].copies
        self.task = task = NetworkTask(
            layers[0].members * copies, copies, len(inputs.clock), len(layers) - 1, inputs.classes
        )
        task.scale, task.shift, task.bound = inputs.scale, inputs.shift, inputs.bound
        task.clock, task.ends = inputs.clock.data_ptr(), inputs.ends.data_ptr()
        for i, layer in enumerate(layers):
            weight, bias, task.units[i] = layer.weight, layer.bias, layer.unit
            task.weights[i], task.weight_strides[i] = weight.data_ptr(), weight.stride(0)
            task.biases[i], task.bias_strides[i] = bias.data_ptr(), bias.stride(0)
            if layer is not layers[-1]:
                task.widths[i] = weight.shape[-1]
        self.tiles = -(-task.points // TILE_POINTS)
        self.parts = sum(-(-size[0] // GRADIENT_ROWS) for size in sizes)
        self.size = task.copies * sum((size[0] + 1) * size[1] for size in sizes)
        per_point = sum(_padded(size[1]) for size in sizes)
        self.values = torch.empty(task.members, self.tiles * TILE_POINTS * per_point)
        self.turned = torch.empty(task.members, sum(size[1] * _padded(size[0]) for size in sizes[1:])) if keep else None
        self.deltas = torch.empty_like(self.values) if keep else None
        task.values, task.turned = self.values.data_ptr(), library.pointer(self.turned)
        task.deltas = library.pointer(self.deltas)

    def forward(self) -> Tensor:
        """Q at every moment."""
        task = self.task
        matrices = torch.empty(task.members, task.points, task.classes, task.classes)
        task.matrices = matrices.data_ptr()
        library.run("labeltide_network_forward", task, task.members * (self.tiles + (task.layers if self.keep else 0)))
        return matrices

    def backward(self, grad: Tensor, gradients: Tensor) -> None:
        """Write the gradients of all parameters into (members, size), from that of the Q of the last `forward`."""
        task = self.task
        task.grad_matrices = grad.data_ptr()
        task.gradients, task.gradient_stride = gradients.data_ptr(), gradients.stride(0)
        library.run("labeltide_network_backward", task, task.members * self.tiles)
        library.run("labeltide_network_gradients", task, task.members * self.parts)


class _FusedNetwork(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, network: CompiledNetwork, *parameters: Tensor) -> Tensor:
        ctx.network = network
        ctx.save_for_backward(*parameters)
        return network.forward()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        parameters = ctx.saved_tensors  # raises where they were changed in place meanwhile
        gradients = torch.empty(len(parameters[0]), ctx.network.size)
        ctx.network.backward(grads[0].contiguous(), gradients)
        pieces = gradients.split([parameter[0].numel() for parameter in parameters], 1)
        return None, *(piece.view(parameter.shape) for piece, parameter in zip(pieces, parameters, strict=True))


def _padded(width: int) -> int:
    return -(-width // WIDTH_MULTIPLE) * WIDTH_MULTIPLE


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

    Updated are parameters, mean, variance, gradients (members, size), and count (members, 1); settings are rate
    (members, 1), factor (size,), taking_part (members,). Members whose gradient is not finite become `diverged`.
    """
    gradients = updated[3]
    tensors = (*updated, *settings, diverged)
    task = AdamTask(*gradients.shape, *(tensor.data_ptr() for tensor in tensors), clip)
    library.run("labeltide_adam", task, len(gradients))


STEPS_PER_ITEM = 8  # STEPS in c/objective.c


class ObjectiveTask(ctypes.Structure):
    """The arguments of one call, laid out as in c/objective.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "batch", "steps", "classes")),
        *((name, ctypes.c_int64) for name in ("annotators", "groups", "table", "points", "noisy")),
        *((name, ctypes.c_void_p) for name in ("rows", "labels", "mask", "weights", "targets", "places", "logits")),
        *((name, ctypes.c_void_p) for name in ("matrices", "linear", "quadratic", "losses", "counts")),
        *((name, ctypes.c_void_p) for name in ("grad_logits", "grad_matrices")),
    ]


def count_items(task: ObjectiveTask) -> int:
    """Items of a call: blocks of steps of one member, or whole members where rows have different clocks."""
    return task.members * (1 if task.places else -(-task.steps // STEPS_PER_ITEM))
