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

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.families import Family

MAX_STEP = 2.0  # the most by which a logit may move in one step
RIGID = 1e8  # the ridge penalty of a coefficient that is held at zero
Coefficients = list[Tensor]  # of each group, (members of the group, annotators, coefficients)


@dataclass(frozen=True)
class Group:
    """Members whose families have the same name and size, so that they can be computed together."""

    members: Tensor  # (members of the group,)
    design: Tensor  # (members of the group or 1, points * entries, coefficients)
    penalty: Tensor  # (members of the group or 1, coefficients, coefficients)
    held: int | None = None  # the annotator whose noise does not change over the clock

    def moving(self, n_points: int) -> Tensor:
        """Which coefficients make Q change over the clock: (coefficients,)."""
        over_clock = self.design[0].unflatten(0, (n_points, -1))  # (points, entries, coefficients)
        return (over_clock != over_clock[:1]).any(0).any(0)


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
            keys.setdefault((family.name, family.design.shape[2]), []).append(member)
        groups = []
        for members in keys.values():
            in_group = [families[member] for member in members]
            if all(family is in_group[0] for family in in_group):
                in_group = in_group[:1]
            design = torch.from_numpy(np.stack([family.design for family in in_group])).to(device)
            penalty = torch.from_numpy(np.stack([family.penalty for family in in_group])).to(device)
            groups.append(Group(torch.tensor(members, device=device), design.flatten(1, 2), penalty, in_group[0].held))
        n_points, n_entries, _ = families[0].design.shape
        return cls(tuple(groups), n_points, round((1 + (1 + 4 * n_entries) ** 0.5) / 2))

    def fit_start(self, matrices: Tensor) -> Coefficients:
        """Least-squares coefficients for the logits of Q, (members, annotators, points, classes, classes)."""
        logs = matrices.double().clamp_min(1e-4).log()
        target = (_others(logs) - logs.diagonal(dim1=-2, dim2=-1)[..., None]).flatten(2)
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
        coefficients = target @ _inverse(group.design).mT
        if group.held is not None:
            moving = group.moving(self.n_points)
            level = target[:, [group.held]] @ _inverse(group.design[..., ~moving]).mT
            coefficients[:, group.held, moving] = 0.0
            coefficients[:, group.held, ~moving] = level[:, 0]
        return coefficients

    def _noise(self, group: Group, coefficients: Tensor) -> Tensor:
        logits = coefficients @ group.design.mT  # (members, annotators, points * entries)
        whole = logits.new_zeros(*logits.shape[:2], self.n_points, self.n_classes, self.n_classes)
        off = ~torch.eye(self.n_classes, dtype=torch.bool, device=logits.device)
        whole[..., off] = logits.unflatten(2, (self.n_points, -1))
        return whole.softmax(-1)

    def _newton(self, group: Group, coefficients: Tensor, counts: Tensor) -> Tensor:
        score, information = self._slopes(group, coefficients, counts)
        gradient = score - coefficients @ group.penalty
        factor = torch.linalg.cholesky_ex(information + group.penalty.unsqueeze(1)).L
        step = torch.cholesky_solve(gradient[..., None], factor)[..., 0]
        largest = (step @ group.design.mT).abs().amax(-1, keepdim=True)  # (members, annotators, 1)
        return coefficients + step * (MAX_STEP / largest.clamp_min(MAX_STEP))

    def _slopes(self, group: Group, coefficients: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Score (members, annotators, coefficients) and Fisher information (..., coefficients, coefficients).

        Computed annotator by annotator, to save memory.
        """
        parts = [
            self._slopes_of(group, coefficients[:, a : a + 1], counts[:, a : a + 1]) for a in range(counts.shape[1])
        ]
        score, information = (torch.cat(tensors, 1) for tensors in zip(*parts, strict=True))
        if group.held is not None:
            ridge = RIGID * group.moving(self.n_points)
            score[:, group.held] -= ridge * coefficients[:, group.held]
            information[:, group.held] += ridge.diag()
        return score, information

    def _slopes_of(self, group: Group, coefficients: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        totals = counts.sum(-1, keepdim=True)  # (members, annotators, points, true, 1)
        probs = _others(self._noise(group, coefficients))  # (members, annotators, points, true, others)
        residual = (_others(counts) - totals * probs).flatten(2)
        spread = totals[..., None] * (torch.diag_embed(probs) - probs[..., None] * probs[..., None, :])
        design = group.design.unflatten(1, probs.shape[2:]).unsqueeze(1)  # (..., points, true, others, coefficients)
        # With two classes the matrices hold one number each, and an elementwise product is much faster.
        product = spread * design if self.n_classes == 2 else spread @ design
        weighted = product.flatten(2, 4)  # (members, annotators, points * entries, coefficients)
        return residual @ group.design, group.design.mT.unsqueeze(1) @ weighted


def _others(values: Tensor) -> Tensor:
    """Leave out the diagonal: (..., true, recorded) → (..., true, recorded - 1)."""
    classes = values.shape[-1]
    flat = values.flatten(-2)[..., 1:].unflatten(-1, (classes - 1, classes + 1))[..., :-1]
    return flat.flatten(-2).unflatten(-1, (classes, classes - 1))


def _inverse(design: Tensor) -> Tensor:
    """Pseudo-inverse of (..., entries, coefficients) from the normal equations: singular values are slow on GPUs."""
    gram = design.mT @ design
    trace = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return torch.cholesky_solve(design.mT, torch.linalg.cholesky(gram + 1e-10 * trace * eye))
