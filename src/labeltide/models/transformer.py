"""Transformer encoder (Vaswani and others 2017) with pre-norm layers (Xiong and others 2020), causal or not."""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def sinusoids(n_steps: int, size: int, device: torch.device | None = None) -> Tensor:
    r"""Sinusoidal positional encoding, :math:`\sin(t / 10000^{2i/size})` and the cosines: (steps, size), size even."""
    frequencies = torch.exp(torch.arange(0, size, 2, device=device) * (-math.log(10000.0) / size))
    angles = torch.arange(n_steps, device=device)[:, None] * frequencies  # (steps, size / 2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
