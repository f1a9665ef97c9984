"""A free matrix for every step, as in the paper's Discontinuous method."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor, nn

from labeltide.noise.base import LearnedNoise, dominant_rows


class StepwiseNoise(LearnedNoise):
    """One learned matrix for each moment of a grid; between them, the nearest one holds.

    Parameters
    ----------
    clock : array of shape (points,)
        The rising grid. All logits start equal.
    annotators : int, default 1
        How many have an own Q.
    """

    clock: Tensor

    def __init__(self, members: int, n_classes: int, clock: ArrayLike, annotators: int = 1) -> None:
        super().__init__()
        self.members, self.n_classes = members, n_classes
        own = self._tell_apart(annotators)
        grid = torch.as_tensor(clock, dtype=torch.float64)
        self.register_buffer("clock", grid.expand(members, -1).clone())
        self.logits = nn.Parameter(torch.zeros(*own, len(grid), n_classes, n_classes))

    def _initialise(self, generators: Sequence[Generator]) -> None:
        nn.init.zeros_(self.logits)

    def forward(self, clock: Tensor) -> Tensor:
        grid = self.clock[0]
        middles = (grid[1:] + grid[:-1]) / 2
        nearest = torch.searchsorted(middles, clock.to(grid).contiguous())
        return self.tie(dominant_rows(self.logits)[..., nearest, :, :])
