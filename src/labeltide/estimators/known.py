"""Correct for noise that is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet, FleetJob
from labeltide.noise.base import NoiseFunction
from labeltide.noise.fixed import FixedNoise
from labeltide.objectives.objective import LOSSES, Objective


class KnownNoiseClassifier(NoisyLabelClassifier):
    """Train with a given Q, through the forward or the backward loss.

    Parameters
    ----------
    noise : NoiseFunction or array of shape (classes, classes) or (points, classes, classes)
        A series of matrices belongs to the distinct moments of the training clock, in their order. A noise function
        with annotators, such as `FixedNoise` of five axes, gives each column of `y` an own Q.
    loss : {"forward", "backward"}, default "forward"
    **shared : the parameters of every method
    """

    name = "known"

    def __init__(self, *, noise: NoiseFunction | ArrayLike | None = None, loss: str = "forward", **shared: Any) -> None:
        super().__init__(**shared)
        self.noise = noise
        self.loss = loss

    def _fit_fleet(self, job: FleetJob) -> FittedFleet:
        _validation.check_choice("loss", self.loss, LOSSES)
        grid = job.data.grid.cpu().double().numpy()
        given = [_check_noise(estimator.noise, grid, job) for estimator in job.estimators]
        matrices = np.stack([noise.at(grid) for noise in given])  # (members, [sources,] points, classes, classes)
        common = np.stack([noise.common_at(grid) for noise in given])
        if self.loss == "backward":
            _check_inverse(matrices, grid)
        noise = FixedNoise(matrices, grid, common).to(job.data.features.device)
        model = job.new_model()
        history = replace(job, given=(matrices,)).train(model, noise, Objective(loss=self.loss))
        return FittedFleet(model, noise, history)


def _check_noise(noise: NoiseFunction | ArrayLike | None, grid: np.ndarray, job: FleetJob) -> NoiseFunction:
    """The given Q as a function that says something at every moment of the training clock."""
    n_sources, n_classes = len(job.sources.names), job.n_classes
    if noise is None:
        raise ValueError(
            "The method 'known' needs to be told the noise. Pass noise=Q, or use 'continuous' to learn it."
        )
    if not isinstance(noise, NoiseFunction):
        series = np.asarray(noise)
        if series.ndim == 3 and len(series) not in (1, len(grid)):
            raise ValueError(
                f"noise must hold one matrix for each of the {len(grid)} clock moments. Got {len(series)}."
            )
        noise = FixedNoise(series, grid if series.ndim == 3 and len(series) == len(grid) else None)
    if noise.n_classes != n_classes:
        raise ValueError(f"noise must be for the {n_classes} classes of y. Got one for {noise.n_classes}.")
    if noise.annotators not in (1, n_sources):
        raise ValueError(f"noise must be for one annotator or the {n_sources} of y. Got one for {noise.annotators}.")
    noise.check_covers(grid)
    return noise


def _check_inverse(matrices: np.ndarray, grid: np.ndarray) -> None:
    """The backward loss inverts Q, which must not be close to singular at any moment."""
    condition = np.linalg.cond(matrices).max(tuple(range(matrices.ndim - 3)))  # (points,)
    if condition.max() > 1e6:
        raise ValueError(
            f"The backward loss needs a Q that can be inverted. At the clock value {grid[condition.argmax()]:g} it "
            'cannot. Use loss="forward".'
        )
