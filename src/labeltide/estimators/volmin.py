r"""VolMinNet (Li and others 2021): a static Q of minimum volume, :math:`\log |\det Q|`, trained with the classifier."""

from __future__ import annotations

from pathlib import Path

from labeltide import _validation
from labeltide.estimators.base import ModelChoice, NoisyLabelClassifier, RandomState
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.noise.static import StaticNoise
from labeltide.objectives.objective import Objective, Penalty
from labeltide.objectives.penalties import log_volume


class VolMinClassifier(NoisyLabelClassifier):
    """Learn a static Q of least volume together with the network.

    Parameters
    ----------
    volume_weight : float, default 1e-4
        The weight of ``log |det Q|``.
    model, hidden_size, causal, epochs, batch_size, learning_rate, early_stopping, validation_fraction, device,
    checkpoint, verbose, random_state : as in `labeltide.estimators.NoisyLabelClassifier`

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.VolMinClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> bool((clf.noise_at([0.0]) == clf.noise_at([1.0])).all())
    True
    """

    name = "volmin"

    def __init__(
        self,
        *,
        volume_weight: float = 1e-4,
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
        self.volume_weight = volume_weight

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_number("volume_weight", self.volume_weight, 0)
        model, noise = fleet_fit.new_model(), fleet_fit.new_noise(StaticNoise(fleet_fit.members, fleet_fit.n_classes))
        history = fleet_fit.train(
            model, noise, Objective(penalties=(Penalty("log volume", log_volume, self.volume_weight),))
        )
        return FittedFleet(model, noise, history)
