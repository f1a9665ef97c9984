"""Cross-entropy training on the recorded labels without correction: the baseline."""

from __future__ import annotations

from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.noise.fixed import identity_noise
from labeltide.objectives.objective import Objective


class IgnoreClassifier(NoisyLabelClassifier):
    """Train as if no label were wrong; its Q is the identity."""

    name = "ignore"

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        model = fleet_fit.new_model()
        history = fleet_fit.train(model, None, Objective())
        return FittedFleet(model, identity_noise(fleet_fit.members, fleet_fit.n_classes), history)
