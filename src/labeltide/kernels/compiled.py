"""Calls of the compiled kernels: forward-backward of the chain, GRU, networks of Q, Adam and the objective."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labeltide._fleet import MemberLinear
from labeltide.kernels import choose, library


class ChainInputs(NamedTuple):
    """Inputs of one forward-backward pass; `chain/passes.py` says what each of them means."""

    labels: Tensor  # int8 (sets, rows, steps, annotators)
    lengths: Tensor  # int64 (rows,)
    grid_index: Tensor  # int64 (rows, steps), on the clock grid
    evidence: Tensor | None  # (sets, rows, steps, classes)
    trusted: Tensor | None  # int8 (rows, steps)
    jumps: Tensor | None  # int8 (rows, steps)
    label_set: Tensor  # int64 (members,)
    evidence_set: Tensor  # int64 (members,)
    weights: Tensor  # (members, rows)
    start: Tensor  # (members, classes)
    transitions: Tensor  # (members, gaps, classes, classes), the first over a gap of one step
    power: Tensor  # (members,)
    matrices: Tensor  # (members, groups, points, classes, classes)
    bursts: Tensor | None  # (members,)


class ExpectedCounts(NamedTuple):
    """Result of a forward-backward pass: the likelihood and the expected sufficient statistics of EM."""

    log_likelihood: Tensor  # (members, rows)
    counts: Tensor  # (members, annotators, points, classes, classes): true i recorded as j
    starts: Tensor  # (members, 2, classes): expected first labels, and their exposure (what weight one would give)
    pairs: Tensor  # (members, 2, classes, classes): the same for transitions
    power: Tensor  # (members, 2): gradient and information of the power
    kept: Tensor  # (members,): expected labels whose draw was kept from the step before
    posterior: Tensor | None  # (members, rows, steps, classes)


class ChainTask(ctypes.Structure):
    """The arguments of one call, laid out as in c/chain.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "rows", "steps", "classes", "annotators", "groups")),
        *((name, ctypes.c_int64) for name in ("points", "gaps")),
        *((name, ctypes.c_void_p) for name in ChainInputs._fields),
        *((f"out_{name}", ctypes.c_void_p) for name in ExpectedCounts._fields),
    ]


def compiled_pass(inputs: ChainInputs, *, posterior: bool = False) -> ExpectedCounts:
    """Forward-backward over all sequences of all members, on the CPU."""
    ready = ChainInputs(*(None if tensor is None else as_floats(tensor).contiguous() for tensor in inputs))  # type: ignore[arg-type]
    task, out = make_chain_task(ready, posterior)
    library.run("labeltide_chain", task, task.members)
    return out._replace(log_likelihood=out.log_likelihood.to(inputs.power.dtype))


def as_floats(tensor: Tensor) -> Tensor:
    """Float32 where the tensor holds floating-point numbers."""
    return tensor.float() if tensor.is_floating_point() else tensor


def make_chain_task(inputs: ChainInputs, posterior: bool) -> tuple[ChainTask, ExpectedCounts]:
    """The arguments of one call, and its outputs filled with zeros; the tensors must outlive the arguments."""
    members, groups, points, classes = inputs.matrices.shape[:4]
    _, rows, steps, annotators = inputs.labels.shape
    out = ExpectedCounts(
        torch.zeros(members, rows, dtype=torch.float64),  # summed in double precision
        torch.zeros(members, groups, points, classes, classes),
        torch.zeros(members, 2, classes),
        torch.zeros(members, 2, classes, classes),
        torch.zeros(members, 2),
        torch.zeros(members),
        torch.zeros(members, rows, steps, classes) if posterior else None,
    )
    sizes = (members, rows, steps, classes, annotators, groups, points, inputs.transitions.shape[1])
    return ChainTask(*sizes, *map(library.pointer, (*inputs, *out))), out


# Compiled GRU (Cho and others 2014): all steps and the linear head in one kernel, forward and backward.

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


def gru_usable(features: Tensor, *parameters: Tensor) -> bool:
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

    Parameters are weights of inputs and hidden states, (members, inputs or hidden, 3 * hidden), their biases (members,
    1, 3 * hidden) and, for logits, the head's weight (members, hidden, classes) and bias.
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


def make_gru_task(features: Tensor, parameters: Sequence[Tensor], sizes: Sequence[int] | None = None) -> GRUTask:
    """The arguments of one call without its outputs; the tensors, of these sizes if given, must outlive them."""
    classes = parameters[4].shape[2] if len(parameters) > 4 else 0
    task = GRUTask(*(sizes or features.shape), parameters[1].shape[1], classes)
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


# Compiled multilayer perceptron from the clock to Q (`noise/functions.py`): one call forward, two backward.

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


def network_usable(layers: Sequence[MemberLinear], inputs: NetworkInput) -> bool:
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
        *((name, ctypes.c_void_p) for name in ("rows", "labels", "mask", "weights", "targets", "grid_index", "logits")),
        *((name, ctypes.c_void_p) for name in ("matrices", "linear", "quadratic", "losses", "counts")),
        *((name, ctypes.c_void_p) for name in ("grad_logits", "grad_matrices")),
    ]
