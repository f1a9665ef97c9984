"""Q as a neural network of the clock, as in the paper's Continuous method."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from labeltide._fleet import MemberLinear
from labeltide.kernels import network as kernel
from labeltide.noise.base import LearnedNoise, dominant_rows

BOUND = 4.0  # noise rates between 0.02 and 49.98 % for two classes
WIDTHS = (16, 32, 64, 128, 128, 128, 128, 128, 128, 128)  # the ten hidden layers of the paper's code


class NetworkNoise(LearnedNoise):
    """Ten hidden layers from the clock to the logits of Q.

    The clock is mapped linearly so that ``bounds`` become [-1, 1], every layer keeps the spread of its input, and its
    weights are held in units of its width: the network starts as a gently curved function of time, and neither large
    clock values nor ten layers that all move at once can throw it off. ``raw_steps`` gives the network of the paper's
    code instead, which reads the step index 0, 1, ..., raw_steps - 1 itself and starts from PyTorch's defaults.

    Logits are bent to stay within ``BOUND`` of zero. A penalty on Q can drive all rows together, where the classifier
    no longer matters; there a plain softmax saturates, its gradient is exactly zero and nothing ever moves again. Bent
    logits keep a gradient, so that the data win once the augmented Lagrangian weighs them enough.

    With several ``annotators`` each has a network of its own.
    """

    bounds: Tensor

    def __init__(
        self,
        members: int,
        n_classes: int,
        bounds: tuple[float, float] = (0.0, 1.0),
        raw_steps: int | None = None,
        annotators: int = 1,
    ) -> None:
        super().__init__()
        self.members, self.n_classes, self.raw_steps = members, n_classes, raw_steps
        self._tell_apart(annotators)
        self.register_buffer("bounds", torch.tensor(bounds, dtype=torch.float64).expand(members, 2).clone())
        sizes = (1, *WIDTHS)
        gain = None if raw_steps else 2**0.5
        self.layers = nn.ModuleList(MemberLinear(members, *size, gain, annotators) for size in pairwise(sizes))
        self.head = MemberLinear(members, sizes[-1], n_classes * n_classes, None if raw_steps else 0.1, annotators)

    def forward(self, clock: Tensor) -> Tensor:
        plan = self.plan(clock)
        matrices = kernel.fused_network(*plan) if kernel.usable(*plan) else self._by_torch(clock)
        if self.annotators > 1:
            matrices = matrices.unflatten(0, (self.members, self.annotators))
        return self.tie(matrices)

    def _by_torch(self, clock: Tensor) -> Tensor:
        """Q of every network: (members * annotators, ..., classes, classes)."""
        networks = self.members * self.annotators
        hidden = self._scaled(clock.reshape(1, -1, 1)).expand(networks, -1, -1)  # (networks, points, 1)
        for layer in self.layers:
            hidden = layer(hidden).relu()
        logits = self.head(hidden)  # (networks, points, classes * classes)
        if not self.raw_steps:
            logits = BOUND * logits / (BOUND + logits.abs())
        return dominant_rows(logits.reshape(networks, *clock.shape, self.n_classes, self.n_classes))

    def plan(self, clock: Tensor) -> tuple[list[MemberLinear], kernel.Input]:
        """The layers, the head last, and how they are used: what the compiled network is told."""
        scale, shift, bound = (self.raw_steps - 1, 0.0, 0.0) if self.raw_steps else (2.0, -1.0, BOUND)
        given = kernel.Input(clock, self.bounds[0], scale, shift, bound, self.n_classes)
        return [*self.layers, self.head], given

    def _scaled(self, clock: Tensor) -> Tensor:
        low, high = self.bounds[0]
        position = (clock.to(low) - low) / (high - low).clamp_min(torch.finfo(low.dtype).tiny)
        # Ten clock lengths beyond the data the function is held constant, so no clock value can overflow.
        position = position.clamp(-10, 11).to(self.head.weight)
        return position * (self.raw_steps - 1) if self.raw_steps else 2 * position - 1
