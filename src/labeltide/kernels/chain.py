"""The compiled forward-backward pass of the hidden Markov model, and the tensors that every pass takes and gives."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.kernels import library


class ChainInputs(NamedTuple):
    """What one pass reads; `chain/data.py` says what each of them means."""

    labels: Tensor  # int8 (sets, rows, steps, annotators)
    lengths: Tensor  # int64 (rows,)
    places: Tensor  # int64 (rows, steps), on the clock grid
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


class ChainOutputs(NamedTuple):
    """What one pass gives, in the order of `chain.data.Expected`."""

    log_likelihood: Tensor  # float64 (members, rows)
    counts: Tensor  # (members, groups, points, classes, classes)
    starts: Tensor  # (members, 2, classes)
    pairs: Tensor  # (members, 2, classes, classes)
    slope: Tensor  # (members, 2), slope and curvature in the power
    kept: Tensor  # (members,)
    posterior: Tensor | None  # (members, rows, steps, classes)


class Task(ctypes.Structure):
    """The sizes and the tensors of one call, as c/chain.c declares them."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "rows", "steps", "classes", "annotators", "groups")),
        *((name, ctypes.c_int64) for name in ("points", "gaps")),
        *((name, ctypes.c_void_p) for name in (*ChainInputs._fields, *ChainOutputs._fields)),
    ]


def compiled_pass(inputs: ChainInputs, *, posterior: bool = False) -> ChainOutputs:
    """One forward and one backward run over all sequences of all members, on the CPU."""
    ready = ChainInputs(*(None if tensor is None else as_floats(tensor).contiguous() for tensor in inputs))  # type: ignore[arg-type]
    out = make_outputs(ready, posterior)
    task = make_task(ready, out)
    library.run("labeltide_chain", task, task.members)
    return out


def as_floats(tensor: Tensor) -> Tensor:
    """Float32 where the tensor holds floating-point numbers."""
    return tensor.float() if tensor.is_floating_point() else tensor


def make_outputs(inputs: ChainInputs, posterior: bool) -> ChainOutputs:
    """Zeros for everything that a pass gives."""
    members, groups, points, classes = inputs.matrices.shape[:4]
    _, rows, steps, _ = inputs.labels.shape
    return ChainOutputs(
        torch.zeros(members, rows, dtype=torch.float64),
        torch.zeros(members, groups, points, classes, classes),
        torch.zeros(members, 2, classes),
        torch.zeros(members, 2, classes, classes),
        torch.zeros(members, 2),
        torch.zeros(members),
        torch.zeros(members, rows, steps, classes) if posterior else None,
    )


def make_task(inputs: ChainInputs, out: ChainOutputs) -> Task:
    """The task of one call; the tensors must outlive it."""
    members, groups, points, classes = inputs.matrices.shape[:4]
    _, rows, steps, annotators = inputs.labels.shape
    sizes = (members, rows, steps, classes, annotators, groups, points, inputs.transitions.shape[1])
    return Task(*sizes, *map(library.pointer, (*inputs, *out)))
