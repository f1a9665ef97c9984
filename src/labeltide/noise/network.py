"""Q as a multilayer perceptron of the clock: the Continuous method of Nagaraj and others (2025).

Width-scaled weights follow the NTK parametrisation (Jacot and others 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from labeltide._fleet import MemberLinear
from labeltide.kernels import network as kernel
from labeltide.noise.base import LearnedNoise, dominant_rows

BOUND = 4.0  # noise rates between 0.02 and 49.98 % for two classes
WIDTHS = (16, 32, 64, 128, 128, 128, 128, 128, 128, 128)  # the ten hidden layers of the paper's code


class NetworkNoise(LearnedNoise):
    """Hidden layers with ReLU from the clock to the logits of Q.

    The clock is mapped linearly so that ``bounds`` become [-1, 1]. Hidden layers use He initialisation (He and others
    2015) and the NTK parametrisation (Jacot and others 2018): weights are multiplied by ``1 / sqrt(inputs)``, so that
    Adam's fixed step changes wide and narrow layers alike. Q starts as a smooth function of time, and training is
    stable. Logits z are soft-clipped to :math:`b z / (b + |z|)` with b = ``BOUND``. A penalty on Q can make all its
    rows equal, where the classifier no longer affects the loss; there an unbounded softmax saturates, its gradient is
    exactly zero and training cannot leave that state. Clipped logits keep a gradient, so the data term wins once the
    augmented Lagrangian gives it enough weight.

    The network of the paper's code has raw steps, weights that are not scaled and logits that are not bounded.

    Parameters
    ----------
    bounds : the first and last moment of the clock
    raw_steps : int, optional
        The number of steps of the clock: the network then reads the step index 0, 1, ..., raw_steps - 1.
    annotators : int, default 1
        How many have a network each.
    widths : the hidden layers
    scaled_weights : bool, default True
        False: PyTorch's default initialisation and parametrisation.
    bounded_logits : bool, default True
    """

    bounds: Tensor

    def __init__(
        self,
        members: int,
        n_classes: int,
        bounds: tuple[float, float] = (0.0, 1.0),
        raw_steps: int | None = None,
        annotators: int = 1,
        widths: Sequence[int] = WIDTHS,
        *,
        scaled_weights: bool = True,
        bounded_logits: bool = True,
    ) -> None:
        super().__init__()
        self.members, self.n_classes, self.raw_steps = members, n_classes, raw_steps
        self.bound = BOUND if bounded_logits else 0.0
        self._add_annotators(annotators)
        self.register_buffer("bounds", torch.tensor(bounds, dtype=torch.float64).expand(members, 2).clone())
        sizes = (1, *widths)
        gain = 2**0.5 if scaled_weights else None
        self.layers = nn.ModuleList(MemberLinear(members, *size, gain, annotators) for size in pairwise(sizes))
        self.head = MemberLinear(members, sizes[-1], n_classes * n_classes, 0.1 if scaled_weights else None, annotators)

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
        if self.bound:
            logits = self.bound * logits / (self.bound + logits.abs())
        return dominant_rows(logits.reshape(networks, *clock.shape, self.n_classes, self.n_classes))

    def plan(self, clock: Tensor) -> tuple[list[MemberLinear], kernel.NetworkInput]:
        """The layers, the head last, and the scaled input: the arguments of the compiled network."""
        scale, shift = (self.raw_steps - 1, 0.0) if self.raw_steps else (2.0, -1.0)
        inputs = kernel.NetworkInput(clock, self.bounds[0], scale, shift, self.bound, self.n_classes)
        return [*self.layers, self.head], inputs

    def _scaled(self, clock: Tensor) -> Tensor:
        low, high = self.bounds[0]
        position = (clock.to(low) - low) / (high - low).clamp_min(torch.finfo(low.dtype).tiny)
        # Beyond ten lengths of the clock before and after the data Q is constant, so no clock value overflows.
        position = position.clamp(-10, 11).to(self.head.weight)
        return position * (self.raw_steps - 1) if self.raw_steps else 2 * position - 1
