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
    """Features, labels and weights of a fleet as tensors on one device.

    Attributes
    ----------
    features : Tensor of shape (rows, steps, features)
    mask : bool Tensor of shape (rows, steps)
    labels : int8 Tensor of shape (members, rows, steps, annotators)
    grid : Tensor of shape (points,)
        The distinct moments of the clock, rising.
    points : int64 Tensor of shape (rows, steps), or None
        The grid point of each step; None where step t of every row is point t.
    weights : Tensor of shape (members, rows)
        The training weight of a row; zero leaves it out.
    held_out : bool Tensor of shape (members, rows)
        Validation rows, for early stopping.
    trusted : int8 Tensor of shape (rows, steps), optional
        Labels known to be right, -1 elsewhere.
    targets : Tensor of shape (members, rows, steps, classes), optional
        Soft labels, probabilities of the true label, in place of the labels.
    gaps : int64 Tensor of shape (rows, steps), optional
        Time before each step in units of steps; None where all are one.
    """

    features: Tensor
    mask: Tensor
    labels: Tensor
    grid: Tensor
    points: Tensor | None
    weights: Tensor
    held_out: Tensor
    trusted: Tensor | None = None
    targets: Tensor | None = None
    gaps: Tensor | None = None

    @property
    def members(self) -> int:
        return len(self.labels)

    def to(self, device: str | torch.device) -> Self:
        """The same data on another device."""
        moved: dict[str, Any] = {name: v if v is None else v.to(device) for name, v in vars(self).items()}
        return type(self)(**moved)

    def members_in(self, part: slice | Tensor) -> Self:
        """Some of the members, with the same features."""
        targets = None if self.targets is None else self.targets[part]
        return replace(
            self,
            labels=self.labels[part],
            weights=self.weights[part],
            held_out=self.held_out[part],
            targets=targets,
        )

    def batch(self, rows: Tensor) -> Batch:
        """Gather the rows of a (members, batch) table of row numbers, -1 for filler rows."""
        index = rows.clamp_min(0)
        member = torch.arange(self.members, device=rows.device)[:, None]
        return Batch(
            features=self.features[index],
            mask=self.mask[index],
            labels=self.labels[member, index],
            trusted=None if self.trusted is None else self.trusted[index],
            weights=self.weights[member, index] * (rows >= 0),
            points=None if self.points is None else self.points[index],
            targets=None if self.targets is None else self.targets[member, index],
        )

    def epoch_rows(self, seeds: Sequence[int], epoch: int, batch_size: int) -> Tensor:
        """Shuffled row numbers of one epoch for each member: (batches, members, batch_size), -1 for filler rows.

        The order depends only on the member's seed and the epoch, so a resumed fit, or a member trained alone, sees
        the same batches.
        """
        chosen = self.weights.cpu().numpy() > 0
        orders = [
            np.random.default_rng([seed, epoch]).permutation(np.flatnonzero(rows))
            for seed, rows in zip(seeds, chosen, strict=True)
        ]
        return _fill_up(orders, batch_size).to(self.features.device)

    def held_out_rows(self, batch_size: int) -> Tensor:
        """The validation rows of each member, in the same form."""
        rows = [np.flatnonzero(held) for held in self.held_out.cpu().numpy()]
        return _fill_up(rows, batch_size).to(self.features.device)


def free_memory(device: str) -> int:
    """Free memory of a device in bytes."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not available on every system
        return 4 * 2**30


def clock_grid(clock: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The distinct moments of a clock and the grid point of each step (None where rows share one clock).

    Parameters
    ----------
    clock : array of shape (rows, steps)
    mask : bool array of shape (rows, steps)
    """
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
