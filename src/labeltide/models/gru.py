"""Gated recurrent unit (GRU; Cho and others 2014) with a linear head: the model of Nagaraj and others (2025).

`models/recurrence.py` has the equations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from labeltide._fleet import FleetModule, MemberLinear, uniform_
from labeltide.kernels import choose
from labeltide.kernels import gru as kernel
from labeltide.models.base import SequenceModel
from labeltide.models.recurrence import gru_recurrence, gru_step


class GRUModel(SequenceModel):
    """A GRU layer with a linear head; bidirectional (Schuster and Paliwal 1997) unless causal.

    References
    ----------
    Cho et al. (2014), Learning phrase representations using RNN encoder-decoder for statistical machine translation.
    The reset gate is applied after the product with the hidden weights, as in cuDNN and `torch.nn.GRU`.
    """

    name = "gru"

    def __init__(
        self, members: int, n_features: int, n_classes: int, *, hidden_size: int = 32, causal: bool = True
    ) -> None:
        super().__init__()
        self.members, self.is_causal = members, causal
        self.forwards = GRULayer(members, n_features, hidden_size)
        self.backwards = None if causal else GRULayer(members, n_features, hidden_size)
        self.head = MemberLinear(members, hidden_size * (1 if causal else 2), n_classes)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        parameters = (*self.forwards.parameters(), *self.head.parameters())
        if self.backwards is None and kernel.usable(features, *parameters):
            return kernel.fused_logits(features, *parameters)
        hidden = self.forwards(features)
        if self.backwards is not None:
            # Padding comes first in reversed time. An update gate of 1 keeps the state at zero there.
            reverse = self.backwards(features.flip(2), mask.flip(2)).flip(2)
            hidden = torch.cat([hidden, reverse], -1)
        return self.head(hidden)

    @torch.no_grad()
    def advance(self, features: Tensor, state: Tensor) -> Tensor:
        """Logits of the next step, (members, streams, classes), of a causal model on the CPU.

        Parameters
        ----------
        features : Tensor of shape (members, streams, features)
        state : Tensor of shape (members, streams, hidden)
            Zero at the start; updated in place.
        """
        layer, parameters = self.forwards, (*self.forwards.parameters(), *self.head.parameters())
        if kernel.usable(features[:, :, None], *parameters):
            return kernel.fused_advance(features[:, :, None].contiguous(), state, *parameters)[:, :, 0]
        gates = torch.baddbmm(layer.bias_input, features, layer.weight_input)
        state.copy_(gru_step(gates, state, layer.weight_hidden, layer.bias_hidden))
        return self.head(state)


class GRULayer(FleetModule):
    """One GRU layer per member, with the gates, the initialisation and the parameter count of `torch.nn.GRU`."""

    def __init__(self, members: int, inputs: int, hidden_size: int) -> None:
        super().__init__()
        self.members, self.hidden_size = members, hidden_size
        self.weight_input = nn.Parameter(torch.zeros(members, inputs, 3 * hidden_size))
        self.weight_hidden = nn.Parameter(torch.zeros(members, hidden_size, 3 * hidden_size))
        self.bias_input = nn.Parameter(torch.zeros(members, 1, 3 * hidden_size))
        self.bias_hidden = nn.Parameter(torch.zeros(members, 1, 3 * hidden_size))

    def _initialise(self, generators: Sequence[Generator]) -> None:
        for parameter in (self.weight_input, self.weight_hidden, self.bias_input, self.bias_hidden):
            uniform_(parameter, self.hidden_size**-0.5, generators)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Hidden states of shape (members, batch, steps, hidden)."""
        parameters = (self.weight_input, self.weight_hidden, self.bias_input, self.bias_hidden)
        if mask is None:
            if choose("gru", features.device) == "triton":
                from labeltide.kernels import gru_triton

                if gru_triton.usable(features, *parameters):
                    return gru_triton.triton_gru(features, *parameters)
            elif kernel.usable(features, *parameters):
                return kernel.fused_gru(features, *parameters)
        by_step = features.permute(2, 0, 1, 3)  # (steps, members, batch, inputs)
        gates = torch.matmul(by_step, self.weight_input) + self.bias_input  # (steps, members, batch, 3 * hidden)
        if mask is not None:
            closed = (~mask).permute(2, 0, 1).unsqueeze(-1) * 1e4  # sigmoid(1e4) = 1 keeps the old state
            hidden = self.hidden_size
            gates = torch.cat(
                [gates[..., :hidden], gates[..., hidden : 2 * hidden] + closed, gates[..., 2 * hidden :]], -1
            )
        return gru_recurrence(gates, self.weight_hidden, self.bias_hidden).permute(1, 2, 0, 3)
