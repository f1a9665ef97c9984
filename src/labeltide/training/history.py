"""Learning curves: training and validation loss by epoch and member, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True)
class History:
    """One value per epoch and member.

    Attributes
    ----------
    loss : array of shape (epochs, members)
        The average loss of a recorded label during the epoch; NaN once the member has stopped.
    held_out : array of shape (epochs, members)
        The same on the validation rows; NaN where there are none.
    best_epoch : array of shape (members,)
        The epoch whose parameters are kept.
    restarts : array of shape (members,)
        How often a member diverged and started again at a lower rate.
    """

    loss: np.ndarray
    held_out: np.ndarray
    best_epoch: np.ndarray
    restarts: np.ndarray

    def member(self, index: int) -> Self:
        """The history of one member as a fleet of one."""
        chosen = slice(index, index + 1)
        return type(self)(
            self.loss[:, chosen], self.held_out[:, chosen], self.best_epoch[chosen], self.restarts[chosen]
        )
