"""Modules whose every tensor carries a leading members axis, so that one program trains a whole fleet."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import torch
from torch import Generator, Tensor, nn

Module = TypeVar("Module", bound="FleetModule")


class FleetModule(nn.Module):
    """A module that is `members` modules side by side: they share code and never mix.

    Every parameter and buffer has shape ``(members, ...)``. Subclasses draw their starting values in
    `_initialise`, member by member, so that a member starts alike alone and in any fleet.
    """

    members: int

    def initialise(self, generators: Sequence[Generator]) -> Self:
        """Draw new starting values, the m-th member's from the m-th generator."""
        for module in self.modules():
            if isinstance(module, FleetModule):
                module._initialise(generators)
        return self

    def _initialise(self, generators: Sequence[Generator]) -> None:
        """Draw the tensors that this module itself holds (not those of its children)."""

    def member(self, index: int, count: int = 1) -> Self:
        """A copy of one member, or of several in a row, as a fleet of its own."""
        return self.take(torch.arange(index, index + count))

    def take(self, index: Tensor) -> Self:
        """A copy of some members as a fleet of their own."""
        tensors = [*self.parameters(), *self.buffers()]
        memo = {id(tensor): _take_like(tensor, index) for tensor in tensors}
        clone = copy.deepcopy(self, memo)
        for module in clone.modules():
            if isinstance(module, FleetModule):
                module.members = len(index)
        return clone


def put_members(fleet: FleetModule, index: Tensor, others: FleetModule, theirs: Tensor) -> None:
    """Overwrite some members of a fleet with some of another of the same kind."""
    pairs = zip((*fleet.parameters(), *fleet.buffers()), (*others.parameters(), *others.buffers()), strict=True)
    with torch.no_grad():
        for old, new in pairs:
            old[index] = new[theirs]


def stack(modules: Sequence[Module]) -> Module:
    """Modules of one kind as one fleet: the reverse of `FleetModule.member`."""
    memo: dict[int, Any] = {}
    for tensors in zip(*([*module.parameters(), *module.buffers()] for module in modules), strict=True):
        joined = torch.cat([tensor.detach() for tensor in tensors])
        first = tensors[0]
        memo[id(first)] = nn.Parameter(joined, first.requires_grad) if isinstance(first, nn.Parameter) else joined
    fleet = copy.deepcopy(modules[0], memo)
    for module in fleet.modules():
        if isinstance(module, FleetModule):
            module.members = sum(one.members for one in modules)
    return fleet


class MemberLinear(FleetModule):
    """One affine map per member: ``(members, ..., inputs)`` → ``(members, ..., outputs)``.

    Without a `gain` it starts and learns as `torch.nn.Linear` does. With one, weights are held in units of
    ``1 / sqrt(inputs)`` and start so that the output has `gain` times the spread of the input: an optimiser with a
    fixed step, such as Adam, then moves wide and narrow layers alike (Jacot and others, 2018), and deep stacks of wide
    layers stay calm at the learning rate of a small network.

    With several ``copies`` every member has as many maps, which start alike, and inputs and outputs come with
    ``members * copies`` in place of members.
    """

    def __init__(self, members: int, inputs: int, outputs: int, gain: float | None = None, copies: int = 1) -> None:
        super().__init__()
        self.members, self.gain, self.copies = members, gain, copies
        self.unit = inputs**-0.5 if gain else 1.0
        own = (members,) if copies == 1 else (members, copies)
        self.weight = nn.Parameter(torch.zeros(*own, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(*own, 1, outputs))

    def _initialise(self, generators: Sequence[Generator]) -> None:
        inputs = self.weight.shape[-2]
        uniform_(self.weight, self.gain * 3**0.5 if self.gain else inputs**-0.5, generators, self.copies)
        uniform_(self.bias, inputs**-0.5, generators, self.copies)

    def forward(self, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(1, -2)  # (members, everything between, inputs)
        weight, bias = self.weight.flatten(0, -3), self.bias.flatten(0, -3)  # (members * copies, ...)
        return torch.baddbmm(bias, flat, weight, alpha=self.unit).unflatten(1, inputs.shape[1:-1])


def uniform_(parameter: Tensor, bound: float, generators: Sequence[Generator], copies: int = 1) -> None:
    """Fill each member's slice with uniform draws from ``[-bound, bound]``, the same for all its copies."""
    with torch.no_grad():
        for values, generator in zip(parameter, generators, strict=True):
            first = values if copies == 1 else values[0]
            first.uniform_(-bound, bound, generator=generator)
            if copies > 1:
                values[1:] = first


def member_generators(seeds: Sequence[int]) -> list[Generator]:
    """One random stream for each member, on the CPU so that every device starts from the same numbers."""
    return [torch.Generator().manual_seed(int(seed)) for seed in seeds]


def _take_like(tensor: Tensor, members: Tensor) -> Tensor:
    values = tensor.detach()[members.to(tensor.device)]
    return nn.Parameter(values, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else values
