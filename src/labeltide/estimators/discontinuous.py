"""The paper's Discontinuous method: minimum-volume estimation (VolMinNet, Li and others 2021) of Q at every step."""

from __future__ import annotations

from pathlib import Path

from labeltide import _validation
from labeltide.estimators.base import ModelChoice, RandomState
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.estimators.learned import LearnedNoiseClassifier, code_penalties
from labeltide.noise.stepwise import StepwiseNoise
from labeltide.objectives.objective import Penalty
from labeltide.objectives.penalties import log_volume


class DiscontinuousClassifier(LearnedNoiseClassifier):
    """Learn a free Q of least volume for each moment of the clock, together with the network.

    Several annotators have a Q each, partially pooled; held-out likelihood chooses the strength.

    Parameters
    ----------
    objective : {"volume", "penalised"}, default "volume"
        The minimum volume of the paper's text, forward loss + `volume_weight` mean log|det Q_t|, or what its published
        code minimises: forward loss + `volume_weight` mean log|det Q_t| / T + `diagonal_weight` mean ||diag Q_t||.
    volume_weight : float, default 1e-4
    diagonal_weight : float, default 0.01
        Used by the penalised objective. The paper's code has .05 for moving, .01 for senior and sleeping, .001 for
        blinking, as for `ContinuousClassifier`.
    model, hidden_size, causal, epochs, batch_size, learning_rate, early_stopping, validation_fraction, device,
    checkpoint, verbose, random_state : as in `labeltide.estimators.NoisyLabelClassifier`

    Examples
    --------
    >>> import labeltide as lt
    >>> noise = lt.make_noise("growth", n_steps=10)
    >>> data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), noise)
    >>> clf = lt.DiscontinuousClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    >>> clf.noise_matrices_.shape  # a Q for each moment
    (10, 2, 2)
    """

    name = "discontinuous"

    def __init__(
        self,
        *,
        objective: str = "volume",
        volume_weight: float = 1e-4,
        diagonal_weight: float = 0.01,
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
        self.objective = objective
        self.volume_weight = volume_weight
        self.diagonal_weight = diagonal_weight

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_number("volume_weight", self.volume_weight, 0)
        _validation.check_number("diagonal_weight", self.diagonal_weight, 0)
        penalties = [Penalty("log volume", log_volume, self.volume_weight)]
        if _validation.check_choice("objective", self.objective, ("volume", "penalised")) == "penalised":
            penalties = code_penalties(len(fleet_fit.data.grid), self.volume_weight, self.diagonal_weight)

        def build(members: int, annotators: int) -> StepwiseNoise:
            return StepwiseNoise(members, fleet_fit.n_classes, fleet_fit.data.grid.cpu(), annotators)

        return self._learn(fleet_fit, build, penalties)
