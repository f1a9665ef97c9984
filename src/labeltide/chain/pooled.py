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
        prior, penalty = self._prior(group), group.penalty
        score, information = self._slopes(group, annotators, counts)
        pull = (annotators - common) @ prior  # (members, annotators, coefficients)
        gradient = (score - pull)[..., None]
        factor = torch.linalg.cholesky_ex(information + prior.unsqueeze(1)).L
        carried = torch.cholesky_solve(torch.cat([gradient, prior.unsqueeze(1).expand_as(information)], -1), factor)
        of_common = pull.sum(1) - (common @ penalty)[:, 0]
        right = of_common[..., None] + (prior.unsqueeze(1) @ carried[..., :1]).sum(1)
        left = penalty + (information @ carried[..., 1:]).sum(1)
        first = torch.linalg.solve(left, right).unsqueeze(1)  # (members, 1, coefficients, 1)
        steps = torch.cat([first, carried[..., :1] + carried[..., 1:] @ first], 1)[..., 0]
        largest = (steps @ group.design.mT).abs().amax((-1, -2), keepdim=True)  # (members, 1, 1)
        return coefficients + steps * (MAX_STEP / largest.clamp_min(MAX_STEP))

    def _prior(self, group: Group) -> Tensor:
        """The precision of an annotator's coefficients around the common ones."""
        size = group.design.shape[-1]
        eye = torch.eye(size, dtype=group.design.dtype, device=group.design.device)
        mean_square = group.design.mT @ group.design / self.n_points + RIDGE * eye
        return self.strength[group.members][:, None, None] * mean_square + group.penalty

    def _centre(self, group: Group, annotators: Tensor) -> Tensor:
        """Posterior mode of the common coefficients given those of all annotators."""
        prior = self._prior(group)
        left = group.penalty + annotators.shape[1] * prior
        return torch.linalg.solve(left, prior @ annotators.sum(1)[..., None])[..., 0]


def families_of(families: Sequence[Family], device: torch.device | None = None) -> Families:
    """The family of each member, for annotators who are pooled or for one Q."""
    return (Families if families[0].pooling is None else PooledFamilies).of(families, device)
