"""Temporal label noise for simulations, as noise functions; shapes and levels are those of `levels.py`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from labeltide.noise.fixed import FixedNoise
from labeltide.noise.levels import Constants, noise_matrices


def make_noise(
    shape: str,
    n_classes: int = 2,
    n_steps: int = 100,
    rate: float = 0.3,
    *,
    class_conditional: bool = False,
    constants: Constants | None = None,
) -> FixedNoise:
    """Noise of a named shape at one of the paper's levels, or between them.

    The rate of leaving class i is spread evenly over the other classes.

    Parameters
    ----------
    shape : one of static, linear, decay, growth, periodic, mixed, jump
    n_classes : int from 2 to 127
    n_steps : int
        Points of the noise function, at the default clock ``k / (n_steps - 1)``.
    rate : float from 0 to 0.49
        The level as the paper's figures name it, such as 0.3 for 30 %: the constants are those of `LEVELS`, and
        between two levels they are interpolated linearly. With two classes and 50 steps or more, the rate of wrong
        labels averaged over steps and classes is within 0.014 of it, and within 0.006 at the paper's own levels;
        `average_rate` computes it.
    class_conditional : bool
        Divide the rate of class i by ``1 + i / 4``, as the paper's code does. The average rate falls accordingly.
    constants : dict, optional
        Constants of the shape that replace those of the level, such as ``{"phase": 1.0}``. None is negative but the
        phase.

    Examples
    --------
    >>> import labeltide as lt
    >>> lt.make_noise("linear", n_steps=50, rate=0.3).common_at([0.0, 0.5, 1.0])[:, 0, 1].round(2).tolist()
    [0.49, 0.29, 0.1]
    """
    matrices = noise_matrices(shape, n_classes, n_steps, rate, class_conditional=class_conditional, constants=constants)
    return FixedNoise(matrices)


def average_rate(noise_matrices: ArrayLike) -> float:
    r"""The share of wrong labels when all classes and moments weigh the same: the mean of :math:`1 - Q_{ii}`.

    Parameters
    ----------
    noise_matrices : array of shape (..., classes, classes), or a FixedNoise
    """
    diagonal = np.diagonal(np.asarray(noise_matrices, dtype=np.float64), axis1=-2, axis2=-1)
    return float(1 - diagonal.mean())
