"""Static noise matrix, the same at all times, as in VolMinNet (Li and others 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from labeltide.noise.base import NoiseFunction, dominant_rows


class StaticNoise(NoiseFunction):
    """One learned noise matrix, constant over the clock; all logits start at zero."""

    def __init__(self, members: int, n_classes: int) -> None:
        super().__init__()
        self.members, self.n_classes = members, n_classes
        self.logits = nn.Parameter(torch.zeros(members, n_classes, n_classes))

    def _initialise(self, generators: Sequence[Generator]) -> None:
        nn.init.zeros_(self.logits)

    def forward(self, clock: Tensor) -> Tensor:
        matrices = dominant_rows(self.logits)  # (members, classes, classes)
        between = (1,) * clock.ndim
        shape = (self.members, *clock.shape, self.n_classes, self.n_classes)
        return matrices.reshape(self.members, *between, self.n_classes, self.n_classes).expand(shape)
