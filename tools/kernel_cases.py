"""Write the cases that every compiled kernel must reproduce: small ragged inputs and what torch makes of them.

    python tools/kernel_cases.py           # src/labeltide/kernels/cases.bin

Run it after a kernel's task or equations changed. A test computes the expected values anew and compares them.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from labeltide._fleet import MemberLinear, member_generators
from labeltide.chain.passes import ChainData, ChainParameters, Members, kernel_inputs, plain_pass
from labeltide.kernels import compiled as calls
from labeltide.kernels import library
from labeltide.kernels.compiled import SumTask
from labeltide.kernels.library import KINDS, MAGIC, NAME_BYTES, PATH, Call, Case, Comparison
from labeltide.models.gru import GRUModel
from labeltide.noise.functions import dominant_rows
from labeltide.training.objective import Multipliers, Objective
from labeltide.training.state import TrainingState

LINE_BYTES = 64  # every tensor starts on a cache line
TOLERANCE = 3e-6  # relative to the largest value of a tensor; kernels differ from torch by up to 7e-7


class Recorder:
    """Lays tensors out in one piece of memory and turns the pointers of tasks into offsets in it."""

    def __init__(self, name: str, kernel: str) -> None:
        self.case, self.offsets, self.held = Case(name, kernel, 0), {}, []

    def add(self, *tensors: Tensor | None) -> None:
        """Inputs: their values are stored."""
        for tensor in tensors:
            if tensor is not None and tensor.data_ptr() not in self.offsets:
                self.case.inputs.append((self._place(tensor), tensor.detach().numpy().tobytes()))

    def room(self, *tensors: Tensor) -> None:
        """Memory that starts as zeros."""
        for tensor in tensors:
            self._place(tensor)

    def expect(self, tensor: Tensor, values: Tensor, tolerance: float = TOLERANCE) -> None:
        """Compare a tensor that was given room or added with what torch found."""
        expected = values.detach().to(tensor.dtype).contiguous().numpy().reshape(-1)
        assert expected.size == tensor.numel()
        if expected.dtype == bool:
            expected = expected.view("uint8")
        self.case.comparisons.append(Comparison(self.offsets[tensor.data_ptr()], expected, tolerance))

    def call(self, function: str, task: ctypes.Structure, items: int) -> None:
        """One call; all tensors of the task must be known."""
        stored, pointers = bytearray(bytes(task)), []
        for offset in _pointer_fields(type(task)):
            address = int.from_bytes(stored[offset : offset + 8], "little")
            if address:
                pointers.append((offset, self.offsets[address]))
                stored[offset : offset + 8] = bytes(8)
        self.case.calls.append(Call(function, items, bytes(stored), pointers))

    def _place(self, tensor: Tensor) -> int:
        assert tensor.is_contiguous()
        offset, self.case.size = self.case.size, self.case.size + -(-max(tensor.nbytes, 1) // LINE_BYTES) * LINE_BYTES
        self.offsets[tensor.data_ptr()] = offset
        self.held.append(tensor)  # an address must not be used twice
        return offset


def _pointer_fields(structure: type[ctypes.Structure]) -> Iterator[int]:
    for name, kind, *_ in structure._fields_:  # type: ignore[misc]
        start = getattr(structure, name).offset
        if kind is ctypes.c_void_p:
            yield start
        elif getattr(kind, "_type_", None) is ctypes.c_void_p:
            yield from range(start, start + ctypes.sizeof(kind), 8)


def gru_case(name: str, members: int, batch: int, steps: int, inputs: int, hidden: int, classes: int) -> Case:
    """Logits, and the gradients of all parameters summed over tiles."""
    generator = torch.Generator().manual_seed(hidden + batch)
    model = GRUModel(members, inputs, classes, hidden_size=hidden).initialise(member_generators(range(members)))
    parameters = list(model.parameters())
    features = torch.randn(members, batch, steps, inputs, generator=generator)
    grad = torch.randn(members, batch, steps, classes, generator=generator)
    with patch.dict(os.environ, {library.ENVIRONMENT: "torch"}):
        logits = model(features, torch.ones(features.shape[:3], dtype=torch.bool))
        gradients = torch.autograd.grad((logits * grad).sum(), parameters)
    recorder = Recorder(name, "gru")
    task, tiles = calls.make_gru_task(features, parameters), -(-batch // calls.TILE_ROWS)
    size = sum(parameter[0].numel() for parameter in parameters)
    out, kept = torch.empty(logits.shape), torch.empty(members * tiles * calls.kept_size(task))
    parts, sums = torch.empty(members, tiles, size), torch.empty(members, size)
    recorder.add(features, grad, *parameters)
    recorder.room(out, kept, parts, sums)
    task.out, task.kept = out.data_ptr(), kept.data_ptr()
    recorder.call("labeltide_gru_forward", task, members * tiles)
    task.grad_out, task.gradients = grad.data_ptr(), parts.data_ptr()
    recorder.call("labeltide_gru_backward", task, members * tiles)
    recorder.call("labeltide_sum", SumTask(members, tiles, size, size, parts.data_ptr(), sums.data_ptr()), members)
    recorder.expect(out, logits)
    recorder.expect(sums, torch.cat([gradient.flatten(1) for gradient in gradients], 1))
    return recorder.case


def network_case() -> Case:
    """Q of a small network at moments that do not fill the last tile, and the gradients of its parameters."""
    members, points, classes, widths = 2, 11, 3, (1, 16, 32, 64)
    generator = torch.Generator().manual_seed(0)
    layers = [MemberLinear(members, *size, 2**0.5) for size in pairwise(widths)]
    layers.append(MemberLinear(members, widths[-1], classes**2, 0.1))
    for layer in layers:
        layer.initialise(member_generators(range(members)))
    clock, ends = torch.linspace(-0.2, 1.1, points, dtype=torch.float64), torch.tensor([0.0, 1.0], dtype=torch.float64)
    grad = torch.randn(members, points, classes, classes, generator=generator)
    hidden = (2 * clock - 1).float()[None, :, None].expand(members, -1, -1)
    for layer in layers[:-1]:
        hidden = layer(hidden).relu()
    logits = layers[-1](hidden)
    matrices = dominant_rows((4 * logits / (4 + logits.abs())).unflatten(-1, (classes, classes)))
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    gradients = torch.autograd.grad((matrices * grad).sum(), parameters)
    compiled = calls.CompiledNetwork(layers, calls.NetworkInput(clock, ends, 2.0, -1.0, 4.0, classes))
    task, computed, out = compiled.task, torch.empty(matrices.shape), torch.empty(members, compiled.size)
    recorder = Recorder("network", "network")
    recorder.add(clock, ends, grad, *parameters)
    assert compiled.turned is not None
    assert compiled.deltas is not None
    recorder.room(computed, out, compiled.values, compiled.turned, compiled.deltas)
    task.matrices = computed.data_ptr()
    recorder.call("labeltide_network_forward", task, members * (compiled.tiles + task.layers))
    task.grad_matrices, task.gradients, task.gradient_stride = grad.data_ptr(), out.data_ptr(), compiled.size
    recorder.call("labeltide_network_backward", task, members * compiled.tiles)
    recorder.call("labeltide_network_gradients", task, members * compiled.parts)
    recorder.expect(computed, matrices)
    recorder.expect(out, torch.cat([gradient.flatten(1) for gradient in gradients], 1))
    return recorder.case


def objective_case() -> Case:
    """Forward loss with two annotators, gaps, padding, a row that fills up, and multipliers."""
    members, batch, steps, classes, annotators, table = 2, 19, 9, 3, 2, 23
    generator = torch.Generator().manual_seed(1)
    rows = torch.stack([torch.randperm(table, generator=generator)[:batch] for _ in range(members)])
    labels = torch.randint(-1, classes, (members, table, steps, annotators), generator=generator).to(torch.int8)
    lengths = torch.randint(1, steps + 1, (table, 1), generator=generator)
    mask, weights = torch.arange(steps) < lengths, torch.rand(members, table, generator=generator)
    logits = torch.randn(members, batch, steps, classes, generator=generator).requires_grad_()
    matrices = torch.rand(members, annotators, steps, classes, classes, generator=generator) + torch.eye(classes)
    matrices = (matrices / matrices.sum(-1, keepdim=True)).requires_grad_()
    linear, quadratic = torch.rand(members, generator=generator), torch.rand(members, generator=generator)
    member = torch.arange(members)[:, None]
    counted = mask[rows][..., None] * weights[member, rows][..., None, None]
    filled = torch.ones(members, batch, 1, 1)
    filled[:, -1] = 0.0
    scored = Objective()(
        logits.log_softmax(-1),
        labels[member, rows],
        counted * filled,
        matrices=matrices.movedim(1, 2).unsqueeze(1),
        multipliers=Multipliers(linear, quadratic),
    )
    grads = torch.autograd.grad(scored.total.sum(), [logits, matrices])
    rows = rows.clone()
    rows[:, -1] = -1
    losses, counts, grad_logits, grad_matrices = (
        torch.empty(members, steps),
        torch.empty(members, steps),
        torch.empty(logits.shape),
        torch.empty(matrices.shape),
    )
    sizes = (members, batch, steps, classes, annotators, annotators, table, steps, annotators)
    pointers = (rows, labels, mask, weights, None, None, logits, matrices, linear, quadratic)
    outputs = (losses, counts, grad_logits, grad_matrices)
    task = calls.ObjectiveTask(*sizes, *map(library.pointer, (*pointers, *outputs)))
    recorder = Recorder("objective", "objective")
    recorder.add(*pointers)
    recorder.room(*outputs)
    blocks = 1 if task.grid_index else -(-task.steps // calls.STEPS_PER_ITEM)
    recorder.call("labeltide_objective", task, task.members * blocks)
    recorder.expect(grad_logits, grads[0])
    recorder.expect(grad_matrices, grads[1])
    return recorder.case


def adam_case() -> Case:
    """A step of members that move, are clipped, do not take part, and diverge."""
    members, size = 4, 331
    generator = torch.Generator().manual_seed(2)
    state = TrainingState.start(torch.randn(members, size, generator=generator), 0.01)
    state.mean.copy_(0.1 * torch.randn(members, size, generator=generator))
    state.variance.copy_(torch.rand(members, size, generator=generator))
    state.count.fill_(3.0)
    gradients = torch.randn(members, size, generator=generator) * torch.tensor([[1e-3], [1.0], [1.0], [1.0]])
    gradients[3, 7] = torch.nan
    taking_part, factor = torch.tensor([True, True, False, True]), torch.rand(size, generator=generator)
    updated = (state.parameters, state.mean, state.variance, gradients, state.count)
    settings = (state.rate, factor, taking_part, state.diverged)
    task = calls.AdamTask(members, size, *map(library.pointer, (*updated, *settings)), 5.0)
    recorder = Recorder("adam", "adam")
    recorder.add(*updated, *settings)
    recorder.call("labeltide_adam", task, members)
    with patch.dict(os.environ, {library.ENVIRONMENT: "torch"}):
        state.adam(gradients, taking_part, factor, 5.0)
    for tensor in (state.parameters, state.mean, state.variance, state.count, state.diverged):
        recorder.expect(tensor, tensor, 1e-6)
    return recorder.case


def chain_case(name: str, classes: int, *, rich: bool) -> Case:
    """Two blocks of ragged rows; `rich` adds evidence, bursts, gaps in time, trusted labels and annotators' own Q."""
    members, rows, steps, annotators, points = 2, 27, 6, 2 if rich else 1, 4 if rich else 6
    generator = torch.Generator().manual_seed(classes)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    def whole(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    def normal(values: Tensor) -> Tensor:
        return values / values.sum(-1, keepdim=True)

    lengths = whole(1, steps + 1, rows)
    lengths[0] = steps
    data = ChainData(
        labels=whole(-1, classes, 2, rows, steps, annotators).to(torch.int8),
        mask=torch.arange(steps) < lengths[:, None],
        points=whole(0, points, rows, steps) if rich else None,
        n_points=points,
        n_classes=classes,
        evidence=(2 * torch.randn(2, rows, steps, classes, generator=generator)).log_softmax(-1) if rich else None,
        trusted=torch.where(uniform(rows, steps) < 0.2, whole(0, classes, rows, steps), -1).to(torch.int8)
        if rich
        else None,
        jumps=whole(0, 3, rows, steps).to(torch.int8) if rich else None,
        gaps=(1, 2, 7) if rich else (1,),
    )
    chosen = Members(whole(0, 2, members), whole(0, 2, members), uniform(members, rows))
    parameters = ChainParameters(
        normal(uniform(members, classes) + 0.1),
        normal(uniform(members, classes, classes) + 0.1),
        2 * uniform(members) if rich else torch.zeros(members),
        normal(uniform(members, annotators, points, classes, classes) + 0.05),
        torch.tensor([0.6, 0.0]) if rich else None,
    )
    inputs = calls.ChainInputs(
        *(None if tensor is None else tensor.contiguous() for tensor in kernel_inputs(data, chosen, parameters))
    )  # type: ignore[arg-type]
    task, out = calls.make_chain_task(inputs, posterior=True)
    recorder = Recorder(name, "chain")
    recorder.add(*inputs)
    recorder.room(*(tensor for tensor in out if tensor is not None))
    recorder.call("labeltide_chain", task, members)
    for tensor, values in zip(out, plain_pass(data, chosen, parameters, posterior=True), strict=True):
        if values is not None and not (tensor is out.kept and not rich):
            recorder.expect(tensor, values)  # type: ignore[arg-type]
    return recorder.case


def all_cases() -> list[Case]:
    """Every case, in the order of the kernels."""
    return [
        gru_case("gru of 32 hidden units", 2, 11, 5, 3, 32, 3),
        gru_case("gru of 64 hidden units", 1, 3, 4, 1, 64, 2),
        gru_case("gru of 5 hidden units", 2, 9, 5, 3, 5, 3),
        gru_case("gru of 40 hidden units", 1, 4, 3, 2, 40, 2),
        network_case(),
        objective_case(),
        adam_case(),
        chain_case("chain of two classes", 2, rich=False),
        chain_case("chain of three classes, all", 3, rich=True),
    ]


def write_cases(cases: list[Case], path: Path = PATH) -> None:
    """Store cases in the order given."""
    out = bytearray(MAGIC + struct.pack("<q", len(cases)))
    for case in cases:
        out += _name(case.name) + _name(case.kernel) + struct.pack("<q", case.size)
        out += struct.pack("<q", len(case.inputs))
        for offset, values in case.inputs:
            out += struct.pack("<qq", offset, len(values)) + _padded(values)
        out += struct.pack("<q", len(case.calls))
        for call in case.calls:
            out += _name(call.function) + struct.pack("<qq", call.items, len(call.task)) + _padded(call.task)
            out += struct.pack("<q", len(call.pointers))
            for offsets in call.pointers:
                out += struct.pack("<qq", *offsets)
        out += struct.pack("<q", len(case.comparisons))
        for comparison in case.comparisons:
            expected = comparison.expected
            sizes = (comparison.offset, expected.size, KINDS.index(expected.dtype), comparison.tolerance)
            out += struct.pack("<qqqd", *sizes) + _padded(expected.tobytes())
    path.write_bytes(out)


def _name(text: str) -> bytes:
    encoded = text.encode()
    assert len(encoded) <= NAME_BYTES
    return encoded.ljust(NAME_BYTES, b"\0")


def _padded(values: bytes) -> bytes:
    return values.ljust(-(-len(values) // 8) * 8, b"\0")


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_cases(all_cases())
