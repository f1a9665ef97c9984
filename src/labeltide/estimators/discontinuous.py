"""The paper's Discontinuous method: a free matrix at every step."""

from __future__ import annotations

from typing import Any

from labeltide import _validation
from labeltide.estimators.fleet import FittedFleet, FleetJob
from labeltide.estimators.learned import LearnedNoiseClassifier
from labeltide.noise.stepwise import StepwiseNoise
from labeltide.objectives.objective import Penalty
from labeltide.objectives.penalties import log_volume


class DiscontinuousClassifier(LearnedNoiseClassifier):
    """Learn a Q of least volume for each moment of the clock on its own, together with the network.

    Several annotators have a Q each, which leans on the common one as far as held-out labels are likelier for it.

    Parameters
    ----------
    volume_weight : float, default 1e-4
        The weight of the average ``log |det Q_t|``.
    **shared : the parameters of every method
    """

    name = "discontinuous"

    def __init__(self, *, volume_weight: float = 1e-4, **shared: Any) -> None:
        super().__init__(**shared)
        self.volume_weight = volume_weight

    def _fit_fleet(self, job: FleetJob) -> FittedFleet:
        _validation.check_number("volume_weight", self.volume_weight, 0)

        def build(members: int, annotators: int) -> StepwiseNoise:
            return StepwiseNoise(members, job.n_classes, job.data.grid.cpu(), annotators)

        return self._learn(job, build, [Penalty("log volume", log_volume, self.volume_weight)])
