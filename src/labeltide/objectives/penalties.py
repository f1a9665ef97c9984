"""Penalties on Q: minimum volume (Li and others 2021, VolMinNet), Frobenius norm, and pooling of annotators.

The noise matrix is identified as the one of least volume that explains the labels. Each penalty gives one number per
matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

JITTER = 1e-4  # added to the diagonal of Q before its determinant is taken


def log_volume(matrices: Tensor) -> Tensor:
    r"""Log-volume of the simplex spanned by the rows of Q (Li and others 2021): :math:`\log |\det Q|`.

    A Q with equal rows has no volume; `JITTER` on the diagonal keeps the logarithm and its gradient finite.

    Parameters
    ----------
    matrices : Tensor of shape (..., classes, classes)
    """
    jitter = JITTER * torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return torch.linalg.slogdet(matrices + jitter).logabsdet


def frobenius(matrices: Tensor) -> Tensor:
    r"""Frobenius norm, the convex surrogate of the volume in Nagaraj and others (2025): :math:`\|Q\|_F`."""
    return matrices.square().sum((-2, -1)).sqrt()


def diagonal_norm(matrices: Tensor) -> Tensor:
    r"""Norm of the diagonal, the penalty in the published code of the paper: :math:`\|\mathrm{diag}\, Q\|`."""
    return matrices.diagonal(dim1=-2, dim2=-1).square().sum(-1).sqrt()


def spread(matrices: Tensor, shares: Tensor) -> Tensor:
    r"""Partial pooling: squared distance of each annotator to the common Q, :math:`\|Q_a - \sum_b s_b Q_b\|_F^2`.

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
    """The weighted average of a penalty over annotators and the clock: shape (members,)."""
    values = function(matrices)  # (members, [annotators,] points)
    if isinstance(weight, Tensor):
        return (weight[..., None] * values).mean((1, 2))
    return weight * values.flatten(1).mean(1)


def add_gradient(
    gradient: Tensor, function: Callable[[Tensor], Tensor], weight: float | Tensor, matrices: Tensor
) -> None:
    """Add the gradient of `average` with respect to `matrices`, in place."""
    scale = 1.0 if isinstance(weight, Tensor) else weight  # applied last, in one operation
    if function is frobenius:
        slope = matrices / (frobenius(matrices)[..., None, None] * matrices[0, ..., 0, 0].numel())
        slope = weight[..., None, None, None] * slope if isinstance(weight, Tensor) else slope
    else:
        leaf = matrices.detach().requires_grad_()
        weighted = average(function, weight if isinstance(weight, Tensor) else 1.0, leaf)
        slope = torch.autograd.grad(weighted.sum(), leaf)[0]
    gradient.add_(slope, alpha=scale)
