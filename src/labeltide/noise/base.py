"""Noise functions: the noise matrix Q(t) of temporal label noise (Nagaraj and others 2025), and its convention.

``Q[..., i, j] = P(recorded label j | true label i)``; every row sums to one. This convention holds everywhere in
labeltide; no other module transposes Q.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labeltide._fleet import FleetModule


class NoiseFunction(FleetModule):
    """The noise matrix Q as a function of the clock.

    With one annotator, or several who share one Q, there is one Q per member. With ``annotators`` above one there is
    one Q per member and annotator.

    To write one of your own, set ``members`` and ``n_classes``, give every parameter a first axis of members, and
    define ``forward``. ``_initialise`` sets the first values of the parameters, with one random generator per member;
    without it they stay as ``__init__`` left them.

    Examples
    --------
    Rates that fall or rise along the clock:

    >>> import torch
    >>> import labeltide as lt
    >>> class LogisticNoise(lt.NoiseFunction):
    ...     def __init__(self, members, n_classes):
    ...         super().__init__()
    ...         self.members, self.n_classes = members, n_classes
    ...         self.parts = torch.nn.Parameter(torch.zeros(members, 2))  # height and slope
    ...
    ...     def forward(self, clock):
    ...         height, slope = (part.reshape(-1, *[1] * clock.ndim) for part in self.parts.unbind(-1))
    ...         rate = torch.sigmoid(height + slope * clock.to(self.parts))[..., None, None] / 2
    ...         eye = torch.eye(self.n_classes)
    ...         return (1 - rate) * eye + rate * (1 - eye) / (self.n_classes - 1)
    >>> LogisticNoise(members=1, n_classes=2)(torch.linspace(0, 1, 5)).shape
    torch.Size([1, 5, 2, 2])
    """

    n_classes: int
    annotators: int = 1

    @abstractmethod
    def forward(self, clock: Tensor) -> Tensor:
        """Q at the moments `clock`; a valid noise matrix for every real number.

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
        """The common Q, the average over annotators: (members, ..., classes, classes)."""
        matrices = self(clock)
        return matrices if self.annotators == 1 else matrices.mean(1)

    def check_covers(self, clock: np.ndarray) -> None:
        """Refuse moments for which Q is not defined; learned noise functions are defined everywhere."""

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
        return torch.as_tensor(np.asarray(clock, dtype=np.float64).copy(), device=device)  # it may be read-only


class LearnedNoise(NoiseFunction):
    """A noise function with learned parameters; annotators with a Q each start from the same values.

    Attributes
    ----------
    shares : Tensor of shape (members, annotators)
        Weight of each annotator in the common Q: the share of the labels. Only with several annotators.
    tied : bool Tensor of shape (members,)
        Members whose annotators share one Q, learned from all labels.
    """

    shares: Tensor
    tied: Tensor

    def _add_annotators(self, annotators: int) -> tuple[int, ...]:
        """Register the buffers for several annotators; returns the leading axes of every parameter."""
        self.annotators = annotators
        if annotators == 1:
            return (self.members,)
        self.register_buffer("shares", torch.full((self.members, annotators), 1 / annotators))
        self.register_buffer("tied", torch.zeros(self.members, dtype=torch.bool))
        return (self.members, annotators)

    def tie(self, values: Tensor) -> Tensor:
        """Average over annotators for tied members: of Q and, in the same way, of its gradient.

        Tied annotators start and move alike, so a tied member learns as a member with a single Q does.
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
    r"""Diagonally dominant noise matrices from logits: :math:`Q = (I + \mathrm{softmax}(\mathrm{logits})) / 2`.

    Every diagonal entry exceeds one half, one of the conditions under which Q is identified (Nagaraj and others 2025).

    Parameters
    ----------
    logits : Tensor of shape (..., classes, classes)
    """
    identity = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    return (identity + logits.softmax(-1)) / 2
