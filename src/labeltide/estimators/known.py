"""Loss correction with a known Q: the forward and backward losses of Patrini and others (2017)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide.estimators.base import ModelChoice, NoisyLabelClassifier, RandomState
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.noise.base import NoiseFunction
from labeltide.noise.fixed import FixedNoise
from labeltide.objectives.objective import LOSSES, Objective


class KnownNoiseClassifier(NoisyLabelClassifier):
    """Train with a known Q, through the forward or the backward loss.

    Parameters
    ----------
    noise : NoiseFunction or array of shape (classes, classes) or (points, classes, classes)
        A series of matrices belongs to the distinct moments of the training clock, in their order. A noise function
        with annotators, such as `FixedNoise` of five axes, gives each column of `y` a Q.
    loss : {"forward", "backward"}, default "forward"
    model, hidden_size, causal, epochs, batch_size, learning_rate, early_stopping, validation_fraction, device,
    checkpoint, verbose, random_state : as in `labeltide.estimators.NoisyLabelClassifier`

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.KnownNoiseClassifier(noise=noise, epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.predict(data.features).shape
    (20, 10)
    """

    name = "known"

    def __init__(
        self,
        *,
        noise: NoiseFunction | ArrayLike | None = None,
        loss: str = "forward",
        model: ModelChoice = "gru",
        hidden_size: int = 32,
        causal: bool = True,
        epochs: int = 150,
        batch_size: int = 64,
        learning_rate: float = 0.01,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        verbose: bool = False,
        random_state: RandomState = None,
    ) -> None:
        super().__init__(
            model=model,
            hidden_size=hidden_size,
            causal=causal,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            device=device,
            checkpoint=checkpoint,
            verbose=verbose,
            random_state=random_state,
        )
        self.noise = noise
        self.loss = loss

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_choice("loss", self.loss, LOSSES)
        grid = fleet_fit.data.grid.cpu().double().numpy()
        known = [_check_noise(estimator.noise, grid, fleet_fit) for estimator in fleet_fit.estimators]
        matrices = np.stack([noise.at(grid) for noise in known])  # (members, [sources,] points, classes, classes)
        common = np.stack([noise.common_at(grid) for noise in known])
        if self.loss == "backward":
            _check_inverse(matrices, grid)
        noise = FixedNoise(matrices, grid, common).to(fleet_fit.data.features.device)
        model = fleet_fit.new_model()
        history = replace(fleet_fit, extra_inputs=(matrices,)).train(model, noise, Objective(loss=self.loss))
        return FittedFleet(model, noise, history)


def _check_noise(noise: NoiseFunction | ArrayLike | None, grid: np.ndarray, fleet_fit: FleetFit) -> NoiseFunction:
    """The known Q as a noise function that covers every moment of the training clock."""
    n_sources, n_classes = len(fleet_fit.sources.names), fleet_fit.n_classes
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
