"""Transformer encoder (Vaswani and others 2017) with pre-norm layers (Xiong and others 2020), causal or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from labeltide._fleet import FleetModule, MemberLinear
from labeltide.models.base import SequenceModel

HEADS = 4
LAYERS = 2
WIDENING = 4  # width of the feed-forward network over that of the model


class TransformerModel(SequenceModel):
    """Two pre-norm layers with four attention heads and sinusoidal positional encoding.

    References
    ----------
    Vaswani et al. (2017), Attention is all you need; layer normalisation comes first as in Xiong et al.
    (2020), On layer normalization in the transformer architecture, so that training needs no warm-up.
    """

    name = "transformer"
    has_onnx = True

    def __init__(
        self, members: int, n_features: int, n_classes: int, *, hidden_size: int = 32, causal: bool = True
    ) -> None:
        super().__init__()
        if hidden_size % HEADS:
            raise ValueError(
                f"hidden_size of a transformer must be divisible by {HEADS}, its heads. Got {hidden_size}; "
                f"{HEADS * math.ceil(hidden_size / HEADS)} would do."
            )
        self.members, self.is_causal = members, causal
        self.embed = MemberLinear(members, n_features, hidden_size)
        self.layers = nn.ModuleList(TransformerLayer(members, hidden_size) for _ in range(LAYERS))
        self.norm = MemberNorm(members, hidden_size)
        self.head = MemberLinear(members, hidden_size, n_classes)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        hidden = self.embed(features)  # (members, batch, steps, hidden)
        hidden = hidden + sinusoids(hidden.shape[-2], hidden.shape[-1], hidden.device).to(hidden.dtype)
        keys = None  # that attention may see, (members * batch, 1, 1, steps): without padding
        if not self.is_causal:
            first = torch.arange(mask.shape[-1], device=mask.device) == 0
            keys = (mask | first).flatten(0, 1)[:, None, None]  # no key at all, in a row of padding, would give NaN
        for layer in self.layers:
            hidden = layer(hidden, keys)
        return self.head(self.norm(hidden))

    def write_onnx(self, graph: Any, features: str, lengths: str | None, state: str | None) -> tuple[str, str | None]:
        steps = graph.positions(graph.size(features, 1))
        if lengths is None:  # (queries, keys)
            visible = graph.add("LessOrEqual", steps, graph.add("Unsqueeze", steps, graph.whole(1)))
        else:  # (batch, 1, 1, keys)
            visible = graph.add("Unsqueeze", graph.real_steps(features, lengths), graph.whole(1, 2))
        size = self.embed.weight.shape[-1]
        frequencies = torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size)).numpy()
        angles = graph.add(
            "Mul", graph.to_float(graph.add("Unsqueeze", steps, graph.whole(1))), graph.constant(frequencies)
        )
        encoding = graph.add("Concat", graph.add("Sin", angles), graph.add("Cos", angles), axis=-1)  # (steps, hidden)
        embedded = graph.linear(graph.add("Unsqueeze", features, graph.whole(0)), self.embed)
        hidden = graph.add("Add", embedded, encoding)
        layers: Any = self.layers
        for layer in layers:
            hidden = layer.write_onnx(graph, hidden, visible)
        return graph.linear(self.norm.write_onnx(graph, hidden), self.head), None


class TransformerLayer(FleetModule):
    """Multi-head self-attention, then a feed-forward network, each with pre-normalisation and a skip connection."""

    def __init__(self, members: int, hidden_size: int) -> None:
        super().__init__()
        self.members, self.width = members, hidden_size
        self.norm_attention = MemberNorm(members, hidden_size)
        self.queries_keys_values = MemberLinear(members, hidden_size, 3 * hidden_size)
        self.attended = MemberLinear(members, hidden_size, hidden_size)
        self.norm_feed = MemberNorm(members, hidden_size)
        self.widen = MemberLinear(members, hidden_size, WIDENING * hidden_size)
        self.narrow = MemberLinear(members, WIDENING * hidden_size, hidden_size)

    def forward(self, hidden: Tensor, keys: Tensor | None) -> Tensor:
        """The layer's output in the shape of `hidden`; attention is causal where `keys` is None."""
        parts = self.queries_keys_values(self.norm_attention(hidden)).flatten(0, 1)  # (members * batch, steps, ...)
        query, key, value = (p.unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in parts.chunk(3, dim=-1))
        gathered = scaled_dot_product_attention(query, key, value, attn_mask=keys, is_causal=keys is None)
        hidden = hidden + self.attended(gathered.transpose(1, 2).reshape(hidden.shape))
        return hidden + self.narrow(gelu(self.widen(self.norm_feed(hidden))))

    def write_onnx(self, graph: Any, hidden: str, visible: str) -> str:
        """The layer in an ONNX graph; `visible` are the keys that attention may see."""
        parts = graph.linear(self.norm_attention.write_onnx(graph, hidden), self.queries_keys_values)
        query, key, value = graph.add_many("Split", [parts], 3, axis=-1)
        heads = graph.whole(0, 0, 0, HEADS, -1)
        query, key, value = (
            graph.add("Transpose", graph.add("Reshape", part, heads), perm=[0, 1, 3, order, 6 - order])
            for part, order in ((query, 2), (key, 4), (value, 2))
        )  # (members, batch, heads, steps, width), keys (members, batch, heads, width, steps)
        scores = graph.add(
            "Div", graph.add("MatMul", query, key), graph.constant(np.float32((self.width / HEADS) ** 0.5))
        )
        scores = graph.add("Where", visible, scores, graph.constant(np.float32(-np.inf)))
        gathered = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
        joined = graph.add("Reshape", graph.add("Transpose", gathered, perm=[0, 1, 3, 2, 4]), graph.whole(0, 0, 0, -1))
        hidden = graph.add("Add", hidden, graph.linear(joined, self.attended))
        wide = graph.linear(self.norm_feed.write_onnx(graph, hidden), self.widen)
        erf = graph.add("Erf", graph.add("Mul", wide, graph.constant(np.float32(0.5**0.5))))
        half = graph.add("Mul", wide, graph.constant(np.float32(0.5)))
        active = graph.add("Mul", half, graph.add("Add", erf, graph.constant(np.float32(1.0))))  # gelu
        return graph.add("Add", hidden, graph.linear(active, self.narrow))


class MemberNorm(FleetModule):
    """Layer normalisation (Ba and others 2016) with a scale and a shift for each member."""

    def __init__(self, members: int, size: int) -> None:
        super().__init__()
        self.members = members
        self.scale = nn.Parameter(torch.ones(members, 1, 1, size))
        self.shift = nn.Parameter(torch.zeros(members, 1, 1, size))

    def _initialise(self, generators: Sequence[Generator]) -> None:
        nn.init.ones_(self.scale)
        nn.init.zeros_(self.shift)

    def forward(self, hidden: Tensor) -> Tensor:
        return layer_norm(hidden, hidden.shape[-1:]) * self.scale + self.shift

    def write_onnx(self, graph: Any, hidden: str) -> str:
        ones = graph.constant(np.ones(self.scale.shape[-1]))
        plain = graph.add("LayerNormalization", hidden, ones, axis=-1, epsilon=1e-5)
        scaled = graph.add("Mul", plain, graph.constant(self.scale.detach().numpy()))
        return graph.add("Add", scaled, graph.constant(self.shift.detach().numpy()))


def sinusoids(n_steps: int, size: int, device: torch.device | None = None) -> Tensor:
    r"""Sinusoidal positional encoding, :math:`\sin(t / 10000^{2i/size})` and the cosines: (steps, size), size even."""
    frequencies = torch.exp(torch.arange(0, size, 2, device=device) * (-math.log(10000.0) / size))
    angles = torch.arange(n_steps, device=device)[:, None] * frequencies  # (steps, size / 2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
