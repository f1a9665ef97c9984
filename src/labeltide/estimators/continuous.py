"""The paper's Continuous method: Q(t) as a neural network of time, by the augmented Lagrangian (Hestenes 1969)."""

from __future__ import annotations

from pathlib import Path

from labeltide import _validation
from labeltide.estimators.base import ModelChoice, RandomState
from labeltide.estimators.fleet import FittedFleet, FleetFit
from labeltide.estimators.learned import LearnedNoiseClassifier
from labeltide.noise.network import NetworkNoise
from labeltide.objectives.objective import Penalty
from labeltide.objectives.penalties import diagonal_norm, frobenius, log_volume
from labeltide.training import AugmentedLagrangian


class ContinuousClassifier(LearnedNoiseClassifier):
    r"""Learn a smooth Q(t) of least size together with the network.

    Several annotators have a Q(t) each, partially pooled; held-out likelihood chooses the strength.

    Parameters
    ----------
    objective : {"lagrangian", "penalised"}, default "lagrangian"
        The augmented Lagrangian of the paper's section 4.2 and algorithm 1, or what its published code minimises:
        forward loss + 1e-4 mean log|det Q_t| / T + `diagonal_weight` mean ||diag Q_t||.
    diagonal_weight : float, default 0.01
        Used by the penalised objective. The paper's code has .05 for moving, .01 for senior and sleeping, .001 for
        blinking.
    raw_steps : bool, default False
        Feed Q's network the step index 0, 1, 2, ... as the paper's code does, instead of a clock scaled to [-1, 1].
    model, hidden_size, causal, epochs, batch_size, learning_rate, early_stopping, validation_fraction, device,
    checkpoint, verbose, random_state : as in `labeltide.estimators.NoisyLabelClassifier`
    """

    name = "continuous"

    def __init__(
        self,
        *,
        objective: str = "lagrangian",
        diagonal_weight: float = 0.01,
        raw_steps: bool = False,
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
        self.diagonal_weight = diagonal_weight
        self.raw_steps = raw_steps

    def _fit_fleet(self, fleet_fit: FleetFit) -> FittedFleet:
        _validation.check_number("diagonal_weight", self.diagonal_weight, 0)
        lagrangian = _validation.check_choice("objective", self.objective, ("lagrangian", "penalised")) == "lagrangian"
        grid = fleet_fit.data.grid
        bounds = (float(grid[0]), float(grid[-1]))
        raw_steps = len(grid) if self.raw_steps else None
        penalties: tuple[Penalty, ...] = (Penalty("frobenius", frobenius, 1.0),)
        if not lagrangian:
            volume = Penalty("log volume", log_volume, 1e-4 / len(grid))
            penalties = (volume, Penalty("diagonal", diagonal_norm, self.diagonal_weight))

        def build(members: int, annotators: int) -> NetworkNoise:
            return NetworkNoise(members, fleet_fit.n_classes, bounds, raw_steps, annotators)

        return self._learn(fleet_fit, build, penalties, AugmentedLagrangian() if lagrangian else None)
