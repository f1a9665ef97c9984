"""Learning curves: training and validation loss by epoch and member, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from labeltide._display import ShortRepr


@dataclass(frozen=True, repr=False)
class History(ShortRepr):
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
    linear, quadratic : arrays of shape (epochs, members)
        The multipliers of the augmented Lagrangian during the epoch; NaN without one and once the member has stopped.
    """

    loss: np.ndarray
    held_out: np.ndarray
    best_epoch: np.ndarray
    restarts: np.ndarray
    linear: np.ndarray
    quadratic: np.ndarray

    def member(self, index: int) -> Self:
        """The history of one member as a fleet of one."""
        chosen = slice(index, index + 1)
        return type(self)(**{name: values[..., chosen] for name, values in vars(self).items()})
