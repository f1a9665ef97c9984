"""Take every recorded label for true: the baseline that all correction is measured against."""

from __future__ import annotations

from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet, FleetJob
from labeltide.noise.fixed import identity_noise
from labeltide.objectives.objective import Objective


class IgnoreClassifier(NoisyLabelClassifier):
    """Train as if no label were wrong; its Q is the identity."""

    name = "ignore"

    def _fit_fleet(self, job: FleetJob) -> FittedFleet:
        model = job.new_model()
        history = job.train(model, None, Objective())
        return FittedFleet(model, identity_noise(job.members, job.n_classes), history)
