r"""Gated recurrent unit (GRU; Cho and others 2014) with a linear head: the model of Nagaraj and others (2025).

With the input part of the gates :math:`a^r, a^z, a^n` already computed for all steps, the recurrence is

.. math::
    r &= \sigma(a^r + h W^r + b^r), \quad z = \sigma(a^z + h W^z + b^z), \\
    m &= h W^n + b^n, \quad n = \tanh(a^n + r\,m), \quad h' = n + z\,(h - n).

Its gradient (backpropagation through time) is written out, which takes a third of the operations that autograd records;
the weight gradient is one matrix product over all steps instead of one per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from labeltide._fleet import FleetModule, MemberLinear, uniform_
from labeltide.kernels import choose
from labeltide.kernels import compiled as kernel
from labeltide.models.base import SequenceModel


class GRUModel(SequenceModel):
    """A GRU layer with a linear head; bidirectional (Schuster and Paliwal 1997) unless causal.

    References
    ----------
    Cho et al. (2014), Learning phrase representations using RNN encoder-decoder for statistical machine translation.
    The reset gate is applied after the product with the hidden weights, as in cuDNN and `torch.nn.GRU`.
    """

    name = "gru"
    kept_per_unit = 16
    has_onnx = True

    def __init__(
        self, members: int, n_features: int, n_classes: int, *, hidden_size: int = 32, causal: bool = True
    ) -> None:
        super().__init__()
        self.members, self.is_causal = members, causal
        self.forwards = GRULayer(members, n_features, hidden_size)
        self.backwards = None if causal else GRULayer(members, n_features, hidden_size)
        self.head = MemberLinear(members, hidden_size * (1 if causal else 2), n_classes)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        parameters = self.fused_parameters()
        if parameters is not None and kernel.gru_usable(features, *parameters):
            return kernel.fused_gru(features, *parameters)
        hidden = self.forwards(features)
        if self.backwards is not None:
            # Padding comes first in reversed time. An update gate of 1 keeps the state at zero there.
            reverse = self.backwards(features.flip(2), mask.flip(2)).flip(2)
            hidden = torch.cat([hidden, reverse], -1)
        return self.head(hidden)

    def fused_parameters(self) -> tuple[Tensor, ...] | None:
        return (*self.forwards.parameters(), *self.head.parameters()) if self.backwards is None else None

    def start(self, streams: int) -> Tensor:
        """The hidden states, (members, streams, hidden)."""
        return torch.zeros(self.members, streams, self.forwards.hidden_size)

    @torch.no_grad()
    def advance(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        layer, parameters = self.forwards, (*self.forwards.parameters(), *self.head.parameters())
        steps = features.expand(self.members, -1, -1)
        if kernel.gru_usable(steps[:, :, None], *parameters):
            state = state.clone()  # updated in place
            return kernel.fused_advance(steps[:, :, None].contiguous(), state, *parameters)[:, :, 0], state
        hidden = 2 * state.shape[-1]  # columns of the reset and update gates
        gates = torch.baddbmm(layer.bias_input, steps, layer.weight_input)
        hidden_part = torch.baddbmm(layer.bias_hidden, state, layer.weight_hidden)
        reset, update = (gates[..., :hidden] + hidden_part[..., :hidden]).sigmoid().chunk(2, -1)
        new = torch.addcmul(gates[..., hidden:], reset, hidden_part[..., hidden:]).tanh()
        state = torch.lerp(new, state, update)
        return self.head(state), state

    @property
    def onnx_state(self) -> tuple[int | str, ...] | None:
        return (self.members, "streams", self.forwards.hidden_size)

    def write_onnx(self, graph: Any, features: str, lengths: str | None, state: str | None) -> tuple[str, str | None]:
        by_step = graph.add("Transpose", features, perm=[1, 0, 2])  # (steps, batch, features)
        counts = "" if lengths is None else graph.add("Cast", lengths, to=graph.onnx.TensorProto.INT32)
        befores = [""] * self.members if state is None else graph.add_many("Split", [state], self.members, axis=0)
        layers = [self.forwards] if self.backwards is None else [self.forwards, self.backwards]
        hidden, afters = [], []
        for member, before in enumerate(befores):
            weights = [np.stack(parts) for parts in zip(*(layer.onnx_gates(member) for layer in layers), strict=True)]
            # With linear_before_reset the reset gate is applied after the product with the hidden weights.
            every, last = graph.add_many(
                "GRU",
                [by_step, *map(graph.constant, weights), counts, before],
                2,
                hidden_size=self.forwards.hidden_size,
                direction="forward" if self.backwards is None else "bidirectional",
                linear_before_reset=1,
            )
            by_row = graph.add("Transpose", every, perm=[2, 0, 1, 3])  # (batch, steps, directions, hidden)
            joined = graph.add("Reshape", by_row, graph.whole(0, 0, -1))
            hidden.append(graph.add("Unsqueeze", joined, graph.whole(0)))
            afters.append(last)
        logits = graph.linear(graph.add("Concat", *hidden, axis=0), self.head)
        return logits, None if state is None else graph.add("Concat", *afters, axis=0)


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
        for parameter in self.parameters():
            uniform_(parameter, self.hidden_size**-0.5, generators)

    def onnx_gates(self, member: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Input weights, hidden weights and biases of one member, with the gates update, reset, new as in ONNX."""
        ordered = []
        for parameter in self.parameters():
            reset, update, new = parameter[member].detach().chunk(3, -1)
            ordered.append(torch.cat([update, reset, new], -1).T.numpy())  # (3 * hidden, inputs)
        return ordered[0], ordered[1], np.concatenate(ordered[2:])[:, 0]

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Hidden states of shape (members, batch, steps, hidden)."""
        parameters = tuple(self.parameters())
        if mask is None:
            if choose("gru", features.device) == "triton":
                from labeltide.kernels import gru_triton

                if gru_triton.usable(features, *parameters):
                    return gru_triton.triton_gru(features, *parameters)
            elif kernel.gru_usable(features, *parameters):
                return kernel.fused_gru(features, *parameters)
        by_step = features.permute(2, 0, 1, 3)  # (steps, members, batch, inputs)
        gates = torch.matmul(by_step, self.weight_input) + self.bias_input  # (steps, members, batch, 3 * hidden)
        if mask is not None:
            closed = (~mask).permute(2, 0, 1).unsqueeze(-1) * 1e4  # sigmoid(1e4) = 1 keeps the old state
            reset, update, new = gates.chunk(3, -1)
            gates = torch.cat([reset, update + closed, new], -1)
        return Recurrence.apply(gates, self.weight_hidden, self.bias_hidden).permute(1, 2, 0, 3)


class Recurrence(torch.autograd.Function):
    """Hidden states of every step, (steps, members, batch, hidden), starting from zero.

    The input part of the gates, (steps, members, batch, 3 * hidden), comes in the order reset, update, new.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        steps, members, batch, width = gates.shape
        hidden = width // 3
        states = gates.new_zeros(steps + 1, members, batch, hidden)  # states[t] is the state before step t
        resets_updates = gates.new_empty(steps, members, batch, 2 * hidden)
        news = gates.new_empty(steps, members, batch, hidden)
        mixes = gates.new_empty(steps, members, batch, hidden)  # the hidden part of the new gate, before the reset gate
        for t in range(steps):
            hidden_part = torch.baddbmm(bias, states[t], weight)
            torch.add(gates[t, ..., : 2 * hidden], hidden_part[..., : 2 * hidden], out=resets_updates[t]).sigmoid_()
            mixes[t] = hidden_part[..., 2 * hidden :]
            reset, update = resets_updates[t].chunk(2, -1)
            torch.addcmul(gates[t, ..., 2 * hidden :], reset, mixes[t], out=news[t]).tanh_()
            torch.lerp(news[t], states[t], update, out=states[t + 1])
        ctx.save_for_backward(weight, states, resets_updates, news, mixes)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, states, resets_updates, news, mixes = ctx.saved_tensors
        (grad_states,) = grads
        steps, members, batch, hidden = news.shape
        reset, update = resets_updates.chunk(2, -1)  # (steps, members, batch, hidden) each
        # Factors that do not depend on later steps are computed for all steps at once.
        through_new = (1 - update) * (1 - news * news)
        through_update = (states[:-1] - news) * update * (1 - update)
        through_reset = mixes * reset * (1 - reset)
        grad_gates = news.new_empty(steps, members, batch, 3 * hidden)
        grad_parts = torch.empty_like(grad_gates)
        back = weight.transpose(1, 2)
        carry = torch.zeros_like(news[0])
        for t in range(steps - 1, -1, -1):
            carry = carry + grad_states[t]
            grad_gate, grad_part = grad_gates[t], grad_parts[t]
            new = torch.mul(carry, through_new[t], out=grad_gate[..., 2 * hidden :])
            torch.mul(new, reset[t], out=grad_part[..., 2 * hidden :])
            torch.mul(carry, through_update[t], out=grad_part[..., hidden : 2 * hidden])
            torch.mul(new, through_reset[t], out=grad_part[..., :hidden])
            carry = torch.baddbmm(carry * update[t], grad_part, back)
        grad_gates[..., : 2 * hidden] = grad_parts[..., : 2 * hidden]
        flat = grad_parts.transpose(0, 1).reshape(members, steps * batch, 3 * hidden)
        before = states[:-1].transpose(0, 1).reshape(members, steps * batch, hidden)
        return grad_gates, before.transpose(1, 2) @ flat, flat.sum(1, keepdim=True)
