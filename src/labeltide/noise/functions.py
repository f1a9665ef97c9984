"""Noise functions: the noise matrix Q(t) of temporal label noise (Nagaraj and others 2025), and its convention.

``Q[..., i, j] = P(recorded label j | true label i)``; every row sums to one. This convention holds everywhere in
labeltide; no other module transposes Q.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor, nn

from labeltide import _validation
from labeltide._clock import check_period
from labeltide._fleet import FleetModule, MemberLinear
from labeltide.kernels import compiled as kernel


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
    """A noise function with learned parameters; annotators with a Q each start from the same values."""

    # Only with several annotators:
    shares: Tensor  # (members, annotators), share of the labels: the weight of each annotator in the common Q
    tied: Tensor  # bool (members,), whether a member's annotators share one Q, learned from all labels

    def _add_annotators(self, annotators: int) -> tuple[int, ...]:
        """Register the buffers for several annotators; returns the leading axes of every parameter."""
        self.annotators = annotators
        if annotators == 1:
            return (self.members,)
        self.register_buffer("shares", torch.full((self.members, annotators), 1 / annotators))
        self.register_buffer("tied", torch.zeros(self.members, dtype=torch.bool))
        return (self.members, annotators)

    def tie(self, values: Tensor) -> Tensor:
        """Average Q over annotators for tied members, and so its gradient: they learn as with a single Q."""
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
    """
    identity = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    return (identity + logits.softmax(-1)) / 2


class TemporalNoise(nn.Module):
    """Q(t) as a module to train beside your own network: ``noise(clock)`` gives the matrices of `forward_loss`.

    Logits at evenly spaced points of the clock, linearly interpolated. Every diagonal entry exceeds one half.

    Parameters
    ----------
    n_classes : int
    points : int
        One for noise that does not change.
    bounds : the first and last moment of the clock

    Examples
    --------
    >>> import labeltide as lt
    >>> import torch
    >>> noise = lt.TemporalNoise(n_classes=3)
    >>> noise(torch.linspace(0, 1, 50)).shape  # add noise.parameters() to those of your optimiser
    torch.Size([50, 3, 3])
    """

    def __init__(self, n_classes: int, points: int = 5, bounds: tuple[float, float] = (0.0, 1.0)) -> None:
        super().__init__()
        _validation.check_number("n_classes", n_classes, 2, whole=True)
        _validation.check_number("points", points, 1, whole=True)
        self.bounds, self.logits = bounds, nn.Parameter(torch.zeros(points, n_classes, n_classes))

    def forward(self, clock: Tensor) -> Tensor:
        """Q at moments of any shape (...): (..., classes, classes)."""
        low, high = self.bounds
        position = ((clock.double() - low) / (high - low)).clamp(0, 1) * (len(self.logits) - 1)
        left = position.long()
        right, share = (left + 1).clamp(max=len(self.logits) - 1), (position - left)[..., None, None]
        return dominant_rows(torch.lerp(self.logits[left], self.logits[right], share.to(self.logits)))


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
        check_period(period)
        if period is not None and moments[-1] - moments[0] >= period:
            raise ValueError(
                f"The clock of noise with a period of {period:g} must lie within one period. "
                f"Got moments from {moments[0]:g} to {moments[-1]:g}."
            )
        self.period = period
        self.register_buffer("matrices", torch.tensor(values, dtype=torch.float32))
        # Double precision: neighbouring seconds since 1970 are equal in single precision.
        self.register_buffer("clock", torch.tensor(moments, dtype=torch.float64).expand(self.members, -1).clone())
        if self.annotators > 1:
            whole = values.mean(1)
            if common is not None and np.shape(common) != whole.shape:
                rule = f"The common noise matrices must have shape {whole.shape}, without annotators."
                raise ValueError(f"{rule} Got {np.shape(common)}.")
            if common is not None:
                whole = _validation.check_matrices(common, None)[0]
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


def identity_noise(members: int, n_classes: int) -> FixedNoise:
    """Noise-free labels: Q is the identity matrix."""
    return FixedNoise(np.broadcast_to(np.eye(n_classes), (members, 1, n_classes, n_classes)))


class StaticNoise(NoiseFunction):
    """One learned noise matrix, the same at all times, as in VolMinNet (Li and others 2021); logits start at zero."""

    def __init__(self, members: int, n_classes: int) -> None:
        super().__init__()
        self.members, self.n_classes = members, n_classes
        self.logits = nn.Parameter(torch.zeros(members, n_classes, n_classes))

    def _initialise(self, generators: Sequence[Generator]) -> None:
        nn.init.zeros_(self.logits)

    def forward(self, clock: Tensor) -> Tensor:
        matrices = dominant_rows(self.logits)[(slice(None), *[None] * clock.ndim)]  # (members, 1, ..., i, j)
        return matrices.expand(-1, *clock.shape, -1, -1)


class StepwiseNoise(LearnedNoise):
    """One learned noise matrix per point of a rising grid; Q takes the nearest point, and all logits start equal.

    It is the Discontinuous method of Nagaraj and others (2025).
    """

    clock: Tensor

    def __init__(self, members: int, n_classes: int, clock: ArrayLike, annotators: int = 1) -> None:
        super().__init__()
        self.members, self.n_classes = members, n_classes
        leading = self._add_annotators(annotators)
        grid = torch.as_tensor(clock, dtype=torch.float64)
        self.register_buffer("clock", grid.expand(members, -1).clone())
        self.logits = nn.Parameter(torch.zeros(*leading, len(grid), n_classes, n_classes))

    def _initialise(self, generators: Sequence[Generator]) -> None:
        nn.init.zeros_(self.logits)

    def forward(self, clock: Tensor) -> Tensor:
        grid = self.clock[0]
        middles = (grid[1:] + grid[:-1]) / 2
        nearest = torch.searchsorted(middles, clock.to(grid).contiguous())
        return self.tie(dominant_rows(self.logits)[..., nearest, :, :])


BOUND = 4.0  # noise rates between 0.02 and 49.98 % for two classes
WIDTHS = (16, 32, 64, 128, 128, 128, 128, 128, 128, 128)  # the ten hidden layers of the paper's code


class NetworkNoise(LearnedNoise):
    """Multilayer perceptron of the clock: the Continuous method of Nagaraj and others (2025).

    Hidden layers have ReLU, and the ``bounds`` of the clock are mapped to [-1, 1].
    Logits z are soft-clipped to :math:`b z / (b + |z|)` with b = ``BOUND``. A penalty on Q can make all its rows equal,
    where the classifier no longer affects the loss; there an unbounded softmax saturates, and training cannot leave
    that state. The network of the paper's code has unbounded logits, PyTorch's own initialisation without scaled
    weights (see `MemberLinear`), and reads the step index 0, 1, ..., raw_steps - 1 in place of the clock.
    """

    bounds: Tensor

    def __init__(
        self,
        members: int,
        n_classes: int,
        bounds: tuple[float, float] = (0.0, 1.0),
        raw_steps: int | None = None,
        annotators: int = 1,
        widths: Sequence[int] = WIDTHS,
        *,
        scaled_weights: bool = True,
        bounded_logits: bool = True,
    ) -> None:
        super().__init__()
        self.members, self.n_classes, self.raw_steps = members, n_classes, raw_steps
        self.bound = BOUND if bounded_logits else 0.0
        self._add_annotators(annotators)
        self.register_buffer("bounds", torch.tensor(bounds, dtype=torch.float64).expand(members, 2).clone())
        sizes = (1, *widths)
        gain = 2**0.5 if scaled_weights else None
        self.layers = nn.ModuleList(MemberLinear(members, *size, gain, annotators) for size in pairwise(sizes))
        self.head = MemberLinear(members, sizes[-1], n_classes * n_classes, 0.1 if scaled_weights else None, annotators)

    def forward(self, clock: Tensor) -> Tensor:
        plan = self.plan(clock)
        if kernel.network_usable(*plan):
            matrices = kernel.fused_network(*plan)
        else:
            networks = self.members * self.annotators
            hidden = self._scaled(clock.reshape(1, -1, 1)).expand(networks, -1, -1)  # (networks, points, 1)
            for layer in self.layers:
                hidden = layer(hidden).relu()
            logits = self.head(hidden)  # (networks, points, classes * classes)
            if self.bound:
                logits = self.bound * logits / (self.bound + logits.abs())
            matrices = dominant_rows(logits.reshape(networks, *clock.shape, self.n_classes, self.n_classes))
        if self.annotators > 1:
            matrices = matrices.unflatten(0, (self.members, self.annotators))
        return self.tie(matrices)

    def plan(self, clock: Tensor) -> tuple[list[MemberLinear], kernel.NetworkInput]:
        """The layers, the head last, and the scaled input: the arguments of the compiled network."""
        scale, shift = (self.raw_steps - 1, 0.0) if self.raw_steps else (2.0, -1.0)
        inputs = kernel.NetworkInput(clock, self.bounds[0], scale, shift, self.bound, self.n_classes)
        return [*self.layers, self.head], inputs

    def _scaled(self, clock: Tensor) -> Tensor:
        low, high = self.bounds[0]
        position = (clock.to(low) - low) / (high - low).clamp_min(torch.finfo(low.dtype).tiny)
        # Beyond ten lengths of the clock before and after the data Q is constant, so no clock value overflows.
        position = position.clamp(-10, 11).to(self.head.weight)
        return position * (self.raw_steps - 1) if self.raw_steps else 2 * position - 1
