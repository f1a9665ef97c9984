"""The forward-backward pass in C, where it could be built."""

from __future__ import annotations

import ctypes

import torch

from labeltide import _native
from labeltide.chain.data import ChainData, ChainParameters, Expected, Members


class Task(ctypes.Structure):
    """The sizes and the tensors of one call, as _native_chain.c declares them."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("members", "rows", "steps", "classes", "annotators", "groups")),
        *((name, ctypes.c_int64) for name in ("points", "gaps")),
        *((name, ctypes.c_void_p) for name in ("labels", "lengths", "places", "evidence", "trusted", "jumps")),
        *((name, ctypes.c_void_p) for name in ("label_of", "evidence_of", "weights")),
        *((name, ctypes.c_void_p) for name in ("start", "transition", "power", "matrices", "bursts")),
        *((name, ctypes.c_void_p) for name in ("log_likelihood", "counts", "starts", "pairs", "slope", "kept")),
        ("posterior", ctypes.c_void_p),
    ]


def usable(data: ChainData) -> bool:
    """Whether the compiled pass can take these data."""
    return data.labels.device.type == "cpu" and _native.library() is not None


def fused_pass(data: ChainData, members: Members, parameters: ChainParameters, *, posterior: bool = False) -> Expected:
    """One forward and one backward run over all sequences of all members; see `expect`."""
    _, rows, steps, annotators = data.labels.shape
    m, groups, points, classes = parameters.matrices.shape[:4]
    out = Expected(
        torch.zeros(m, rows, dtype=torch.float64),
        torch.zeros(m, groups, points, classes, classes),
        torch.zeros(m, 2, classes),
        torch.zeros(m, 2, classes, classes),
        torch.zeros(m, 2),
        torch.zeros(m),
        torch.zeros(m, rows, steps, classes) if posterior else None,
    )
    given = parameters._replace(transition=data.transitions(parameters.transition))
    tensors = [
        data.labels,
        data.mask.sum(1),
        data.places(),
        data.evidence if data.evidence is None else data.evidence.float(),
        data.trusted,
        data.jumps,
        *members[:2],
        *(None if tensor is None else tensor.float() for tensor in (members.weights, *given)),
        *out,
    ]
    ready = [None if tensor is None else tensor.contiguous() for tensor in tensors]
    task = Task(m, rows, steps, classes, annotators, groups, points, len(data.gaps), *map(_native.pointer, ready))
    _native.run("labeltide_chain", task, m)
    return out._replace(log_likelihood=out.log_likelihood.to(parameters.power.dtype))
