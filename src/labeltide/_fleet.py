"""Batched ensembles: torch modules whose tensors have a leading members axis, so that a fleet trains as one program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import torch
from torch import Generator, Tensor, nn

FleetModuleT = TypeVar("FleetModuleT", bound="FleetModule")


class FleetModule(nn.Module):
    """`members` independent modules computed side by side.

    Every parameter and buffer has shape ``(members, ...)``. Subclasses initialise their tensors in `_initialise`,
    member by member, so that the initial values of a member do not depend on the fleet it is in.
    """

    members: int

    def initialise(self, generators: Sequence[Generator]) -> Self:
        """Draw initial values, the m-th member's from the m-th generator."""
        for module in self.modules():
            if isinstance(module, FleetModule):
                module._initialise(generators)
        return self

    def _initialise(self, generators: Sequence[Generator]) -> None:
        """Initialise the tensors of this module itself, not those of its children."""

    def member(self, index: int, count: int = 1) -> Self:
        """A copy of one member, or of `count` consecutive ones, as a fleet."""
        return self.take(torch.arange(index, index + count))

    def take(self, index: Tensor) -> Self:
        """A copy of some members as a fleet."""
        tensors = [*self.parameters(), *self.buffers()]
        return _with_tensors(
            self, [(tensor, tensor.detach()[index.to(tensor.device)]) for tensor in tensors], len(index)
        )


def put_members(fleet: FleetModule, index: Tensor, others: FleetModule, other_index: Tensor) -> None:
    """Overwrite the members `index` of a fleet with the members `other_index` of another of the same kind."""
    pairs = zip((*fleet.parameters(), *fleet.buffers()), (*others.parameters(), *others.buffers()), strict=True)
    with torch.no_grad():
        for old, new in pairs:
            old[index] = new[other_index]


def stack(modules: Sequence[FleetModuleT]) -> FleetModuleT:
    """Join modules of one kind into one fleet: the inverse of `FleetModule.member`."""
    tensors = zip(*([*module.parameters(), *module.buffers()] for module in modules), strict=True)
    joined = [(parts[0], torch.cat([part.detach() for part in parts])) for parts in tensors]
    return _with_tensors(modules[0], joined, sum(module.members for module in modules))


def _with_tensors(module: FleetModuleT, tensors: Sequence[tuple[Tensor, Tensor]], members: int) -> FleetModuleT:
    """A copy of a module with new values for its tensors, in pairs of old and new, of another number of members."""
    memo: dict[int, Any] = {
        id(old): nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new for old, new in tensors
    }
    clone = copy.deepcopy(module, memo)
    for part in clone.modules():
        if isinstance(part, FleetModule):
            part.members = members
    return clone


class MemberLinear(FleetModule):
    r"""One affine map per member: ``(members, ..., inputs)`` → ``(members, ..., outputs)``.

    Without a `gain` it is `torch.nn.Linear`. With a `gain` it uses the NTK parametrisation (Jacot and others 2018):
    :math:`y = x W / \sqrt{\mathrm{inputs}} + b`, with the entries of W of standard deviation `gain`, so that Adam's
    fixed step changes wide and narrow layers alike. Every member has ``copies`` maps with the same initial values.
    """

    def __init__(self, members: int, inputs: int, outputs: int, gain: float | None = None, copies: int = 1) -> None:
        super().__init__()
        self.members, self.gain, self.copies = members, gain, copies
        self.unit = inputs**-0.5 if gain else 1.0
        leading = (members,) if copies == 1 else (members, copies)
        self.weight = nn.Parameter(torch.zeros(*leading, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(*leading, 1, outputs))

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
    """One random generator per member, on the CPU so that initial values are the same on every device."""
    return [torch.Generator().manual_seed(int(seed)) for seed in seeds]
