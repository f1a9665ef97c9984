"""The training objective: an augmented Lagrangian of the average loss and penalties on Q (Nagaraj and others 2025).

All masking, weighting and averaging of losses happens here. See Nocedal and Wright (2006), chapter 17, for augmented
Lagrangians.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

MAX_LOG = 1e-3  # the largest logarithm of a probability, with what rounding in half precision adds


def forward_loss(log_probs: Tensor, labels: Tensor, matrices: Tensor) -> Tensor:
    r"""Forward-corrected cross-entropy (Patrini and others 2017): :math:`-\log (Q_t^\top p_t)_{\tilde y_t}`.

    Its minimiser over noisy labels is the clean posterior (proposition 1 of Nagaraj and others 2025), provided that
    every :math:`Q_t` is invertible.

    Parameters
    ----------
    log_probs : Tensor of shape (..., batch, steps, classes)
        Logarithms of the predicted probabilities of the true label, as `log_softmax` gives them.
    labels : Tensor of shape (..., batch, steps) or (..., batch, steps, annotators)
        Recorded labels as whole numbers from 0; -1 where none was recorded.
    matrices : Tensor of shape (classes, classes) or (..., steps, classes, classes)
        Q, with rows of true and columns of recorded labels, for all steps or for each. Where each sequence has its own:
        (..., batch, steps, classes, classes). Where annotators have a Q each:
        (..., batch or 1, steps, annotators, classes, classes).

    Returns
    -------
    Tensor of the shape of `labels`
        The loss of each label, not averaged. It is 0 where the label is -1, and has no gradient there. ``.mean()``
        counts these steps as zero loss; ``losses.sum() / (labels >= 0).sum()`` is the mean over recorded labels.

    Examples
    --------
    >>> import labeltide as lt
    >>> import torch
    >>> log_probs = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]]).log()  # of the true label: (batch, steps, classes)
    >>> Q = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    >>> lt.forward_loss(log_probs, torch.tensor([[0, 1]]), Q)
    tensor([[0.2877, 0.5108]])
    """
    _check_inputs(log_probs, labels, matrices)
    return label_losses(log_probs, labels, matrices)


def backward_loss(log_probs: Tensor, labels: Tensor, matrices: Tensor) -> Tensor:
    r"""Backward correction (Patrini and others 2017): :math:`\sum_j (Q_t^{-1})_{\tilde y_t j} \, (-\log p_{t,j})`.

    It is an unbiased estimate of the clean loss. Single values may be negative, and large where :math:`Q_t` is nearly
    singular.

    Examples
    --------
    >>> import labeltide as lt
    >>> import torch
    >>> log_probs = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]]).log()  # of the true label: (batch, steps, classes)
    >>> Q = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    >>> lt.backward_loss(log_probs, torch.tensor([[0, 1]]), Q)
    tensor([[-0.7735, -0.6086]])
    """
    _check_inputs(log_probs, labels, matrices)
    try:
        return label_losses(log_probs, labels, matrices, "backward")
    except torch.linalg.LinAlgError:
        raise ValueError(
            "Every Q must be invertible for the backward correction. Some are singular: recorded labels say nothing "
            "there. Use forward_loss, or leave these steps out."
        ) from None


LOSSES = ("forward", "backward")


def label_losses(
    log_probs: Tensor, labels: Tensor, matrices: Tensor | None = None, correction: str = "forward"
) -> Tensor:
    r"""`forward_loss`, `backward_loss` or, without Q, cross-entropy :math:`-\log p_{t, \tilde y_t}`; for training."""
    single = labels.ndim < log_probs.ndim
    labels = (labels.unsqueeze(-1) if single else labels).long()
    if matrices is None:
        losses = -log_probs.gather(-1, labels.clamp_min(0))
    else:
        _check_matrices(matrices, log_probs)
        if matrices.ndim < log_probs.ndim + 2:  # to (..., batch or 1, steps, annotators or 1, classes, classes)
            matrices = (matrices.unsqueeze(-4) if matrices.ndim == log_probs.ndim else matrices).unsqueeze(-3)
        if correction == "backward":
            rows = _columns(torch.linalg.inv(matrices).transpose(-1, -2), labels)  # (..., steps, classes, annotators)
            losses = -(rows * log_probs.unsqueeze(-1)).sum(-2)
        else:
            columns = _columns(matrices, labels)  # (..., steps, classes, annotators)
            tiny = torch.finfo(columns.dtype).tiny  # keeps log Q finite where Q is zero; the gradient is zero there
            losses = -(log_probs.unsqueeze(-1) + columns.clamp_min(tiny).log()).logsumexp(-2)
    losses = losses.masked_fill(labels < 0, 0.0)
    return losses.squeeze(-1) if single else losses


def _check_inputs(log_probs: Tensor, labels: Tensor, matrices: Tensor) -> None:
    """Refuse what torch would refuse in its own words; compiled code is not stopped to look at values."""
    for name, value in (("log_probs", log_probs), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a tensor. Got {type(value).__name__}. Use torch.as_tensor({name}).")
    if labels.shape[: log_probs.ndim - 1] != log_probs.shape[:-1] or labels.ndim > log_probs.ndim:
        raise ValueError(
            f"labels must have shape {tuple(log_probs.shape[:-1])}, one per step of log_probs, with an axis of "
            f"annotators at most. Got shape {tuple(labels.shape)}."
        )
    _check_matrices(matrices, log_probs)
    if not matrices.is_floating_point():
        raise ValueError(f"matrices must hold floating-point numbers. Got {matrices.dtype}. Use matrices.float().")
    if torch.compiler.is_compiling() or not log_probs.numel():
        return
    largest = float(log_probs.detach().max())
    if largest > MAX_LOG:
        raise ValueError(
            f"log_probs must be logarithms of probabilities, which are at most 0. The largest is {largest:.3g}. Give "
            "probabilities as probs.log(), logits as logits.log_softmax(-1)."
        )
    if int(labels.max()) >= log_probs.shape[-1]:
        raise ValueError(
            f"labels must be whole numbers from 0 to {log_probs.shape[-1] - 1}, the classes of log_probs, or -1 where "
            f"none was recorded. The largest is {int(labels.max())}."
        )


def _check_matrices(matrices: Tensor, log_probs: Tensor) -> None:
    """Q must be a tensor with the classes of the predictions, and with their steps where it has an axis of steps."""
    if not isinstance(matrices, Tensor):
        raise ValueError(
            f"matrices must be a tensor. Got {type(matrices).__name__}. From a fitted classifier: "
            "torch.as_tensor(clf.noise_at(clock), dtype=torch.float32)."
        )
    n_steps, n_classes = log_probs.shape[-2:]
    steps = matrices.shape[-4 if matrices.ndim == log_probs.ndim + 2 else -3] if matrices.ndim > 2 else 1
    if matrices.shape[-2:] != (n_classes, n_classes) or steps not in (1, n_steps):
        raise ValueError(
            f"matrices must have shape {(n_classes, n_classes)} or {('...', n_steps, n_classes, n_classes)}, one Q for "
            f"all steps or for each. Got shape {tuple(matrices.shape)}."
        )


def _columns(matrices: Tensor, labels: Tensor) -> Tensor:
    """``matrices[..., i, labels]`` for every true label i: shape (..., steps, classes, annotators)."""
    if matrices.shape[-3] > 1:
        index = labels.clamp_min(0)[..., None, None].expand(*labels.shape, matrices.shape[-1], 1)
        return matrices.expand(*labels.shape, *matrices.shape[-2:]).gather(-1, index).squeeze(-1).transpose(-1, -2)
    matrices, n_classes = matrices.squeeze(-3), matrices.shape[-1]
    shape = torch.broadcast_shapes(matrices.shape[:-2], labels.shape[:-1])
    index = labels.clamp_min(0).unsqueeze(-2).expand(*shape, n_classes, -1)
    return matrices.expand(*shape, n_classes, n_classes).gather(-1, index)


MIN_WEIGHT = 1e-12  # denominator of an average over no labels, which is then zero


class Scored(NamedTuple):
    """The objective of a batch and its parts: shape (members,) each."""

    total: Tensor  # minimised by training
    data: Tensor  # the average loss of a recorded label, used by early stopping and the multipliers
    labels: Tensor  # the summed weights of the labels in that average


@dataclass(frozen=True)
class Penalty:
    """A penalty on Q, averaged over annotators and the clock, and its weight."""

    name: str
    function: Callable[[Tensor], Tensor]  # from Q on the grid to one number per matrix
    weight: float | Tensor  # a number, or of shape (members, annotators or 1)
    with_data: bool = False  # whether the linear multiplier of the data term multiplies a Tensor, as that of a prior

    def weigh(self, multipliers: Multipliers | None) -> float | Tensor:
        """The weight under the current multipliers."""
        grows = self.with_data and multipliers is not None
        return self.weight * multipliers.linear[:, None] if grows else self.weight  # type: ignore[union-attr]


@dataclass(frozen=True)
class Multipliers:
    """Multipliers of the data term (linear) and of its square (quadratic): shape (members,) each."""

    linear: Tensor
    quadratic: Tensor


@dataclass(frozen=True)
class Objective:
    r"""The average loss of the recorded labels plus penalties on Q, separately for each member.

    With :math:`R_t` the average loss at step t,

    .. math:: \sum_k w_k\,\mathrm{mean}_t\, \mathrm{pen}_k(Q_t) + \lambda\,\mathrm{mean}_t R_t
              + \tfrac{c}{2}\,\mathrm{mean}_t R_t^2 .

    Without multipliers, :math:`\lambda = 1` and :math:`c = 0`.
    """

    loss: str = "forward"
    penalties: tuple[Penalty, ...] = ()

    def __call__(
        self,
        log_probs: Tensor,  # (members, batch, steps, classes)
        labels: Tensor,  # (members, batch, steps, annotators)
        weights: Tensor,  # broadcasts to labels; zero on padding and on rows that are left out; -1 never counts
        *,
        trusted: Tensor | None = None,  # (members, batch, steps), one more annotator whose Q is the identity
        targets: Tensor | None = None,  # (members, batch, steps, classes), soft labels in place of all; zero for none
        matrices: Tensor | None = None,  # Q in the shapes of the losses; without it, cross-entropy
        grid: Tensor | None = None,  # Q over the clock, (members, [annotators,] points, classes, classes)
        multipliers: Multipliers | None = None,
    ) -> Scored:
        """Evaluate the objective on a batch."""
        if targets is not None:
            values = -(targets * log_probs).sum(-1, keepdim=True)
            labels = targets.sum(-1, keepdim=True).ceil() - 1  # -1 where there is no target
        else:
            values = label_losses(log_probs, labels, matrices, self.loss)
            if trusted is not None:
                values = torch.cat([values, label_losses(log_probs, trusted).unsqueeze(-1)], -1)
                labels = torch.cat([labels, trusted.unsqueeze(-1)], -1)
        weights = weights * (labels >= 0)
        counts = weights.sum((1, 3))  # (members, steps)
        per_step = (values * weights).sum((1, 3)) / counts.clamp_min(MIN_WEIGHT)
        shares = counts / counts.sum(1, keepdim=True).clamp_min(MIN_WEIGHT)
        data = (shares * per_step).sum(1)  # (members,)
        total = data
        if multipliers is not None:
            squares = (shares * per_step.square()).sum(1)
            total = multipliers.linear * data + multipliers.quadratic / 2 * squares
        if grid is not None:
            for penalty in self.penalties:
                total = total + average(penalty.function, penalty.weigh(multipliers), grid)
        return Scored(total, data, weights.sum((1, 2, 3)))


JITTER = 1e-4  # added to the diagonal of Q before its determinant is taken


def log_volume(matrices: Tensor) -> Tensor:
    r"""Log-volume of the simplex spanned by the rows of Q (Li and others 2021): :math:`\log |\det Q|`.

    A Q with equal rows has no volume; `JITTER` on the diagonal keeps the logarithm and its gradient finite.
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

    Q has shape (members, annotators, points, classes, classes), the shares of labels (members, annotators).
    """
    common = (shares[..., None, None, None] * matrices).sum(1, keepdim=True)
    return (matrices - common).square().sum((-2, -1))  # (members, annotators, points)


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
