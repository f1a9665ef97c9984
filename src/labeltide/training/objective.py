"""What a fleet is trained on, and what is minimised: batches, losses, penalties and their averages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

MAX_GRID_POINTS = 1024  # a clock with more distinct moments is rounded to a regular grid; Q varies slowly
# Steps of all rows beyond which labels are not repeated for each member and features are not copied in reversed order:
# every batch is then gathered anew. Under it the compiled step reads the tables themselves, which is a little faster.
MANY_STEPS = 2**20


class Batch(NamedTuple):
    """A mini-batch for every member; members may have different rows."""

    features: Tensor  # (members, batch, steps, features)
    mask: Tensor  # (members, batch, steps), False on padding
    labels: Tensor  # (members, batch, steps, annotators)
    trusted: Tensor | None  # (members, batch, steps)
    weights: Tensor  # (members, batch), zero for filler rows
    points: Tensor | None  # (members, batch, steps), positions on the clock grid; None where rows share one clock
    targets: Tensor | None = None  # (members, batch, steps, classes)


@dataclass(frozen=True)
class FleetData:
    """Features, labels and weights of a fleet as tensors on one device."""

    features: Tensor  # (rows, steps, features)
    mask: Tensor  # bool (rows, steps)
    labels: Tensor  # int8 (members or sets, rows, steps, annotators)
    grid: Tensor  # (points,), the distinct moments of the clock, rising
    points: Tensor | None  # int64 (rows, steps), the grid point of each step; None where step t of every row is point t
    weights: Tensor  # (members, rows), of a row in training; zero leaves it out
    held_out: Tensor  # bool (members, rows), validation rows for early stopping
    trusted: Tensor | None = None  # int8 (rows, steps), labels known to be right, -1 elsewhere
    targets: Tensor | None = None  # (members or sets, rows, steps, classes), soft labels in place of the labels
    gaps: Tensor | None = None  # int64 (rows, steps), steps of time before each step; None where all are one
    sets: Tensor | None = None  # int64 (members,), of labels and targets; None where every member has its own
    backwards: bool = False  # whether networks read features from the last step to the first; all else is in that order

    @property
    def members(self) -> int:
        return len(self.weights)

    @property
    def has_many_steps(self) -> bool:
        """Whether nothing as large as the features is to be held in memory once more; a GPU holds what fits there."""
        return self.mask.is_cpu and self.mask.numel() > MANY_STEPS

    def to(self, device: str | torch.device, copy: bool = False) -> Self:
        """The same data on another device, or there as well."""
        moved: dict[str, Any] = {
            name: value.to(device, copy=copy) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return type(self)(**moved)

    def members_in(self, part: slice | Tensor) -> Self:
        """Some of the members, with the same features."""
        by_member = ("weights", "held_out", *(("labels", "targets") if self.sets is None else ("sets",)))
        values = {name: getattr(self, name) for name in by_member}
        parts: dict[str, Any] = {name: None if each is None else each[part] for name, each in values.items()}
        return replace(self, **parts)

    def repeat_members(self, copies: int) -> Self:
        """Each member several times; where there are many steps, all copies share one set of labels."""
        sets = self.sets
        if sets is None and self.has_many_steps:
            sets = torch.arange(self.members, device=self.mask.device)
        by_member = ("weights", "held_out", *(("labels",) if sets is None else ()))
        repeated: dict[str, Any] = {name: getattr(self, name).repeat_interleave(copies, 0) for name in by_member}
        return replace(self, **repeated, sets=None if sets is None else sets.repeat_interleave(copies))

    def take_features(self, rows: slice | Tensor) -> Tensor:
        """The features of some rows, (..., steps, features), in the order in which networks read them."""
        if not self.backwards:
            return self.features[rows]
        order = reversal(self.mask[rows])  # (..., steps)
        index = torch.arange(len(self.mask), device=order.device)[rows] if isinstance(rows, slice) else rows
        return self.features[index[..., None], order]

    def batch(self, rows: Tensor) -> Batch:
        """Gather the rows of a (members, batch) table of row numbers, -1 for filler rows."""
        index = rows.clamp_min(0)
        member = torch.arange(self.members, device=rows.device)[:, None]
        label_set = member if self.sets is None else self.sets[:, None]
        return Batch(
            features=self.take_features(index),
            mask=self.mask[index],
            labels=self.labels[label_set, index],
            trusted=None if self.trusted is None else self.trusted[index],
            weights=self.weights[member, index] * (rows >= 0),
            points=None if self.points is None else self.points[index],
            targets=None if self.targets is None else self.targets[label_set, index],
        )

    def epoch_rows(self, seeds: Sequence[int], epoch: int, batch_size: int, *, shuffle: bool = True) -> Tensor:
        """Row numbers of one epoch for each member: (batches, members, batch_size), -1 for filler rows.

        The order depends only on the member's seed and the epoch, so a member trained alone sees the same batches.
        """
        orders = [np.flatnonzero(rows) for rows in self.weights.cpu().numpy() > 0]
        if shuffle:
            orders = [
                np.random.default_rng([seed, epoch]).permutation(o) for seed, o in zip(seeds, orders, strict=True)
            ]
        return _fill_up(orders, batch_size).to(self.features.device)

    def held_out_rows(self, batch_size: int) -> Tensor:
        """The validation rows of each member, in the same form."""
        rows = [np.flatnonzero(held) for held in self.held_out.cpu().numpy()]
        return _fill_up(rows, batch_size).to(self.features.device)


def reversal(mask: Tensor) -> Tensor:
    """The index of each step in the reversed row; padding stays in place: of the shape of the mask, (..., steps)."""
    lengths = mask.sum(-1, keepdim=True)
    step = torch.arange(mask.shape[-1], device=mask.device)
    return torch.where(step < lengths, lengths - 1 - step, step)


def free_memory(device: str) -> int:
    """Free memory of a device in bytes."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not available on every system
        return 4 * 2**30


def clock_grid(clock: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The distinct moments of a clock (rows, steps), and the grid point of each step; None where rows share it."""
    longest = clock[mask.sum(1).argmax()]
    if mask.any(0).all() and np.all(np.diff(longest) > 0) and np.all((clock == longest) | ~mask):
        return longest, None
    grid = np.unique(clock[mask])
    if len(grid) > MAX_GRID_POINTS:
        grid = np.linspace(grid[0], grid[-1], MAX_GRID_POINTS)
    middles = (grid[1:] + grid[:-1]) / 2
    return grid, np.searchsorted(middles, clock)


def _fill_up(orders: Sequence[np.ndarray], batch_size: int) -> Tensor:
    longest = max(len(order) for order in orders)
    width = min(batch_size, max(longest, 1))
    batches = -(-longest // width)
    table = np.full((len(orders), batches * width), -1, dtype=np.int64)
    for member, order in enumerate(orders):
        table[member, : len(order)] = order
    return torch.from_numpy(table.reshape(len(orders), batches, width).swapaxes(0, 1).copy())


# The training objective: an augmented Lagrangian of the average loss and penalties on Q (Nagaraj and others 2025).

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


class ObjectiveTerms(NamedTuple):
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
    ) -> ObjectiveTerms:
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
        return ObjectiveTerms(total, data, weights.sum((1, 2, 3)))


JITTER = 1e-4  # added to the diagonal of Q before its determinant is taken


def log_volume(matrices: Tensor, jitter: float = JITTER) -> Tensor:
    r"""Log-volume of the simplex spanned by the rows of Q (Li and others 2021): :math:`\log |\det Q|`.

    A Q with equal rows has no volume; `jitter` on the diagonal keeps the logarithm and its gradient finite.
    """
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return torch.linalg.slogdet(matrices + jitter * identity).logabsdet


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
