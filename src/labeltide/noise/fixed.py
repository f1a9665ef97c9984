"""A known noise function: noise matrices at grid points, linearly interpolated over the clock."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labeltide import _validation
from labeltide._clock import check_period
from labeltide.noise.base import NoiseFunction


class FixedNoise(NoiseFunction):
    """Q by linear interpolation between given noise matrices, constant beyond both ends of the clock.

    A convex combination of noise matrices is a noise matrix, so Q is valid at every moment.

    Parameters
    ----------
    matrices : array of shape ([[members, [annotators,]] points,] classes, classes)
        With five axes, each annotator has a Q.
    clock : array of shape (points,), optional
        Rising moments to which the matrices belong; evenly spaced over [0, 1] when left out.
    common : array of shape (members, points, classes, classes), optional
        The common Q of several annotators; their average when left out.
    period : float, optional
        The period of a cyclic clock, such as 24 for hours of the day: Q is then interpolated from the last moment to
        the first.

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.FixedNoise([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.4, 0.6]]])  # at clock 0 and at clock 1
    >>> noise.common_at([0.5]).round(2).tolist()
    [[[0.7, 0.3], [0.3, 0.7]]]
    """

    matrices: Tensor
    clock: Tensor
    common_matrices: Tensor

    def __init__(
        self,
        matrices: ArrayLike,
        clock: ArrayLike | None = None,
        common: ArrayLike | None = None,
        period: float | None = None,
    ) -> None:
        super().__init__()
        values, moments = _validation.check_matrices(matrices, clock)
        if values.ndim == 5 and values.shape[1] == 1:
            values = values[:, 0]
        self.members, self.n_classes = values.shape[0], values.shape[-1]
        self.annotators = values.shape[1] if values.ndim == 5 else 1
        self.period = _check_period(period, moments)
        self.register_buffer("matrices", torch.tensor(values, dtype=torch.float32))
        # Double precision: neighbouring seconds since 1970 are equal in single precision.
        self.register_buffer("clock", torch.tensor(moments, dtype=torch.float64).expand(self.members, -1).clone())
        if self.annotators > 1:
            whole = values.mean(1) if common is None else _validation.check_common(common, values)
            self.register_buffer("common_matrices", torch.tensor(whole, dtype=torch.float32))

    def forward(self, clock: Tensor) -> Tensor:
        return self._between(self.matrices, clock)

    def common(self, clock: Tensor) -> Tensor:
        return self._between(self.matrices if self.annotators == 1 else self.common_matrices, clock)

    def _between(self, matrices: Tensor, clock: Tensor) -> Tensor:
        """Interpolate matrices of shape (..., points, classes, classes) at the moments `clock`."""
        knots, clock = self.clock[0], clock.to(self.clock)
        if self.period is not None:
            clock = knots[0] + (clock - knots[0]) % self.period
            knots = torch.cat([knots, knots[:1] + self.period])
            matrices = torch.cat([matrices, matrices[..., :1, :, :]], -3)
        right = torch.searchsorted(knots, clock.contiguous()).clamp(1, max(len(knots) - 1, 1))
        left = right - 1
        right = right.clamp(max=len(knots) - 1)
        width = (knots[right] - knots[left]).clamp_min(torch.finfo(knots.dtype).tiny)
        share = ((clock - knots[left]) / width).clamp(0, 1)[..., None, None]  # (..., 1, 1)
        return torch.lerp(matrices[..., left, :, :], matrices[..., right, :, :], share.to(matrices))

    def check_covers(self, clock: np.ndarray) -> None:
        """Refuse a clock that runs beyond the moments to which the matrices belong."""
        low, high = float(self.clock[0, 0]), float(self.clock[0, -1])
        slack = 0.01 * (high - low)
        everywhere = self.clock.shape[1] == 1 or self.period is not None
        if not everywhere and (clock.min() < low - slack or clock.max() > high + slack):
            raise ValueError(
                f"The noise is given for a clock from {low:g} to {high:g}, but the data's clock runs from "
                f"{clock.min():g} to {clock.max():g}. Place its matrices on that clock with "
                "FixedNoise(matrices, clock=moments)."
            )

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        """The first member's matrices, of shape ``([annotators,] points, classes, classes)``."""
        return self.matrices[0].cpu().numpy().astype(dtype or np.float64)


def _check_period(period: float | None, moments: np.ndarray) -> float | None:
    check_period(period)
    if period is not None and moments[-1] - moments[0] >= period:
        raise ValueError(
            f"The clock of noise with a period of {period:g} must lie within one period. "
            f"Got moments from {moments[0]:g} to {moments[-1]:g}."
        )
    return period


def identity_noise(members: int, n_classes: int) -> FixedNoise:
    """Noise-free labels: Q is the identity matrix."""
    return FixedNoise(np.broadcast_to(np.eye(n_classes), (members, 1, n_classes, n_classes)))
