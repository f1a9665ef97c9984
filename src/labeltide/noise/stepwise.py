"""A free noise matrix for every moment of a grid: the Discontinuous method of Nagaraj and others (2025)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor, nn

from labeltide.noise.base import LearnedNoise, dominant_rows


class StepwiseNoise(LearnedNoise):
    """One learned noise matrix per grid point; Q is piecewise constant and takes the nearest point.

    Parameters
    ----------
    clock : array of shape (points,)
        The rising grid. All logits start equal.
    annotators : int, default 1
        How many annotators have a Q each.
    """

    clock: Tensor

    def __init__(self, members: int, n_classes: int, clock: ArrayLike, annotators: int = 1) -> None:
        super().__init__()
        self.members, self.n_classes = members, n_classes
        leading = self._add_annotators(annotators)
        grid = torch.as_tensor(clock, dtype=torch.float64)
        self.register_buffer("clock", grid.expand(members, -1).clone())
        self.logits = nn.Parameter(torch.zeros(*leading, len(grid), n_classes, n_classes))

    def _initialise(self, generators: Sequence[Generator]) -> None:
        nn.init.zeros_(self.logits)

    def forward(self, clock: Tensor) -> Tensor:
        grid = self.clock[0]
        middles = (grid[1:] + grid[:-1]) / 2
        nearest = torch.searchsorted(middles, clock.to(grid).contiguous())
        return self.tie(dominant_rows(self.logits)[..., nearest, :, :])
