"""The compiled network of `noise/network.py`: all layers, and Q from them, in one call forward and two backward."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labeltide._fleet import MemberLinear
from labeltide.kernels import choose, library

ROWS, MAX_LAYERS, FEW = 8, 16, 16  # as in c/network.c
MULTIPLE = 32  # widths of all hidden layers but the first come in pairs of the widest vectors


class Input(NamedTuple):
    """How moments of the clock become the network's input, and its output Q."""

    clock: Tensor  # float64, (points,)
    ends: Tensor  # float64, (2,)
    scale: float  # position in [0, 1] times scale plus shift is the input
    shift: float
    bound: float  # logits are bent to stay within it; 0 leaves them
    classes: int


class Network(ctypes.Structure):
    """One call, as c/network.c declares it."""

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


def usable(layers: Sequence[MemberLinear], given: Input) -> bool:
    """Whether the compiled network can take these layers, the head last, and this clock."""
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    return (
        choose("network", given.clock.device) == "c"
        and given.clock.ndim == 1
        and len(given.clock) > 0
        and all(t.dtype == torch.float64 and t.is_cpu and t.is_contiguous() for t in given[:2])
        and all(p.dtype == torch.float32 and p.is_cpu for p in parameters)
        and all(p[0].is_contiguous() for p in parameters)
        and 1 < len(layers) <= MAX_LAYERS + 1
        and layers[0].weight.shape[-2] == 1
        and all(layer.weight.shape[-1] % MULTIPLE == 0 for layer in layers[1:-1])
    )


def fused_network(layers: Sequence[MemberLinear], given: Input) -> Tensor:
    """Q at every moment: shape (members * copies, points, classes, classes)."""
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    keep = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)
    return _FusedNetwork.apply(CompiledNetwork(layers, given, keep), *parameters)


class CompiledNetwork:
    """Tasks on the same memory every time, for layers whose parameters are changed in place."""

    def __init__(self, layers: Sequence[MemberLinear], given: Input, keep: bool = True) -> None:
        self.given, self.keep = given, keep
        sizes = [layer.weight.shape[-2:] for layer in layers]
        self.task = task = _task(layers, given)
        self.tiles = -(-task.points // ROWS)
        self.parts = sum(-(-size[0] // FEW) for size in sizes)
        self.size = task.copies * sum((size[0] + 1) * size[1] for size in sizes)
        per_point = sum(_padded(size[1]) for size in sizes)
        self.values = torch.empty(task.members, self.tiles * ROWS * per_point)
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
        """Write the parameters' gradients, side by side, into (members, size), from that of the last call's Q."""
        task = self.task
        task.grad_matrices, task.gradients, task.gradient_stride = (
            grad.data_ptr(),
            gradients.data_ptr(),
            gradients.stride(0),
        )
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
        parameters = ctx.saved_tensors  # also makes sure that nobody has changed them meanwhile
        gradients = torch.empty(len(parameters[0]), ctx.network.size)
        ctx.network.backward(grads[0].contiguous(), gradients)
        pieces = gradients.split([parameter[0].numel() for parameter in parameters], 1)
        return None, *(piece.view(parameter.shape) for piece, parameter in zip(pieces, parameters, strict=True))


def _task(layers: Sequence[MemberLinear], given: Input) -> Network:
    copies = layers[0].copies
    task = Network(layers[0].members * copies, copies, len(given.clock), len(layers) - 1, given.classes)
    task.scale, task.shift, task.bound = given.scale, given.shift, given.bound
    task.clock, task.ends = given.clock.data_ptr(), given.ends.data_ptr()
    for i, layer in enumerate(layers):
        weight, bias, task.units[i] = layer.weight, layer.bias, layer.unit
        task.weights[i], task.weight_strides[i] = weight.data_ptr(), weight.stride(0)
        task.biases[i], task.bias_strides[i] = bias.data_ptr(), bias.stride(0)
        if layer is not layers[-1]:
            task.widths[i] = weight.shape[-1]
    return task


def _padded(width: int) -> int:
    return -(-width // MULTIPLE) * MULTIPLE
