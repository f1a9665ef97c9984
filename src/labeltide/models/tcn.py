"""Temporal convolutional network (TCN; Bai, Kolter and Koltun 2018): residual blocks of dilated convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import conv1d, pad

from labeltide._fleet import FleetModule, MemberLinear, uniform_
from labeltide.models.base import SequenceModel

KERNEL_SIZE = 3
DILATIONS = (1, 2, 4, 8, 16)  # two convolutions each: the receptive field of a causal output is 125 steps


class TCNModel(SequenceModel):
    """Five residual blocks of dilated convolutions; causal, or centred where the model need not be causal.

    References
    ----------
    Bai, Kolter, Koltun (2018), An empirical evaluation of generic convolutional and recurrent networks for
    sequence modeling, arXiv:1803.01271. Without its dropout and weight normalisation.
    """

    name = "tcn"
    has_onnx = True
    reach = 1 + 2 * (KERNEL_SIZE - 1) * sum(DILATIONS)

    def __init__(
        self, members: int, n_features: int, n_classes: int, *, hidden_size: int = 32, causal: bool = True
    ) -> None:
        super().__init__()
        self.members, self.is_causal = members, causal
        self.embed = MemberLinear(members, n_features, hidden_size)
        self.blocks = nn.ModuleList(ResidualBlock(members, hidden_size, d, causal) for d in DILATIONS)
        self.head = MemberLinear(members, hidden_size, n_classes)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        hidden = self.embed(features).permute(1, 0, 3, 2)  # (batch, members, hidden, steps)
        padding = None if self.is_causal else ~mask.transpose(0, 1).unsqueeze(2)  # (batch, members, 1, steps)
        for block in self.blocks:
            hidden = block(hidden, padding)
        return self.head(hidden.permute(1, 0, 3, 2))

    def write_onnx(self, graph: Any, features: str, lengths: str | None, state: str | None) -> tuple[str, str | None]:
        mask = None
        if lengths is not None:  # (batch, 1, steps)
            mask = graph.to_float(graph.add("Unsqueeze", graph.real_steps(features, lengths), graph.whole(1)))

        def convolve(hidden: str, layer: Any) -> str:
            reach = layer.dilation * (KERNEL_SIZE - 1)
            sides = [reach, 0] if layer.causal else [reach // 2, reach // 2]
            if mask is not None:
                hidden = graph.add("Mul", hidden, mask)
            weight, bias = (tensor.detach().flatten(0, 1).numpy() for tensor in (layer.weight, layer.bias))
            options = {"dilations": [layer.dilation], "group": layer.members, "pads": sides}
            return graph.add("Relu", graph.add("Conv", hidden, graph.constant(weight), graph.constant(bias), **options))

        width = self.embed.weight.shape[-1]
        embedded = graph.linear(graph.add("Unsqueeze", features, graph.whole(0)), self.embed)
        channels = graph.add("Transpose", embedded, perm=[1, 0, 3, 2])  # (batch, members, hidden, steps)
        hidden = graph.add("Reshape", channels, graph.whole(0, self.members * width, -1))
        blocks: Any = self.blocks
        for block in blocks:
            inner = convolve(convolve(hidden, block.first), block.second)
            hidden = graph.add("Relu", graph.add("Add", hidden, inner))
        apart = graph.add("Reshape", hidden, graph.whole(0, self.members, width, -1))
        return graph.linear(graph.add("Transpose", apart, perm=[1, 0, 3, 2]), self.head), None


class ResidualBlock(FleetModule):
    """Residual block (He and others 2016): two convolutions of the same dilation and a skip connection."""

    def __init__(self, members: int, hidden_size: int, dilation: int, causal: bool) -> None:
        super().__init__()
        self.members = members
        self.first = MemberConv(members, hidden_size, dilation, causal)
        self.second = MemberConv(members, hidden_size, dilation, causal)

    def forward(self, hidden: Tensor, padding: Tensor | None) -> Tensor:
        inner = torch.relu(self.first(hidden, padding))
        return torch.relu(hidden + torch.relu(self.second(inner, padding)))


class MemberConv(FleetModule):
    """One dilated convolution per member, all of them in a single grouped convolution."""

    def __init__(self, members: int, hidden_size: int, dilation: int, causal: bool) -> None:
        super().__init__()
        self.members, self.dilation, self.causal = members, dilation, causal
        self.weight = nn.Parameter(torch.zeros(members, hidden_size, hidden_size, KERNEL_SIZE))
        self.bias = nn.Parameter(torch.zeros(members, hidden_size))

    def _initialise(self, generators: Sequence[Generator]) -> None:
        bound = (self.weight.shape[2] * KERNEL_SIZE) ** -0.5  # the initialisation of torch.nn.Conv1d
        uniform_(self.weight, bound, generators)
        uniform_(self.bias, bound, generators)

    def forward(self, hidden: Tensor, padding: Tensor | None) -> Tensor:
        """Convolve sequences (batch, members, hidden, steps); padding, (batch, members, 1, steps), counts as zero."""
        if padding is not None:
            hidden = hidden.masked_fill(padding, 0)
        reach = self.dilation * (KERNEL_SIZE - 1)
        sides = (reach, 0) if self.causal else (reach // 2, reach // 2)
        convolved = conv1d(
            pad(hidden.flatten(1, 2), sides),  # (batch, members * hidden, steps + reach)
            self.weight.flatten(0, 1),
            self.bias.flatten(),
            dilation=self.dilation,
            groups=self.members,
        )
        return convolved.unflatten(1, hidden.shape[1:3])
