"""Anchor points: steps so typical of a class that what was recorded there shows how that class is mislabelled."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from labeltide import _validation
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet, FleetJob
from labeltide.noise.fixed import FixedNoise
from labeltide.objectives.objective import Objective
from labeltide.training import FleetData

MIN_STEPS = 100  # steps that share one estimate where sequences have clocks of their own


class AnchorPointClassifier(NoisyLabelClassifier):
    """Warm up on recorded labels, read Q off the anchor points, and go on training with it.

    Parameters
    ----------
    warm_up : int, default 25
        Epochs on recorded labels, out of all `epochs`, before the anchor points are read.
    percentile : float, default 97
        An anchor point is the step on this percentile of the class's predicted probability.
    **shared : the parameters of every method
    """

    is_temporal: ClassVar[bool]

    def __init__(self, *, warm_up: int = 25, percentile: float = 97.0, **shared: Any) -> None:
        super().__init__(**shared)
        self.warm_up = warm_up
        self.percentile = percentile

    def _fit_fleet(self, job: FleetJob) -> FittedFleet:
        _validation.check_number("warm_up", self.warm_up, 1, whole=True)
        _validation.check_number("percentile", self.percentile, 0, 100)
        model = job.new_model()
        job.train(model, None, Objective(), stage="warm-up", epochs=min(self.warm_up, self.epochs))
        probabilities = job.log_probs(model).exp()  # of the recorded label: (members, rows, steps, classes)
        clock, groups = _groups(job.data, self.is_temporal)
        matrices = torch.stack([anchor_rows(probabilities[:, inside], self.percentile) for inside in groups], 1)
        noise = FixedNoise(matrices.cpu().double().numpy(), clock).to(job.data.features.device)
        history = job.train(model, noise, Objective(), epochs=max(self.epochs - self.warm_up, 1))
        return FittedFleet(model, noise, history)


def anchor_rows(probabilities: Tensor, percentile: float) -> Tensor:
    """For each class, the whole prediction at the step on that percentile of its own probability.

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
    """Which steps (as masks over (rows, steps)) share one estimate, and the moment each estimate belongs to."""
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
