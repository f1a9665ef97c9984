"""The tensors of a stored method: read, taken apart, and checked against the shapes that they must have."""

from __future__ import annotations

import reprlib

import safetensors.torch
import torch
from torch import Tensor, nn

Tensors = dict[str, Tensor]
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


def wanted_shapes(module: nn.Module) -> Shapes:
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in module.state_dict().items()}


def check_tensors(part: str, tensors: Tensors, wanted: Shapes) -> None:
    if set(tensors) != set(wanted):
        names = reprlib.repr(sorted(set(tensors) ^ set(wanted)))
        raise ValueError(f"its {part} tensors do not fit its settings: {names} are missing or too many.")
    for name, (shape, dtype) in wanted.items():
        tensor = tensors[name]
        if (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
            raise ValueError(
                f"its {part} tensor {name!r} must have shape {shape} and type {dtype} to fit its settings. "
                f"Got {tuple(tensor.shape)} and {tensor.dtype}."
            )


def check_rising(moments: Tensor) -> None:
    if not bool(moments.isfinite().all()) or bool((moments.diff() < 0).any()):
        raise ValueError("the moments of its clock must be finite and rising.")


def take_part(tensors: Tensors, prefix: str) -> Tensors:
    """Remove the tensors of one part, and give them back under their own names."""
    names = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors.pop(name) for name in names}


def read_tensors(raw: bytes) -> Tensors:
    try:
        # Copies lie where torch puts its own tensors: products can differ in the last bit with the alignment.
        return {name: tensor.clone() for name, tensor in safetensors.torch.load(raw).items()}
    except Exception as error:  # a malformed header is reported by many kinds of error
        raise ValueError(f"its tensors cannot be read ({error}).") from None
