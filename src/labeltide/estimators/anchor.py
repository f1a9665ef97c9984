"""Static correction from anchor points (Patrini and others, 2017)."""

from __future__ import annotations

from typing import Any

from labeltide import _validation
from labeltide.estimators.anchors import fit_with_anchors
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet, FleetJob


class AnchorClassifier(NoisyLabelClassifier):
    """Estimate one Q for all times from anchor points, then train with it.

    Parameters
    ----------
    warm_up : int, default 25
        Epochs on recorded labels, out of all `epochs`, before the anchor points are read.
    percentile : float, default 97
        An anchor point is the step on this percentile of the class's predicted probability.
    **shared : the parameters of every method
    """

    name = "anchor"

    def __init__(self, *, warm_up: int = 25, percentile: float = 97.0, **shared: Any) -> None:
        super().__init__(**shared)
        self.warm_up = warm_up
        self.percentile = percentile

    def _fit_fleet(self, job: FleetJob) -> FittedFleet:
        _validation.check_number("warm_up", self.warm_up, 1, whole=True)
        _validation.check_number("percentile", self.percentile, 0, 100)
        return fit_with_anchors(job, self.warm_up, self.percentile, temporal=False)
