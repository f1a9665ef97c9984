r"""M-step for Q(t): penalised multinomial logit by Newton's method (Fisher scoring), one damped step an iteration.

The coefficients maximise :math:`\sum_{tij} N_{tij} \log Q_{ij}(t; \beta) - \tfrac{1}{2} \beta^\top S \beta`, where N
are the expected counts of the E-step and S is the roughness penalty. The logit is the canonical link, so that Newton's
method and Fisher scoring agree. Double precision: rounding depends on how many members are computed together, and a
member must end alike in any fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from labeltide.chain.class_blocks import ClassBlocks
from labeltide.chain.families import Family

MAX_STEP = 2.0  # the most by which a logit may move in one step
RIGID = 1e8  # the ridge penalty of a coefficient that is held at zero
NUMBERS_AT_ONCE = 2**23  # of the weighted designs that a Newton step holds at once
Coefficients = list[Tensor]  # of each group, (members of the group, annotators, coefficients)


@dataclass(frozen=True)
class Group:
    """Members whose families have the same name and size, so that they can be computed together."""

    members: Tensor  # (members of the group,)
    blocks: ClassBlocks
    held: int | None = None  # the annotator whose noise does not change over the clock

    @property
    def penalty(self) -> Tensor:
        """(members of the group or 1, blocks, size, size)."""
        return self.blocks.penalty

    def split(self, coefficients: Tensor) -> Tensor:
        """Coefficients by block: (..., coefficients) → (..., blocks, size)."""
        return coefficients.unflatten(-1, (self.blocks.n_blocks, self.blocks.size))


@dataclass(frozen=True)
class Families:
    """The family of each member of a fleet of chains, and the M-step for their coefficients."""

    groups: tuple[Group, ...]
    n_points: int
    n_classes: int

    @classmethod
    def of(cls, families: Sequence[Family], device: torch.device | None = None) -> Self:
        """From the family of each member; those of one name and size form a group."""
        keys: dict[tuple[str, int], list[int]] = {}
        for member, family in enumerate(families):
            keys.setdefault((family.name, family.basis.shape[1]), []).append(member)
        groups = []
        for members in keys.values():
            in_group = [families[member] for member in members]
            if all(family is in_group[0] for family in in_group):
                in_group = in_group[:1]
            blocks = ClassBlocks.of(in_group, device)
            groups.append(Group(torch.tensor(members, device=device), blocks, in_group[0].held))
        return cls(tuple(groups), len(families[0].basis), families[0].n_classes)

    def fit_start(self, matrices: Tensor) -> Coefficients:
        """Least-squares coefficients for the logits of Q, (members, annotators, points, classes, classes)."""
        logs = matrices.double().clamp_min(1e-4).log()
        target = _others(logs) - logs.diagonal(dim1=-2, dim2=-1)[..., None]
        return [self._fit_start(group, target[group.members]) for group in self.groups]

    def noise(self, coefficients: Coefficients) -> Tensor:
        """Q on the grid: (members, annotators, points, true, recorded)."""
        parts = [self._noise(group, of_group) for group, of_group in zip(self.groups, coefficients, strict=True)]
        order = torch.cat([group.members for group in self.groups]).argsort()
        return torch.cat(parts)[order].float()

    def step(self, coefficients: Coefficients, counts: Tensor) -> Coefficients:
        """One Newton step for expected counts (members, annotators, points, true, recorded)."""
        pairs = zip(self.groups, coefficients, strict=True)
        return [self._newton(group, of_group, counts[group.members].double()) for group, of_group in pairs]

    def _fit_start(self, group: Group, target: Tensor) -> Tensor:
        coefficients = _least_squares(group, target)
        if group.held is not None:
            moving = group.blocks.moving()
            level = _least_squares(group, target[:, [group.held]], ~moving)
            coefficients[:, group.held] = level[:, 0]
        return coefficients

    def _noise(self, group: Group, coefficients: Tensor) -> Tensor:
        logits = group.blocks.logits(coefficients)  # (members, annotators, points, true, others)
        whole = logits.new_zeros(*logits.shape[:3], self.n_classes, self.n_classes)
        off = ~torch.eye(self.n_classes, dtype=torch.bool, device=logits.device)
        whole[..., off] = logits.flatten(3)
        return whole.softmax(-1)

    def _newton(self, group: Group, coefficients: Tensor, counts: Tensor) -> Tensor:
        score, information = self._slopes(group, coefficients, counts)
        pull = (group.penalty.unsqueeze(1) @ group.split(coefficients)[..., None])[..., 0]
        factor = torch.linalg.cholesky_ex(information + group.penalty.unsqueeze(1)).L
        step = torch.cholesky_solve((group.split(score) - pull)[..., None], factor)[..., 0].flatten(2)
        largest = group.blocks.logits(step).abs().amax((2, 3, 4))[..., None]  # (members, annotators, 1)
        return coefficients + step * (MAX_STEP / largest.clamp_min(MAX_STEP))

    def _slopes(self, group: Group, coefficients: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Score (members, annotators, coefficients) and Fisher information (members, annotators, blocks, size, size).

        Some annotators at a time, to save memory.
        """
        blocks = group.blocks
        numbers = len(counts) * self.n_points * self.n_classes * blocks.size
        at_once = max(1, NUMBERS_AT_ONCE // numbers)
        pairs = zip(coefficients.split(at_once, 1), counts.split(at_once, 1), strict=True)
        parts = [self._slopes_of(blocks, self._noise(group, some), of_some) for some, of_some in pairs]
        score, information = (torch.cat(tensors, 1) for tensors in zip(*parts, strict=True))
        if group.held is not None:
            ridge = RIGID * blocks.moving().to(score)
            score[:, group.held] -= ridge * coefficients[:, group.held]
            information[:, group.held] += torch.diag_embed(group.split(ridge))
        return score, information

    def _slopes_of(self, blocks: ClassBlocks, noise: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        totals, probs = counts.sum(-1, keepdim=True), _others(noise)  # (members, annotators, points, true, others)
        expected = totals * probs
        return blocks.project(_others(counts) - expected), blocks.information(expected, totals.sqrt() * probs)


def _others(values: Tensor) -> Tensor:
    """Leave out the diagonal: (..., true, recorded) → (..., true, recorded - 1)."""
    classes = values.shape[-1]
    flat = values.flatten(-2)[..., 1:].unflatten(-1, (classes - 1, classes + 1))[..., :-1]
    return flat.flatten(-2).unflatten(-1, (classes, classes - 1))


def _least_squares(group: Group, target: Tensor, kept: Tensor | None = None) -> Tensor:
    """Coefficients of logits (members, annotators, points, true, others), by the normal equations.

    Only those that are kept; the others are zero.
    """
    blocks = group.blocks
    gram = blocks.information(
        target.new_ones(len(blocks.basis), 1, *target.shape[2:])
    )  # (members or 1, 1, blocks, ...)
    right = group.split(blocks.project(target))
    if kept is not None:
        used = group.split(kept.to(right))
        gram, right = gram * used[..., None] * used[..., None, :], right * used
    trace = gram.diagonal(dim1=-2, dim2=-1).mean((-2, -1))[..., None, None, None]
    eye = torch.eye(blocks.size, dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky(gram + 1e-10 * trace * eye)
    return torch.cholesky_solve(right[..., None], factor)[..., 0].flatten(2)
