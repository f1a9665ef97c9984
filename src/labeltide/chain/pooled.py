r"""Partial pooling of annotators (Gelman and Hill 2007): a hierarchical multinomial logit for Q(t) of each annotator.

Coefficients of annotator a have the prior :math:`\beta_a \sim N(\beta_0, (\lambda M + S)^{-1})` around the common ones.
M is the mean squared difference of logits over the clock, and S is the family's roughness penalty, which the common
coefficients have too. The estimate of an annotator with few labels stays close to the common one. The strength
:math:`\lambda` is the precision of a logit around the common one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from labeltide.chain.families import RIDGE, Family
from labeltide.chain.logit import MAX_STEP, Coefficients, Families, Group


@dataclass(frozen=True)
class PooledFamilies(Families):
    """Families whose coefficients hold the common ones first, then those of each annotator."""

    strength: Tensor  # (members,)

    @classmethod
    def of(cls, families: Sequence[Family], device: torch.device | None = None) -> Self:
        """The pooled family of each member."""
        plain = Families.of(families, device)
        strength = torch.tensor([family.pooling for family in families], dtype=torch.float64, device=device)
        return cls(plain.groups, plain.n_points, plain.n_classes, strength)

    def fit_start(self, matrices: Tensor) -> Coefficients:
        """Least-squares coefficients for the logits of Q, (members, annotators, points, classes, classes)."""
        return [
            torch.cat([self._centre(group, of_group).unsqueeze(1), of_group], 1)
            for group, of_group in zip(self.groups, super().fit_start(matrices), strict=True)
        ]

    def noise(self, coefficients: Coefficients) -> Tensor:
        """Q of each annotator on the grid: (members, annotators, points, true, recorded)."""
        return super().noise([of_group[:, 1:] for of_group in coefficients])

    def common(self, matrices: Tensor) -> Tensor:
        """The common Q(t) behind those of fitted annotators: (members, points, true, recorded)."""
        return super().noise([of_group[:, :1] for of_group in self.fit_start(matrices)])[:, 0]

    def _newton(self, group: Group, coefficients: Tensor, counts: Tensor) -> Tensor:
        r"""One joint Newton step for the common and all annotators' coefficients.

        Alternating steps would converge slowly under strong pooling. With :math:`H_a` the information of annotator a
        and :math:`G = \lambda M + S`, eliminating the annotators' steps (a Schur complement) leaves
        :math:`(S + \sum_a H_a (H_a + G)^{-1} G)\, d_0 = g_0 + \sum_a G (H_a + G)^{-1} g_a`.
        """
        common, annotators = coefficients[:, :1], coefficients[:, 1:]
        prior, penalty = self._prior(group).unsqueeze(1), group.penalty.unsqueeze(1)
        score, information = self._slopes(group, annotators, counts)
        pull = prior @ group.split(annotators - common)[..., None]  # (members, annotators, blocks, size, 1)
        gradient = group.split(score)[..., None] - pull
        factor = torch.linalg.cholesky_ex(information + prior).L
        carried = torch.cholesky_solve(torch.cat([gradient, prior.expand_as(information)], -1), factor)
        of_common = pull.sum(1, keepdim=True) - penalty @ group.split(common)[..., None]
        right = of_common + (prior @ carried[..., :1]).sum(1, keepdim=True)
        left = penalty + (information @ carried[..., 1:]).sum(1, keepdim=True)
        first = torch.linalg.solve(left, right)  # (members, 1, blocks, size, 1)
        steps = torch.cat([first, carried[..., :1] + carried[..., 1:] @ first], 1)[..., 0].flatten(2)
        largest = group.blocks.logits(steps).abs().amax((1, 2, 3, 4))[:, None, None]
        return coefficients + steps * (MAX_STEP / largest.clamp_min(MAX_STEP))

    def _prior(self, group: Group) -> Tensor:
        """The precision of an annotator's coefficients around the common ones: (members, blocks, size, size)."""
        blocks = group.blocks
        ones = blocks.basis.new_ones(len(blocks.basis), 1, self.n_points, self.n_classes, self.n_classes - 1)
        eye = torch.eye(blocks.size, dtype=ones.dtype, device=ones.device)
        mean_square = blocks.information(ones)[:, 0] / self.n_points + RIDGE * eye
        return self.strength[group.members][:, None, None, None] * mean_square + group.penalty

    def _centre(self, group: Group, annotators: Tensor) -> Tensor:
        """Posterior mode of the common coefficients given those of all annotators."""
        prior = self._prior(group)
        left = group.penalty + annotators.shape[1] * prior
        right = prior @ group.split(annotators.sum(1))[..., None]
        return torch.linalg.solve(left, right)[..., 0].flatten(1)


def families_of(families: Sequence[Family], device: torch.device | None = None) -> Families:
    """The family of each member, for annotators who are pooled or for one Q."""
    return (Families if families[0].pooling is None else PooledFamilies).of(families, device)
