r"""Anchor points (Liu and Tao 2016; Patrini and others 2017): Q from steps that almost surely belong to a class.

At such a step x of class i, :math:`Q_{ij} = P(\tilde y = j \mid x)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from labeltide import _validation
from labeltide.estimators.base import ModelChoice, NoisyLabelClassifier, RandomState
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.noise.fixed import FixedNoise
from labeltide.objectives.objective import Objective
from labeltide.training import FleetData

MIN_STEPS = 100  # steps that share one estimate where sequences do not share one clock


class AnchorPointClassifier(NoisyLabelClassifier):
    """Warm up on recorded labels, estimate Q at the anchor points, and continue training with the forward loss.

    Parameters
    ----------
    warm_up : int, default 25
        Epochs on recorded labels, out of all `epochs`, before Q is estimated at the anchor points.
    percentile : float, default 97
        An anchor point is the step on this percentile of the class's predicted probability.
    model, hidden_size, causal, epochs, batch_size, learning_rate, early_stopping, validation_fraction, device,
    checkpoint, verbose, random_state : as in `labeltide.estimators.NoisyLabelClassifier`
    """

    is_temporal: ClassVar[bool]

    def __init__(
        self,
        *,
        warm_up: int = 25,
        percentile: float = 97.0,
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
        self.warm_up = warm_up
        self.percentile = percentile

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_number("warm_up", self.warm_up, 1, whole=True)
        _validation.check_number("percentile", self.percentile, 0, 100)
        model = fleet_fit.new_model()
        fleet_fit.train(model, None, Objective(), stage="warm-up", epochs=min(self.warm_up, self.epochs))
        probabilities = fleet_fit.log_probs(model).exp()  # of the recorded label: (members, rows, steps, classes)
        clock, groups = _groups(fleet_fit.data, self.is_temporal)
        matrices = torch.stack([anchor_rows(probabilities[:, inside], self.percentile) for inside in groups], 1)
        noise = FixedNoise(matrices.cpu().double().numpy(), clock).to(fleet_fit.data.features.device)
        history = fleet_fit.train(model, noise, Objective(), epochs=max(self.epochs - self.warm_up, 1))
        return FittedFleet(model, noise, history)


def anchor_rows(probabilities: Tensor, percentile: float) -> Tensor:
    """The rows of Q: for each class, the prediction at the step on that percentile of the class's probability.

    Parameters
    ----------
    probabilities : Tensor of shape (members, steps, classes)

    Returns
    -------
    Tensor of shape (members, classes, classes)
    """
    order = probabilities.argsort(1)  # (members, steps, classes)
    rank = round(percentile / 100 * (order.shape[1] - 1))
    member = torch.arange(len(order), device=order.device)[:, None]
    rows = probabilities[member, order[:, rank]]  # (members, classes, classes)
    return rows / rows.sum(-1, keepdim=True)


def _groups(data: FleetData, temporal: bool) -> tuple[np.ndarray | None, list[Tensor]]:
    """The moments of the estimates, and for each a mask over (rows, steps) of the steps it is estimated from."""
    grid = data.grid.cpu().double().numpy()
    if not temporal:
        return None, [data.mask]
    if data.points is None:
        steps = torch.arange(len(grid), device=data.mask.device)
        return grid, [data.mask & (steps == step) for step in range(len(grid))]
    counts = np.bincount(data.points[data.mask].cpu().numpy(), minlength=len(grid))
    cell_of_point = np.minimum((np.cumsum(counts) - 1) // MIN_STEPS, max(counts.sum() // MIN_STEPS - 1, 0))
    cells = np.unique(cell_of_point)
    clock = np.array([np.average(grid[cell_of_point == cell], weights=counts[cell_of_point == cell]) for cell in cells])
    cell_of_step = torch.from_numpy(cell_of_point).to(data.points.device)[data.points]
    return clock, [data.mask & (cell_of_step == int(cell)) for cell in cells]
