"""Training data of a fleet: features shared by all members, labels, weights and mini-batches of each member."""

from __future__ import annotations

import os
from collections.abc import Sequence
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

    def to(self, device: str | torch.device) -> Self:
        """The same data on another device."""
        moved: dict[str, Any] = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in vars(self).items()}
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

        The order depends only on the member's seed and the epoch, so a resumed fit, or a member trained alone, sees
        the same batches.
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
