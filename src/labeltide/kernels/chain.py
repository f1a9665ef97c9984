"""Compiled forward-backward algorithm for hidden Markov models (Rabiner 1989), and the tensors of every such pass."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.kernels import library


class ChainInputs(NamedTuple):
    """Inputs of one forward-backward pass; `chain/data.py` says what each of them means."""

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


class Expected(NamedTuple):
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
        *((f"out_{name}", ctypes.c_void_p) for name in Expected._fields),
    ]


def compiled_pass(inputs: ChainInputs, *, posterior: bool = False) -> Expected:
    """Forward-backward over all sequences of all members, on the CPU."""
    ready = ChainInputs(*(None if tensor is None else as_floats(tensor).contiguous() for tensor in inputs))  # type: ignore[arg-type]
    out = make_outputs(ready, posterior)
    task = make_chain_task(ready, out)
    library.run("labeltide_chain", task, task.members)
    return out._replace(log_likelihood=out.log_likelihood.to(inputs.power.dtype))


def as_floats(tensor: Tensor) -> Tensor:
    """Float32 where the tensor holds floating-point numbers."""
    return tensor.float() if tensor.is_floating_point() else tensor


def make_outputs(inputs: ChainInputs, posterior: bool) -> Expected:
    """Outputs of a pass, filled with zeros; the log-likelihood is summed in double precision."""
    members, groups, points, classes = inputs.matrices.shape[:4]
    _, rows, steps, _ = inputs.labels.shape
    return Expected(
        torch.zeros(members, rows, dtype=torch.float64),
        torch.zeros(members, groups, points, classes, classes),
        torch.zeros(members, 2, classes),
        torch.zeros(members, 2, classes, classes),
        torch.zeros(members, 2),
        torch.zeros(members),
        torch.zeros(members, rows, steps, classes) if posterior else None,
    )


def make_chain_task(inputs: ChainInputs, out: Expected) -> ChainTask:
    """The arguments of one call; the tensors must outlive them."""
    members, groups, points, classes = inputs.matrices.shape[:4]
    _, rows, steps, annotators = inputs.labels.shape
    sizes = (members, rows, steps, classes, annotators, groups, points, inputs.transitions.shape[1])
    return ChainTask(*sizes, *map(library.pointer, (*inputs, *out)))
