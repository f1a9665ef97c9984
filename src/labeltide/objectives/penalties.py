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


def spread(matrices: Tensor, shares: Tensor) -> Tensor:
    r"""How far each annotator stands from all together: :math:`\|Q_a - \sum_b s_b Q_b\|_F^2`.

    Parameters
    ----------
    matrices : Tensor of shape (members, annotators, points, classes, classes)
    shares : Tensor of shape (members, annotators)
        Each annotator's share of the labels.

    Returns
    -------
    Tensor of shape (members, annotators, points)
    """
    common = (shares[..., None, None, None] * matrices).sum(1, keepdim=True)
    return (matrices - common).square().sum((-2, -1))


def average(function: Callable[[Tensor], Tensor], weight: float | Tensor, matrices: Tensor) -> Tensor:
    """A penalty's weighed average over annotators and the clock: shape (members,)."""
    values = function(matrices)  # (members, [annotators,] points)
    if isinstance(weight, Tensor):
        return (weight[..., None] * values).mean((1, 2))
    return weight * values.flatten(1).mean(1)


def add_gradient(
    gradient: Tensor, function: Callable[[Tensor], Tensor], weight: float | Tensor, matrices: Tensor
) -> None:
    """Add in place how `average` grows with each entry of Q, of the shape of `matrices`."""
    alone = 1.0 if isinstance(weight, Tensor) else weight  # applied last, in one operation
    if function is frobenius:
        own = matrices / (frobenius(matrices)[..., None, None] * matrices[0, ..., 0, 0].numel())
        own = weight[..., None, None, None] * own if isinstance(weight, Tensor) else own
    else:
        leaf = matrices.detach().requires_grad_()
        weighed = average(function, weight if isinstance(weight, Tensor) else 1.0, leaf)
        own = torch.autograd.grad(weighed.sum(), leaf)[0]
    gradient.add_(own, alpha=alone)
