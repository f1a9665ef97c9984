r"""Parametric families of Q(t): multinomial logits over the clock, with penalised B-splines among the shapes.

The logit of recording j rather than the truth i, one *entry* for every pair of different classes, is linear in the
coefficients: :math:`\log Q_{ij}(t) / Q_{ii}(t) = x_{ij}(t)^\top \beta`. A family is a shape over the clock times a
sharing of coefficients among entries. Shapes are a constant, P-splines (cubic B-splines with a roughness penalty on
second differences, Eilers and Marx 1996), a wave (harmonic regression) and pieces (constant between change points).
The sharing says whether all entries change together, those of one true class, or each by itself. Families are compared
by held-out likelihood (`select.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import block_diag

from labeltide._clock import Period, one_period

# docs/decisions/007-families-of-q.md
N_SPLINE = 14  # by hand: B-splines over one clock
N_SPLINE_OF_SEVERAL = 8  # by hand: over each of several clocks
RIDGE = 1e-2  # by hand: ridge penalty, so that logits of labels that were never recorded stay finite


class Family(NamedTuple):
    """A multinomial logit, by what its design matrix is made of: functions of the clock, and sharings among entries.

    The design matrix itself is large with many classes; `ClassBlocks` computes with it without forming it.
    """

    name: str
    n_classes: int
    basis: np.ndarray  # (points, functions) of the clock; none for a constant
    smoothing: np.ndarray  # (functions, functions), the roughness penalty
    pooling: float | None = None  # the precision of annotators' logits around the common ones; None: all share one Q
    held: int | None = None  # the annotator whose noise does not change over the clock
    held_class: int | None = None  # the true class whose entries do not change over the clock
    kind: str = "custom"  # of the shape: "static", "spline", "wave", "pieces"; "custom" where built by hand
    smoothness: float | None = None  # of a spline that is as smooth over all clocks
    period: float | None = None  # of a wave
    n_pieces: int | None = None  # of pieces
    level: str = "each"  # which entries share the constant: "alike", "by class", "each"
    movement: str = "each"  # which entries share the change over the clock

    @property
    def design(self) -> np.ndarray:
        """The design matrix: (points, entries, coefficients), those of the level first."""
        constant, moving = shared(self.n_classes, self.level), self.moving_shares()
        level = np.broadcast_to(constant, (len(self.basis), *constant.shape))
        movement = np.einsum("tk,es->teks", self.basis, moving).reshape(len(self.basis), len(moving), -1)
        return np.concatenate([level, movement], 2)

    @property
    def penalty(self) -> np.ndarray:
        """The roughness penalty and the ridge penalty: (coefficients, coefficients)."""
        n_level, n_moving = shared(self.n_classes, self.level).shape[1], self.moving_shares().shape[1]
        penalty: np.ndarray = RIDGE * np.eye(n_level + len(self.smoothing) * n_moving)
        penalty[n_level:, n_level:] += np.kron(self.smoothing, np.eye(n_moving))
        return penalty

    @property
    def of_class(self) -> int:
        """The number of coefficients that the entries of one true class use."""
        n_level, n_moving = (self.n_classes - 1 if sharing == "each" else 1 for sharing in (self.level, self.movement))
        return n_level + self.basis.shape[1] * n_moving

    def moving_shares(self) -> np.ndarray:
        """Which entries change together over the clock, without those of a held class: (entries, shares)."""
        moving = shared(self.n_classes, self.movement)
        if not self.basis.shape[1]:
            return moving[:, :0]
        if self.held_class is None:
            return moving
        of_held = np.repeat(np.arange(self.n_classes) == self.held_class, self.n_classes - 1)
        return moving[:, ~moving[of_held].any(0)]


class Shape(NamedTuple):
    """Functions of the clock, their roughness penalty, and the numbers they were made from."""

    name: str
    basis: np.ndarray  # (points, functions); none for a constant
    penalty: np.ndarray  # (functions, functions)
    kind: str
    smoothness: float | None = None  # of a spline that is as smooth over all clocks
    period: float | None = None  # of a wave
    n_pieces: int | None = None  # of pieces


def family(n_classes: int, shape: Shape, level: str, movement: str = "alike") -> Family:
    """A constant with one sharing plus a shape over the clock with another."""
    n_functions = shape.basis.shape[1]
    name = f"{shape.name}, {level}" if not n_functions else f"{shape.name}, level {level}, movement {movement}"
    numbers = {"kind": shape.kind, "smoothness": shape.smoothness, "period": shape.period, "n_pieces": shape.n_pieces}
    return Family(name, n_classes, shape.basis, shape.penalty, level=level, movement=movement, **numbers)  # type: ignore[arg-type]


def pooled(unpooled: Family, strength: float) -> Family:
    """The same family for each annotator, with partial pooling of coefficients towards the common ones."""
    return unpooled._replace(name=f"{unpooled.name}, pooling {strength:g}", pooling=strength)


def hold_annotator(free: Family, annotator: int) -> Family:
    """The same family, but the noise of one annotator does not change over the clock."""
    return free._replace(name=f"{free.name}, annotator {annotator} held", held=annotator)


def hold_class(free: Family, held: int) -> Family:
    """The same family, pooled alike, in which the entries of one true class do not change over the clock."""
    return free._replace(name=f"{free.name}, class {held} held", held_class=held)


class WeightedFamily(NamedTuple):
    """A family that was compared, by its numbers alone, and its weight in the chosen mixture."""

    name: str
    weight: float
    smoothness: float | None = None  # of a spline that is as smooth over all clocks
    pooling: float | None = None


def constant_shape(grid: np.ndarray) -> Shape:
    """Noise that does not change over the clock."""
    return Shape("static", np.zeros((len(grid), 0)), np.zeros((0, 0)), "static")


def spline_shape(grid: np.ndarray, smoothness: float, period: Period = None) -> Shape:
    r"""P-spline (Eilers and Marx 1996): cubic B-splines with penalty :math:`\lambda \lVert D_2 \beta \rVert^2`.

    `smoothness` is :math:`\lambda`. With a period the basis is cyclic. Over several clocks, a grid of shape
    (points, clocks), it is an additive model with one spline for each clock.
    """
    if grid.ndim == 2:
        return sum_shape(grid, [smoothness] * grid.shape[1], period)
    return _spline(grid, smoothness, one_period(period), N_SPLINE)


def sum_shape(grid: np.ndarray, smoothness: Sequence[float | None], period: Period) -> Shape:
    """Additive model: one P-spline for each clock of a grid (points, clocks); None leaves a clock out."""
    periods = [None] * len(smoothness) if period is None else period
    assert isinstance(periods, tuple | list)
    parts = []
    for moments, value, length in zip(grid.T, smoothness, periods, strict=True):
        axis, place = np.unique(moments, return_inverse=True)
        if value is not None and len(axis) > 1:
            spline = _spline(axis, value, length, N_SPLINE_OF_SEVERAL)
            parts.append(spline._replace(basis=spline.basis[place]))
    if not parts:
        return constant_shape(grid)
    alike = len(set(smoothness)) == 1
    name = f"{smoothness[0]:g}" if alike else " and ".join("-" if v is None else f"{v:g}" for v in smoothness)
    basis, penalty = np.hstack([part.basis for part in parts]), block_diag(*(part.penalty for part in parts))
    return Shape(f"spline {name}", basis, penalty, "spline", smoothness[0] if alike else None)


def _spline(grid: np.ndarray, smoothness: float, period: float | None, max_columns: int) -> Shape:
    columns = max(min(max_columns, len(grid) - 1), 4)
    low = grid[0]
    width = (period or (grid[-1] - low) or 1.0) / (columns if period else columns - 3)
    knots = low + width * np.arange(-3, columns + 4)
    inside = low + (grid - low) % period if period else grid
    basis = BSpline.design_matrix(np.clip(inside, knots[3], knots[-4]), knots, 3).toarray()
    eye = np.eye(columns)
    if period:
        basis = basis[:, :columns] + np.pad(basis[:, columns:], ((0, 0), (0, 2 * columns - basis.shape[1])))
        differences = eye - 2 * np.roll(eye, 1, 1) + np.roll(eye, 2, 1)
    else:
        basis, differences = basis[:, :columns], np.diff(eye, 2, axis=0)
    return Shape(f"spline {smoothness:g}", basis, smoothness * differences.T @ differences, "spline", smoothness)


def wave_shape(grid: np.ndarray, period: float) -> Shape:
    """Harmonic regression with one frequency: a sine of free amplitude and phase."""
    angle = 2 * np.pi * (grid - grid[0]) / period
    basis = np.stack([np.cos(angle), np.sin(angle)], 1)
    return Shape(f"wave {period:.3g}", basis, np.zeros((2, 2)), "wave", period=period)


def pieces_shape(pieces: np.ndarray) -> Shape:
    """Piecewise constant between change points; `pieces` numbers the piece of every point, from 0."""
    basis = np.eye(int(pieces.max()) + 1)[pieces][:, 1:]
    n_pieces = basis.shape[1] + 1
    return Shape(f"{n_pieces} pieces", basis, np.zeros((n_pieces - 1,) * 2), "pieces", n_pieces=n_pieces)


def shared(n_classes: int, sharing: str) -> np.ndarray:
    """Indicator matrix of the coefficient that each entry uses: (entries, coefficients)."""
    entries = n_classes * (n_classes - 1)
    if sharing == "alike":
        return np.ones((entries, 1))
    if sharing == "by class":
        return np.repeat(np.eye(n_classes), n_classes - 1, axis=0)
    return np.eye(entries)
