"""Measures of how large Q is, one number for each matrix; minimising one makes the noise explain more."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

JITTER = 1e-4


def log_volume(matrices: Tensor) -> Tensor:
    r"""The volume of the simplex that the rows of Q span: :math:`\log |\det Q|`, as in VolMinNet.

    A Q whose rows coincide has no volume, and the logarithm no slope; `JITTER` on the diagonal keeps both finite.

    Parameters
    ----------
    matrices : Tensor of shape (..., classes, classes)
    """
    jitter = JITTER * torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return torch.linalg.slogdet(matrices + jitter).logabsdet


def frobenius(matrices: Tensor) -> Tensor:
    r"""The paper's convex stand-in for the volume: :math:`\|Q\|_F`."""
    return matrices.square().sum((-2, -1)).sqrt()


def diagonal_norm(matrices: Tensor) -> Tensor:
    r"""What the paper's published code shrinks instead: :math:`\|\mathrm{diag}\, Q\|`."""
    return matrices.diagonal(dim1=-2, dim2=-1).square().sum(-1).sqrt()


def gradient(function: Callable[[Tensor], Tensor], matrices: Tensor) -> Tensor:
    """How a penalty's average over the clock grows with each entry of Q, shape (members, points, classes, classes)."""
    if function is frobenius:
        return matrices / (frobenius(matrices)[..., None, None] * matrices.shape[1])
    leaf = matrices.detach().requires_grad_()
    return torch.autograd.grad(function(leaf).mean(1).sum(), leaf)[0]
