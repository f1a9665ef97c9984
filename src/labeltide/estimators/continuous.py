"""The paper's Continuous method: Q(t) as a network of time, learned together with the classifier."""

from __future__ import annotations

from typing import Any

from labeltide import _validation
from labeltide.estimators.fleet import FittedFleet, FleetJob
from labeltide.estimators.learned import LearnedNoiseClassifier
from labeltide.noise.network import NetworkNoise
from labeltide.objectives.objective import Penalty
from labeltide.objectives.penalties import diagonal_norm, frobenius, log_volume
from labeltide.training import AugmentedLagrangian


class ContinuousClassifier(LearnedNoiseClassifier):
    r"""Learn a smooth Q(t) of least size together with the network.

    Several annotators have a Q(t) each, which leans on the common one as far as held-out labels are likelier for it.

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
    **shared : the parameters of every method
    """

    name = "continuous"

    def __init__(
        self,
        *,
        objective: str = "lagrangian",
        diagonal_weight: float = 0.01,
        raw_steps: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.objective = objective
        self.diagonal_weight = diagonal_weight
        self.raw_steps = raw_steps

    def _fit_fleet(self, job: FleetJob) -> FittedFleet:
        _validation.check_number("diagonal_weight", self.diagonal_weight, 0)
        lagrangian = _validation.check_choice("objective", self.objective, ("lagrangian", "penalised")) == "lagrangian"
        grid = job.data.grid
        bounds = (float(grid[0]), float(grid[-1]))
        raw_steps = len(grid) if self.raw_steps else None
        penalties: tuple[Penalty, ...] = (Penalty("frobenius", frobenius, 1.0),)
        if not lagrangian:
            volume = Penalty("log volume", log_volume, 1e-4 / len(grid))
            penalties = (volume, Penalty("diagonal", diagonal_norm, self.diagonal_weight))

        def build(members: int, annotators: int) -> NetworkNoise:
            return NetworkNoise(members, job.n_classes, bounds, raw_steps, annotators)

        return self._learn(job, build, penalties, AugmentedLagrangian() if lagrangian else None)
