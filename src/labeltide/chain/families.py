"""Families of Q(t): each says how the logits of Q may follow the clock, and what its wiggles cost.

A logit here is that of recording j rather than the truth i, one for every pair of different classes: an *entry*. A
family is a shape in time (constant, spline, wave, pieces) times a sharing: whether all entries move together, those
of one true class, or each on its own. A jump, a season and a constant, noise alike for all classes or not, are then
all found by the likelihood of labels that were not learned from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import block_diag

from labeltide._clock import Period, one_period

N_SPLINE = 14  # cubic splines over the clock
N_SPLINE_OF_SEVERAL = 8  # over each of several
RIDGE = 1e-2  # pulls logits weakly to zero, so that what never happened stays finite


class Family(NamedTuple):
    """How logits are made of coefficients."""

    name: str
    design: np.ndarray  # (points, entries, coefficients)
    penalty: np.ndarray  # (coefficients, coefficients)
    pooling: float | None = None  # the precision of annotators' logits around the common ones; None: all share one Q
    held: int | None = None  # the annotator whose noise does not change over the clock


class Shape(NamedTuple):
    """Functions of the clock."""

    name: str
    basis: np.ndarray  # (points, functions); none for a constant
    penalty: np.ndarray  # (functions, functions)


def family(n_classes: int, shape: Shape, level: str, movement: str = "alike") -> Family:
    """A constant shared in one way plus a shape in time shared in another."""
    n_points, n_functions = shape.basis.shape
    constant, moving = _shared(n_classes, level), _shared(n_classes, movement)  # (entries, slots)
    parts = [np.broadcast_to(constant, (n_points, *constant.shape))]
    parts.append(np.einsum("tk,es->teks", shape.basis, moving).reshape(n_points, len(moving), -1))
    design = np.concatenate(parts, 2)
    penalty = RIDGE * np.eye(design.shape[2])
    start = constant.shape[1]
    penalty[start:, start:] += np.kron(shape.penalty, np.eye(moving.shape[1]))
    name = f"{shape.name}, {level}" if not n_functions else f"{shape.name}, level {level}, movement {movement}"
    return Family(name, design, penalty)


def pooled(one: Family, strength: float) -> Family:
    """The same family for each annotator, whose coefficients lean on the common ones."""
    return one._replace(name=f"{one.name}, pooling {strength:g}", pooling=strength)


def hold_annotator(one: Family, annotator: int) -> Family:
    """The same family, but the noise of one annotator does not change over the clock."""
    return one._replace(name=f"{one.name}, annotator {annotator} held", held=annotator)


def constant_shape(grid: np.ndarray) -> Shape:
    """Nothing changes."""
    return Shape("static", np.zeros((len(grid), 0)), np.zeros((0, 0)))


def spline_shape(grid: np.ndarray, smoothness: float, period: Period = None) -> Shape:
    """Cubic splines whose second differences are penalised; with a period they close to a ring.

    Of several clocks, a grid of shape (points, clocks), it is the sum of one for each.
    """
    if grid.ndim == 2:
        return sum_shape(grid, [smoothness] * grid.shape[1], period)
    return _spline(grid, smoothness, one_period(period), N_SPLINE)


def sum_shape(grid: np.ndarray, smoothness: Sequence[float | None], period: Period) -> Shape:
    """The sum of one spline for each clock of a grid (points, clocks); None leaves the noise alike over a clock."""
    periods = [None] * len(smoothness) if period is None else period
    assert isinstance(periods, tuple | list)
    parts = []
    for moments, value, own in zip(grid.T, smoothness, periods, strict=True):
        axis, place = np.unique(moments, return_inverse=True)
        if value is not None and len(axis) > 1:
            one = _spline(axis, value, own, N_SPLINE_OF_SEVERAL)
            parts.append(one._replace(basis=one.basis[place]))
    if not parts:
        return constant_shape(grid)
    alike = len(set(smoothness)) == 1
    name = f"{smoothness[0]:g}" if alike else " and ".join("-" if v is None else f"{v:g}" for v in smoothness)
    return Shape(f"spline {name}", np.hstack([one.basis for one in parts]), block_diag(*(one.penalty for one in parts)))


def _spline(grid: np.ndarray, smoothness: float, period: float | None, most: int) -> Shape:
    columns = max(min(most, len(grid) - 1), 4)
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
    return Shape(f"spline {smoothness:g}", basis, smoothness * differences.T @ differences)


def wave_shape(grid: np.ndarray, period: float) -> Shape:
    """One sine wave of free height and phase."""
    angle = 2 * np.pi * (grid - grid[0]) / period
    return Shape(f"wave {period:.3g}", np.stack([np.cos(angle), np.sin(angle)], 1), np.zeros((2, 2)))


def pieces_shape(pieces: np.ndarray) -> Shape:
    """Constant between change points; `pieces` numbers the piece of every point, from 0."""
    basis = np.eye(int(pieces.max()) + 1)[pieces][:, 1:]
    return Shape(f"{basis.shape[1] + 1} pieces", basis, np.zeros((basis.shape[1],) * 2))


def _shared(n_classes: int, sharing: str) -> np.ndarray:
    """Which entries share a coefficient: (entries, slots)."""
    entries = n_classes * (n_classes - 1)
    if sharing == "alike":
        return np.ones((entries, 1))
    if sharing == "by class":
        return np.repeat(np.eye(n_classes), n_classes - 1, axis=0)
    return np.eye(entries)
