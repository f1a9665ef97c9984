"""Fused recurrences, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from torch import Tensor

from labeltide.models.kernels import fused


def choose(features: Tensor, *parameters: Tensor) -> Callable[..., Tensor] | None:
    """The fastest GRU that can take these tensors; None leaves them to torch."""
    if features.is_cuda and find_spec("triton") is not None:
        from labeltide.models.kernels import triton_gru

        return triton_gru.triton_gru if triton_gru.usable(features, *parameters) else None
    return fused.fused_gru if fused.usable(features, *parameters) else None
