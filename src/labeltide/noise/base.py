"""What every noise function is, and the one convention for Q.

``Q[..., i, j] = P(recorded label j | true label i)``; every row sums to one. Nothing else in labeltide
transposes it.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labeltide._fleet import FleetModule


class NoiseFunction(FleetModule):
    """How recorded labels depart from true ones at each moment of the clock.

    With one annotator, or several who are taken to err alike, there is one Q for each member. With ``annotators``
    above one there is one for each member and annotator.
    """

    n_classes: int
    annotators: int = 1

    @abstractmethod
    def forward(self, clock: Tensor) -> Tensor:
        """Q at the given moments, valid whatever they are.

        Parameters
        ----------
        clock : Tensor of any shape (...) and number type
            Keep its precision until it is scaled: seconds since 1970 do not fit single precision.

        Returns
        -------
        Tensor of shape (members, ..., classes, classes), or (members, annotators, ..., classes, classes) where there
        is more than one
        """

    def common(self, clock: Tensor) -> Tensor:
        """Q of all annotators together, to which those with few labels lean: (members, ..., classes, classes)."""
        matrices = self(clock)
        return matrices if self.annotators == 1 else matrices.mean(1)

    def check_covers(self, clock: np.ndarray) -> None:
        """Refuse moments for which this noise says nothing; learned functions say something everywhere."""

    @torch.no_grad()
    def at(self, clock: ArrayLike) -> np.ndarray:
        """Q of the first member as an array of shape ``([annotators,] ..., classes, classes)``."""
        return self(self._moments(clock))[0].cpu().double().numpy()

    @torch.no_grad()
    def common_at(self, clock: ArrayLike) -> np.ndarray:
        """The common Q of the first member as an array of shape ``(..., classes, classes)``."""
        return self.common(self._moments(clock))[0].cpu().double().numpy()

    def _moments(self, clock: ArrayLike) -> Tensor:
        device = next((tensor.device for tensor in (*self.parameters(), *self.buffers())), None)
        return torch.as_tensor(np.asarray(clock, dtype=np.float64), device=device)


class LearnedNoise(NoiseFunction):
    """A noise function that training moves; where each annotator has an own Q, all start alike.

    Attributes
    ----------
    shares : Tensor of shape (members, annotators)
        How much each annotator counts in the common Q: the share of the labels. Only with several annotators.
    tied : bool Tensor of shape (members,)
        Members whose annotators are all held alike: they have one Q, learned from all labels.
    """

    shares: Tensor
    tied: Tensor

    def _tell_apart(self, annotators: int) -> tuple[int, ...]:
        """Make room for annotators; returns the first axes of every parameter."""
        self.annotators = annotators
        if annotators == 1:
            return (self.members,)
        self.register_buffer("shares", torch.full((self.members, annotators), 1 / annotators))
        self.register_buffer("tied", torch.zeros(self.members, dtype=torch.bool))
        return (self.members, annotators)

    def tie(self, values: Tensor) -> Tensor:
        """The average over annotators for members whose annotators are alike: Q, or, the same way, its gradient.

        They start alike and move alike, so that a tied member learns as one with a single Q does.
        """
        if self.annotators == 1:
            return values
        tied = self.tied.reshape(-1, *[1] * (values.ndim - 1))
        return torch.where(tied, values.mean(1, keepdim=True), values)

    def common(self, clock: Tensor) -> Tensor:
        matrices = self(clock)
        if self.annotators == 1:
            return matrices
        return (self.shares.reshape(*self.shares.shape, *[1] * (matrices.ndim - 2)) * matrices).sum(1)


def dominant_rows(logits: Tensor) -> Tensor:
    r"""Turn free numbers into rows of Q whose diagonal passes one half: :math:`(I + \mathrm{softmax}) / 2`.

    Parameters
    ----------
    logits : Tensor of shape (..., classes, classes)
    """
    identity = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    return (identity + logits.softmax(-1)) / 2
