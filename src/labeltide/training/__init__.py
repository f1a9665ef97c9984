"""The training loop of fleets: Adam, gradient clipping, early stopping and the augmented Lagrangian method."""

from labeltide.training.loop import History, OnEpochShare, epoch_bar, evaluate, stages_bar, train, watch_epochs
from labeltide.training.objective import FleetData, clock_grid, free_memory, reversal
from labeltide.training.state import AugmentedLagrangian, Checkpoint, Schedule, fingerprint
from labeltide.training.step import Fleet

__all__ = [
    "AugmentedLagrangian",
    "Checkpoint",
    "Fleet",
    "FleetData",
    "History",
    "OnEpochShare",
    "Schedule",
    "clock_grid",
    "epoch_bar",
    "evaluate",
    "fingerprint",
    "free_memory",
    "reversal",
    "stages_bar",
    "train",
    "watch_epochs",
]
