r"""Forward and backward loss corrections for label noise (Patrini and others 2017), and cross-entropy, per label.

The forward loss at time t is :math:`-\log (Q_t^\top p_t)_{\tilde y_t}`, the backward loss
:math:`\sum_j (Q_t^{-1})_{\tilde y_t j} \, (-\log p_{t,j})`. Nothing is averaged here.

Shapes are shared by both losses. `log_probs` has shape ``(..., batch, steps, classes)``. `labels` has shape
``(..., batch, steps)``, or ``(..., batch, steps, annotators)`` with several annotators; -1 means not recorded and
gives a loss of zero. `matrices` holds Q in the shape ``(classes, classes)``, ``(..., steps, classes, classes)`` when
all sequences of a batch share one clock, or ``(..., batch, steps, classes, classes)`` when each has its own. Where
annotators have a Q each, their axis stands where it does in the labels:
``(..., batch or 1, steps, annotators, classes, classes)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST_LOG = 1e-3  # the largest logarithm of a probability, with what rounding in half precision adds


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
    _check_log_probs(log_probs)
    return forward_values(log_probs, labels, matrices)


def forward_values(log_probs: Tensor, labels: Tensor, matrices: Tensor) -> Tensor:
    """`forward_loss` without the check of its logarithms, for the training loop."""
    _check_matrices(matrices, log_probs)
    labels, squeeze = _with_annotators(labels, log_probs)
    columns = _columns(_per_annotator(matrices, log_probs), labels)  # (..., steps, classes, annotators)
    tiny = torch.finfo(columns.dtype).tiny  # keeps log Q finite where Q is exactly zero; the gradient is zero there
    joint = log_probs.unsqueeze(-1) + columns.clamp_min(tiny).log()
    return _finish(-joint.logsumexp(-2), labels, squeeze)


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
    _check_log_probs(log_probs)
    return backward_values(log_probs, labels, matrices)


def backward_values(log_probs: Tensor, labels: Tensor, matrices: Tensor) -> Tensor:
    """`backward_loss` without the check of its logarithms, for the training loop."""
    _check_matrices(matrices, log_probs)
    labels, squeeze = _with_annotators(labels, log_probs)
    inverse = torch.linalg.inv(_per_annotator(matrices, log_probs))
    rows = _columns(inverse.transpose(-1, -2), labels)  # (..., steps, classes, annotators)
    return _finish(-(rows * log_probs.unsqueeze(-1)).sum(-2), labels, squeeze)


def cross_entropy(log_probs: Tensor, labels: Tensor) -> Tensor:
    r"""Cross-entropy of the recorded labels, without a correction: :math:`-\log p_{t, \tilde y_t}`."""
    labels, squeeze = _with_annotators(labels, log_probs)
    return _finish(-log_probs.gather(-1, labels.clamp_min(0)), labels, squeeze)


def _check_log_probs(log_probs: Tensor) -> None:
    """Logarithms of probabilities are never above zero; compiled code is not stopped to look."""
    if torch.compiler.is_compiling():
        return
    largest = float(log_probs.detach().max()) if log_probs.numel() else 0.0
    if largest > MOST_LOG:
        raise ValueError(
            f"log_probs must be logarithms of probabilities, which are at most 0. The largest is {largest:.3g}. Give "
            "probabilities as probs.log(), logits as logits.log_softmax(-1)."
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


def _with_annotators(labels: Tensor, log_probs: Tensor) -> tuple[Tensor, bool]:
    single = labels.ndim < log_probs.ndim
    return (labels.unsqueeze(-1) if single else labels).long(), single


def _finish(losses: Tensor, labels: Tensor, squeeze: bool) -> Tensor:
    losses = losses.masked_fill(labels < 0, 0.0)
    return losses.squeeze(-1) if squeeze else losses


def _per_annotator(matrices: Tensor, log_probs: Tensor) -> Tensor:
    """Insert the missing axes: (..., batch or 1, steps, annotators or 1, classes, classes)."""
    if matrices.ndim == log_probs.ndim + 2:
        return matrices
    matrices = matrices.unsqueeze(-4) if matrices.ndim == log_probs.ndim else matrices
    return matrices.unsqueeze(-3)


def _columns(matrices: Tensor, labels: Tensor) -> Tensor:
    """``matrices[..., i, labels]`` for every true label i: shape (..., steps, classes, annotators)."""
    if matrices.shape[-3] > 1:
        index = labels.clamp_min(0)[..., None, None].expand(*labels.shape, matrices.shape[-1], 1)
        return matrices.expand(*labels.shape, *matrices.shape[-2:]).gather(-1, index).squeeze(-1).transpose(-1, -2)
    matrices, n_classes = matrices.squeeze(-3), matrices.shape[-1]
    shape = torch.broadcast_shapes(matrices.shape[:-2], labels.shape[:-1])
    index = labels.clamp_min(0).unsqueeze(-2).expand(*shape, n_classes, -1)
    return matrices.expand(*shape, n_classes, n_classes).gather(-1, index)
