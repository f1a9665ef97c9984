"""VolMinNet (Li and others, 2021): one matrix for all times, as small as the data allow."""

from __future__ import annotations

from typing import Any

from labeltide import _validation
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet, FleetJob
from labeltide.noise.static import StaticNoise
from labeltide.objectives.objective import Objective, Penalty
from labeltide.objectives.penalties import log_volume


class VolMinClassifier(NoisyLabelClassifier):
    """Learn a static Q of least volume together with the network.

    Parameters
    ----------
    volume_weight : float, default 1e-4
        The weight of ``log |det Q|``.
    **shared : the parameters of every method
    """

    name = "volmin"

    def __init__(self, *, volume_weight: float = 1e-4, **shared: Any) -> None:
        super().__init__(**shared)
        self.volume_weight = volume_weight

    def _fit_fleet(self, job: FleetJob) -> FittedFleet:
        _validation.check_number("volume_weight", self.volume_weight, 0)
        model, noise = job.new_model(), job.new_noise(StaticNoise(job.members, job.n_classes))
        history = job.train(model, noise, Objective(penalties=(Penalty("log volume", log_volume, self.volume_weight),)))
        return FittedFleet(model, noise, history)
