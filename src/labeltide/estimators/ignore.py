"""Cross-entropy training on the recorded labels without correction: the baseline."""

from __future__ import annotations

from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.noise.fixed import identity_noise
from labeltide.objectives.objective import Objective


class IgnoreClassifier(NoisyLabelClassifier):
    """Train as if no label were wrong; its Q is the identity.

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.IgnoreClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.noise_at([0.5]).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """

    name = "ignore"

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        model = fleet_fit.new_model()
        history = fleet_fit.train(model, None, Objective())
        return FittedFleet(model, identity_noise(fleet_fit.members, fleet_fit.n_classes), history)
