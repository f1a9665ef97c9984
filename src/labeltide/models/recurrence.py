r"""GRU recurrence (Cho and others 2014) of a fleet, with backpropagation through time written out.

With the input part of the gates :math:`a^r, a^z, a^n` already computed for all steps,

.. math::
    r &= \sigma(a^r + h W^r + b^r), \quad z = \sigma(a^z + h W^z + b^z), \\
    m &= h W^n + b^n, \quad n = \tanh(a^n + r\,m), \quad h' = n + z\,(h - n).

The written-out gradient takes a third of the operations that autograd records, and the weight gradient is one matrix
product over all steps instead of one per step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def gru_recurrence(gates: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Hidden states of every step, starting from zero.

    Parameters
    ----------
    gates : Tensor of shape (steps, members, batch, 3 * hidden)
        The input part, in the order reset, update, new.
    weight : Tensor of shape (members, hidden, 3 * hidden)
    bias : Tensor of shape (members, 1, 3 * hidden)

    Returns
    -------
    Tensor of shape (steps, members, batch, hidden)
    """
    return _Recurrence.apply(gates, weight, bias)


def gru_step(gates: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One step of the recurrence: the hidden states after it, (members, batch, hidden), from those before it."""
    hidden = state.shape[-1]
    hidden_part = torch.baddbmm(bias, state, weight)
    reset, update = (gates[..., : 2 * hidden] + hidden_part[..., : 2 * hidden]).sigmoid().chunk(2, -1)
    new = torch.addcmul(gates[..., 2 * hidden :], reset, hidden_part[..., 2 * hidden :]).tanh()
    return torch.lerp(new, state, update)


class _Recurrence(torch.autograd.Function):
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
